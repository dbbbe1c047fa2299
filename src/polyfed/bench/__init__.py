"""`polyfed bench`: measurements of this machine. Everything that is compared is measured in one run, in turns.

engine.py, convex.py, methods.py, neural.py, scale.py, growth.py, sweep.py, deploy.py   what each command measures
work.py, loops.py   a round that several frameworks run, and their processes
peers/              the scripts that PyTorch's and FedJAX's Pythons run
compilations.py     how often XLA compiles
bare_app/           a Flower app that does nothing
bare_flower         Flower's own programs on loopback, with that app
"""

from polyfed.bench.convex import bench_convex
from polyfed.bench.engine import bench_engine
from polyfed.bench.growth import bench_growth
from polyfed.bench.methods import bench_methods
from polyfed.bench.neural import bench_neural
from polyfed.bench.scale import bench_scale, bench_writers
from polyfed.bench.sweep import bench_sweep

__all__ = [
    "bench_convex",
    "bench_engine",
    "bench_growth",
    "bench_methods",
    "bench_neural",
    "bench_scale",
    "bench_sweep",
    "bench_writers",
]
