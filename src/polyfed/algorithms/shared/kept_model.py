"""A model that a client keeps for itself: it begins when the client first takes part."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from polyfed.core.trees import Tree, where


class KeptModel(NamedTuple):
    """A client's own model, and whether the client has taken part yet: until then the global model stands for it.

    So a client that comes late begins at the model that it is sent, and one that never came deploys the global model.
    """

    model: Tree
    met: jax.Array | None
    """None where it has for certain"""

    @classmethod
    def start(cls, params: Tree) -> KeptModel:
        """Of a client that has not taken part."""
        return cls(params, jnp.zeros((), bool))

    @classmethod
    def after(cls, model: Tree) -> KeptModel:
        """Of a client that has just made this model."""
        return cls(model, jnp.ones((), bool))

    def beside(self, shared: Tree) -> Tree:
        """The client's model, given the global one."""
        return self.model if self.met is None else where(self.met, self.model, shared)

    def settled(self, shared: Tree) -> KeptModel:
        """The same for a client that is now sent the global model."""
        return KeptModel(self.beside(shared), None)

    @property
    def share(self) -> jax.Array:
        """1 for a client with a model of its own, 0 for one that still has the global one."""
        return jnp.ones(()) if self.met is None else self.met.astype(jnp.result_type(float))
