"""Deng, Kamani and Mahdavi: Adaptive Personalized Federated Learning."""
