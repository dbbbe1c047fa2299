"""Yi, Condat and Richtarik: Scafflix.

convex     Fig. 1: GD and Scafflix on logistic regression
nets       Fig. 2, 4 and 5: nets on handwriting by writer and on Shakespeare by role
ablations  Fig. 3 and 6: what mixing weight, sampled clients and p do
"""

from polyfed.papers.scafflix import ablations, convex, nets

__all__ = ["ablations", "convex", "nets"]
