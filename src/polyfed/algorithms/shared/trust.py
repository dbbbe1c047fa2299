"""How far a client that comes seldom trusts its control variate: as far as it explains the client's own gradient.

A control variate h says what the client's gradient g is at the common solution. Where clients are sampled, h is as old
as the client's last visit, and on nets the plain step g - h then diverges. A trusting client steps along g - tau h with

    tau = min(1, max(0, SLACK <g, h> / |h|^2))

<g, h> / |h|^2 is what least squares says: the multiple of h that is nearest to g. An h that has nothing to do with the
gradient is not used at all, and the step is the gradient's. With 0 <= SLACK <= 2 no step is longer than the gradient,
|g - tau h| <= |g|: so a path has the length of plain local SGD's at most, whatever h is. At the solution g = h, where
least squares says 1: with SLACK > 1 all of h is trusted in a neighbourhood of it, and the method there is the plain
one, which is exact.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import jax
import jax.numpy as jnp

from polyfed.algorithms.contract import Algorithm
from polyfed.core.trees import Tree, dot, scale, squared_norm, subtract

SLACK = 1.5
"""Above 1, so that the solution stays exact; at most 2, so that no step is longer than the gradient."""


@dataclass(frozen=True, kw_only=True)
class ControlVariates(Algorithm):
    """A method whose clients keep a control variate while they are absent."""

    trust: Literal["sampled", "always", "never"] = "sampled"
    """trust control variates only as far as they explain the gradient: where clients are sampled, always, or never (the
    plain method)"""

    def trusted_share(self, gradient: Tree, control: Tree) -> jax.Array | float:
        """tau; 1 in the plain method, and where it is not decided yet whether clients are sampled."""
        return explained_share(gradient, control) if self.trust == "always" else 1.0

    def corrected(self, gradient: Tree, control: Tree) -> Tree:
        """The direction of a local step, g - tau h."""
        return subtract(gradient, scale(self.trusted_share(gradient, control), control))


def decided(method: Algorithm, sampled: bool) -> Algorithm:
    """The method, told whether a round may miss clients."""
    if isinstance(method, ControlVariates) and method.trust == "sampled":
        return replace(method, trust="always" if sampled else "never")
    return method


def explained_share(gradient: Tree, control: Tree) -> jax.Array:
    """tau = min(1, max(0, SLACK <g, h> / |h|^2)); 0 where h is."""
    squared = squared_norm(control)
    nearest = dot(gradient, control) / jnp.where(squared > 0, squared, 1.0)
    return jnp.clip(SLACK * nearest, 0.0, 1.0)
