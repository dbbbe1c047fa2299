"""The engine: it runs any algorithm's rounds on any number of clients and devices."""

from polyfed.engine.measure import FineTune
from polyfed.engine.participation import Bernoulli
from polyfed.engine.result import Result
from polyfed.engine.simulate import simulate
from polyfed.engine.simulation import Simulation

__all__ = ["Bernoulli", "FineTune", "Result", "Simulation", "simulate"]
