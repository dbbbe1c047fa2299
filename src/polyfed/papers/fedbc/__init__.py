"""Bedi and others: FedBC."""
