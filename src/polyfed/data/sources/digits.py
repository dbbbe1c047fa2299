"""Handwritten digits, 1797 images of 8 x 8 pixels, embedded, split over clients by any partition.

They are the test part of "Optical Recognition of Handwritten Digits" (Alpaydin and Kaynak, 1998; CC BY 4.0), as
scikit-learn has them, too. The file has a row per image: 64 pixels from 0 to 16, then the digit.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from polyfed.data.federation import Federation
from polyfed.data.option_checks import check_options, integer, option_names
from polyfed.data.partitions import partition as apply_partition
from polyfed.data.schemes import scheme_options

FILE = Path(__file__).parent / "files" / "digits.csv.xz"
# Skewed enough that clients differ, with enough rows for each of them to be tested on.
DEFAULTS: dict[str, dict[str, object]] = {
    "dirichlet": {"concentration": 0.3, "min_size": 20},
    "classes_per_client": {"k": 2},
    "power_law": {"exponent": 1.1, "classes": 2},
}


def digits(
    partition: str = "dirichlet",
    clients: int = 20,
    seed: int = 0,
    validation: float = 0.1,
    test: float = 0.2,
    **options: object,
) -> Federation:
    """Handwritten digits, 64 features in [0, 1] (float32), 10 classes; `options` go to the partition."""
    known = option_names(digits)[0] | scheme_options(partition)[0]
    check_options(f"digits with partition {partition!r}", options, known, set())
    integer("clients", clients, 1)
    table = np.loadtxt(FILE, dtype=np.uint8, delimiter=",")
    options = {**DEFAULTS.get(partition, {}), **options}
    source = {"name": "digits", "partition": partition, "clients": clients, "seed": seed}
    source |= {"validation": validation, "test": test, **options}
    source.pop("values", None)  # one per row: data, not a parameter
    return apply_partition(
        (table[:, :-1] / 16).astype(np.float32),
        table[:, -1].astype(np.int32),
        partition,
        clients,
        seed,
        validation=validation,
        test=test,
        num_classes=10,
        source=source,
        **options,
    )
