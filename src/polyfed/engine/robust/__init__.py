"""Robust aggregation: a server that sees single uploads, the rules by which it sums them up, and attacks to test it."""
