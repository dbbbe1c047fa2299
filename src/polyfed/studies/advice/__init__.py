"""`polyfed advise`: should these sites train together, how, and which model should each of them deploy?

contenders.py   what is tried: every way of training, with as many candidates each
trials.py       train all of them on every split, and keep the scores of the best candidate of each
choices.py      the federation's choice and each site's, by validation rows alone
influence.py    what each site brings to the others
answer.py       what is told
advice.py       what the whole procedure is worth to each site, by test rows that no choice saw
"""

from polyfed.studies.advice.advice import advise
from polyfed.studies.advice.answer import Advice, SiteAdvice

__all__ = ["Advice", "SiteAdvice", "advise"]
