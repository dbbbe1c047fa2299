"""Personalization Mitigates the Perils of Local SGD (PLSGD), on quadratics with known constants.

runs          the quadratics, and many seeds of one simulation
trajectories  Fig. 1b: paths in the plane
consensus     Fig. 2: the consensus error
exponents     Fig. 4: what the bounds say
bounds        Theorem 1 against 200 seeds
table1        Table 1 against the methods at their best stepsizes
regimes       when to share a model, to personalize or to go alone
"""

from polyfed.papers.plsgd import bounds, consensus, exponents, regimes, table1, trajectories

__all__ = ["bounds", "consensus", "exponents", "regimes", "table1", "trajectories"]
