"""Federations of real processes under seeded faults: `make test-chaos`, or `python -m tests.deploy.chaos --help`.

`schedule` draws what happens when, `proxy` and `faults` do it, `history` runs a federation through it and checks the
outcome.
"""
