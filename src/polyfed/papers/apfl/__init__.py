"""Deng, Kamani and Mahdavi: Adaptive Personalized Federated Learning.

methods    the methods that are compared, and what the experiments share
diversity  Fig. 1: from IID data to one class a client
linear     Fig. 2 to 4: linear models
writers    Fig. 5: handwriting by writer
joining    Fig. 6: clients that join after training
starts     where the learned alpha ends, by where it starts; not in the paper
tables     Tables 1 and 2: networks
"""

from polyfed.papers.apfl import diversity, joining, linear, starts, tables, writers

__all__ = ["diversity", "joining", "linear", "starts", "tables", "writers"]
