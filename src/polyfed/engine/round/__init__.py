"""The round, written once, for every algorithm."""
