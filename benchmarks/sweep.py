"""What `polyfed bench sweep` measures, a line of JSON a row, for machines without the libraries of the command line.

PYTHONPATH=src python benchmarks/sweep.py
"""

from __future__ import annotations

import json

import jax

from polyfed.bench.sweep import bench_sweep
from polyfed.core.startup import start


def main() -> None:
    start()
    print(jax.devices()[0].device_kind)
    for cost in bench_sweep(candidates=24, repeat=2):
        print(json.dumps(cost.as_dict()), flush=True)


if __name__ == "__main__":
    main()
