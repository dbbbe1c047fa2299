"""The sine regression tasks of the FLIX paper."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polyfed.core.errors import PolyfedError
from polyfed.data.federation import Federation
from polyfed.data.option_checks import integer, interval
from polyfed.data.seeds import stream


def sines(
    groups: Sequence[int] = (30, 170),
    points: int = 50,
    validation_points: int = 0,
    test_points: int = 2000,
    amplitude: Sequence[float] = (0.1, 0.5),
    phase: Sequence[float] = (0.0, 2 * np.pi),
    domain: Sequence[float] = (-5.0, 5.0),
    seed: int = 0,
) -> Federation:
    """f_i(x) = a_i sin(x + b_i), where the clients of a group share one pair (a, b). FLIX, Section 4.

    `groups` counts the clients of each group: the paper has (30, 170), (50, 150), (70, 130) and (90, 110). Each pair is
    drawn uniformly from `amplitude` x `phase`, and every client draws its own points uniformly from `domain`.
    x has shape (rows, 1), y (rows,). The pairs are in the columns group, amplitude and phase.
    """
    if not isinstance(groups, list | tuple) or not groups:
        raise PolyfedError(f"groups must be a list of group sizes, found {groups!r}")
    groups = [integer(f"groups[{g}]", size, 1) for g, size in enumerate(groups)]
    counts = {
        "train": integer("points", points, 1),
        "validation": integer("validation_points", validation_points),
        "test": integer("test_points", test_points),
    }
    low, high = interval("domain", domain)
    amplitudes, phases = interval("amplitude", amplitude), interval("phase", phase)
    seed = integer("seed", seed)
    pairs = [stream(seed, "sines", "group", g).uniform(*np.transpose([amplitudes, phases])) for g in range(len(groups))]
    group = np.repeat(np.arange(len(groups)), groups)
    entries = []
    for client, g in enumerate(group):
        a, b = pairs[g]
        entry = {}
        for part, count in counts.items():
            x = stream(seed, "sines", part, client).uniform(low, high, size=(count, 1))
            entry[part] = (x, a * np.sin(x[:, 0] + b))
        entries.append(entry)
    return Federation.from_arrays(
        entries,
        classes=0,
        columns={
            "group": group,
            "amplitude": np.array([a for a, _ in pairs])[group],
            "phase": np.array([b for _, b in pairs])[group],
        },
        source={
            "name": "sines",
            "groups": groups,
            "points": points,
            "validation_points": validation_points,
            "test_points": test_points,
            "amplitude": list(amplitudes),
            "phase": list(phases),
            "domain": [low, high],
            "seed": seed,
        },
    )
