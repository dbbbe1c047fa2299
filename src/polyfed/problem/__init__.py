"""Data + model + loss + ridge: every client's objective, its constants and its reference solutions.

problem.py              a problem: the clients' data, the model, the loss and the ridge
objective.py            one client's objective, which is all that an algorithm sees of a client
losses.py               losses and the labels that they accept
class_weights.py        how much a row counts, by its class
metrics/                metrics of scores and labels
client_values.py        a hyper-parameter with a value for each client, such as mixing weights
reference.py            smoothness constants, pure local models, and the minimiser of the mixture objective
mixture_objective.py    the mixture objective as one function
batch_constants.py      constants of gradients on batches
newton.py               Newton's method
prediction.py           what a model says of new rows
no_model.py             what to say when something that is no model was given as one
deferred/               local steps that leave the first layer's weights alone until they end

Import a file, not this package, which loads none of them.
"""
