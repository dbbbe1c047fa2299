"""Yi, Condat and Richtarik: Scafflix.

convex  Fig. 1: GD and Scafflix on logistic regression
nets    Fig. 2 and 4: nets on handwriting by writer and on Shakespeare by role
"""

from polyfed.papers.scafflix import convex, nets

__all__ = ["convex", "nets"]
