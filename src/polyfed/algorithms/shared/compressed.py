"""What the methods that compress their gradients share: the compressor, and how a message comes about."""

from __future__ import annotations

from dataclasses import dataclass

import jax
from jax.flatten_util import ravel_pytree

from polyfed import compress
from polyfed.algorithms.shared.mixture import SmoothMixtureMethod
from polyfed.compress import Compressor, Sealed
from polyfed.core import trees
from polyfed.core.trees import Tree
from polyfed.models.parameters import shapes
from polyfed.problem.objective import Objective
from polyfed.problem.problem import Problem


@dataclass(frozen=True, kw_only=True)
class CompressedMethod(SmoothMixtureMethod):
    """A method on the FLIX objective whose clients send compressed vectors."""

    compressor: Compressor | str | dict[str, object] = "identity"
    """C_i, such as {name = "rand_k", k = 10}; k may have one value for each client"""

    @property
    def made_compressor(self) -> Compressor:
        return compress.make(self.compressor)

    def compressed(self, f: Objective, key: jax.Array, tree: Tree) -> tuple[Tree, jax.Array | int, Sealed]:
        """C_i of a tree as one vector, the bits of the message, and how it came about; the client's own C_i."""
        vector, unravel = ravel_pytree(tree)
        mine, key = jax.tree.map(f.own, self.made_compressor), jax.random.fold_in(key, 1)
        message = unravel(mine(key, vector))
        return message, mine.bits(vector.size, 8 * vector.dtype.itemsize), Sealed(mine, key, vector)


def model_size(problem: Problem) -> int:
    """The number of parameters."""
    return trees.count(shapes(problem.init))
