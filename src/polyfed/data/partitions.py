"""Federations of labelled arrays that a scheme shares out over clients."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from polyfed.core.errors import PolyfedError
from polyfed.data.federation import Federation
from polyfed.data.labels import as_targets, encode
from polyfed.data.option_checks import check_options, integer
from polyfed.data.schemes import assign, scheme_options


def partition(
    x: ArrayLike,
    y: ArrayLike,
    scheme: str,
    clients: int | None = None,
    seed: int = 0,
    *,
    validation: float = 0.1,
    test: float = 0.2,
    num_classes: int | None = None,
    source: dict[str, object] | None = None,
    **options: object,
) -> Federation:
    """Share out labelled arrays by a scheme of `SCHEMES`; `options` are the scheme's own.

    `num_classes` is the number of label values where the labels do not show the last ones.
    The scheme "column" takes `values`, one per row, and makes a client of each distinct one.
    """
    check_options(f"partition {scheme!r}", options, *scheme_options(scheme))
    inputs, targets = np.asarray(x), as_targets(y, "y")
    if len(inputs) != len(targets):
        raise PolyfedError(f"x has {len(inputs)} rows and y has {len(targets)}, expected equal numbers")
    integer("seed", seed)
    names, rows = assign(targets, scheme, clients, seed, options)
    # Labels are those of the whole data, also where a scheme leaves out the last row of a class.
    encoded = encode(targets, num_classes, lambda row: f"row {row} (counted from 0)")
    if source is None:
        source = {"name": "partition", "scheme": scheme, "clients": clients, "seed": seed}
    federation = Federation.from_arrays(
        [(inputs[own], encoded.y[own]) for own in rows],
        names=names,
        validation=validation,
        test=test,
        classes=encoded.classes if encoded.y.dtype.kind in "iu" else 0,
        seed=seed,
        source=encoded.described(source),
    )
    return replace(federation, label_names=encoded.label_names)
