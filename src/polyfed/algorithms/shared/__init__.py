"""What several algorithms share, one idea a file.

local_work.py     the fields that say what a client does in a round, and how clients weigh
server.py         a server that keeps the global model, or moves it by an optimiser
kept_model.py     a model that a client keeps for itself
local_models.py   pure local models, by Newton's method or by SGD
mixture.py        the FLIX objective: mixing weights, pure local models, mixtures
compressed.py     messages that are compressed
skipping.py       communication with a probability
trust.py          how far control variates are trusted where clients are sampled
bonds.py          multipliers and tolerances that hold clients near the global model
personal_part.py  what a client adds to some of the parameters
running_mean.py   means over local steps
newcomer.py       the model of a client that joins after training
per_client.py     hyper-parameters with a value for each client
checks.py         hyper-parameters, checked by name
"""
