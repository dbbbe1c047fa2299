"""The parts of clients' states that a bank of local models has already: they are read there, and never kept twice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from polyfed.algorithms.contract import State
from polyfed.algorithms.shared.mixture import Mixture
from polyfed.engine.states.bank import LocalModelBank


@dataclass(frozen=True)
class SharedParts:
    """Takes clients' states apart, and puts them together again; without a bank they stay whole.

    No round changes a pure local model, so a state that comes back from the devices has the one that went there.
    """

    bank: LocalModelBank | None = None

    def without(self, states: State) -> State:
        """What is to be kept of states."""
        if self.bank is None:
            return states
        return _map(lambda mixture: mixture._replace(own=None, grad_norm=None), states)

    def joined(self, kept: State, clients: np.ndarray) -> State:
        """The whole states of these clients, from the bank's part and the part that was kept."""
        if self.bank is None:
            return kept
        own, norms = self.bank.rows(clients)
        return _map(lambda mixture: mixture._replace(own=own, grad_norm=norms), kept)


def _map(function: Any, states: State) -> State:
    def is_mixture(node: object) -> bool:
        return isinstance(node, Mixture)

    return jax.tree.map(lambda node: function(node) if is_mixture(node) else node, states, is_leaf=is_mixture)
