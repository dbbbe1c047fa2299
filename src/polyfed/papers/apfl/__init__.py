"""Deng, Kamani and Mahdavi: Adaptive Personalized Federated Learning.

methods  the methods that are compared, and what the experiments share
linear   Fig. 1 to 4: linear models
nets     Fig. 5 and both tables: networks
"""

from polyfed.papers.apfl import linear, nets

__all__ = ["linear", "nets"]
