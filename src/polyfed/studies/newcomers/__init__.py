"""Clients that join after training.

personalize.py  the call: a run and the newcomers' data give each newcomer its model
trained.py      what is left of a run that a newcomer needs, and how a run directory keeps it
fitting.py      the newcomers' rows and labels as the run's model reads them
files.py        the newcomers' data from a config or a file
"""

from polyfed.studies.newcomers.personalize import Newcomers, personalize

__all__ = ["Newcomers", "personalize"]
