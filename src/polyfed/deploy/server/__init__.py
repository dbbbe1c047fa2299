"""The server's side of a run.

agreement    what the run agrees on before round 1
coordinator  the rounds, the checkpoints and the end
ledger       what the server notes between two rounds
privacy      secret noise, a secret cohort, and the privacy spent
serve        what Flower's server process does
"""
