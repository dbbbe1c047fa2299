"""Benchmarks of this machine: everything that is compared is measured in one run, in turns."""

from polyfed.bench.convex import bench_convex
from polyfed.bench.engine import bench_engine
from polyfed.bench.growth import bench_growth
from polyfed.bench.methods import bench_methods
from polyfed.bench.neural import bench_neural
from polyfed.bench.scale import bench_scale, bench_writers

__all__ = [
    "bench_convex",
    "bench_engine",
    "bench_growth",
    "bench_methods",
    "bench_neural",
    "bench_scale",
    "bench_writers",
]
