"""The server's side of a run.

agreement    what the run agrees on before round 1
coordinator  the rounds and the checkpoints
going_back   the checkpoint before the newest
handover     the end: every site gets the result
ledger       what the server notes between two rounds
privacy      secret noise, a secret cohort, and the privacy spent
serve        a run, from its settings to its end
uploads      the answers of a round, read and bounded
"""
