"""Yi, Condat and Richtarik: Scafflix.

convex  Fig. 1: GD and Scafflix on logistic regression
"""

from polyfed.papers.scafflix import convex

__all__ = ["convex"]
