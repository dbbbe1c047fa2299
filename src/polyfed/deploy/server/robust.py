"""One upload made of single ones, where the operator chose a rule for that: the section [aggregate] of server.toml."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from polyfed.algorithms.contract import Algorithm, Server, Upload
from polyfed.core import trees
from polyfed.core.trees import Tree
from polyfed.engine.robust.settings import Aggregate
from polyfed.engine.robust.singles import check_method
from polyfed.engine.round.records import Sums


def check_update(method: Algorithm, server: Server, values: Tree) -> None:
    """Refuse a method whose server needs more than one upload in place of the mean."""

    def look(server: Server, values: Tree) -> int:
        check_method(method, server, Upload(values))
        return 0

    jax.eval_shape(look, server, values)


def one_upload(
    aggregate: Aggregate, uploads: Sequence[Sums], empty: Sums, past: Sequence[float]
) -> tuple[Sums, float | None]:
    """What the rule makes of these uploads, as a sum; and the median of their norms, None where nobody sent any.

    An upload comes multiplied by its weight; a rule sees it without. Sites that kept silent are not among them.
    """
    sent = [upload for upload in uploads if float(upload.weight) > 0]
    if not sent:
        return empty, None
    plain = [jax.tree.map(lambda leaf, w=upload.weight: np.asarray(leaf) / w, upload.values) for upload in sent]
    one = aggregate.of(plain, [float(upload.weight) for upload in sent], past)
    values = jax.tree.map(np.asarray, trees.scale(one.weight, one.values))
    weight: Any = np.asarray(one.weight, empty.weight.dtype)
    count: Any = jnp.asarray(len(uploads), empty.uploads.dtype)
    return empty._replace(values=values, weight=weight, uploads=np.asarray(count)), float(one.norm)
