"""Bedi and others: FedBC, Calibrating Global and Local Models via Federated Learning Beyond Consensus.

paper        what its figures and tables have in common
contenders   the methods, the values that tuning tries, and the tasks
runs         runs side by side, and what is kept of each
fresh        accuracy on fresh rows of synthetic clients
tuned_runs   every method, tuned, on every task with every seed
beyond       Fig. 1: consensus and beyond, two clients in the plane
sizes        Fig. 5 and 6: the rows of each device
synthetic    the synthetic federations
table1       Table 1: global accuracy by local epochs
tolerances   Fig. 2: the trade-off between global and local models
weights      Fig. 3 and 8: weights in the server's average
rounds       Fig. 4, 7 and 9 to 12: round by round
image_weights  Fig. 13: weights with nets on images
images       Tables 2, 3, 6, 7 and 8: nets on CIFAR-10 and MNIST
shakespeare  Table 9: an LSTM
"""

from polyfed.papers.fedbc import beyond, image_weights, images, rounds, shakespeare, sizes, table1, tolerances, weights

__all__ = ["beyond", "image_weights", "images", "rounds", "shakespeare", "sizes", "table1", "tolerances", "weights"]
