"""What a process sets up before JAX computes anything. Importing polyfed sets up nothing."""

# jax.config has no types:
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import hashlib
import os
import platform
from contextlib import suppress
from functools import cache
from pathlib import Path

PATIENCE = {
    "--xla_cpu_collective_call_warn_stuck_timeout_seconds": 600,
    "--xla_cpu_collective_call_terminate_timeout_seconds": 7 * 24 * 3600,
}
"""By default, XLA ends the process when a device waits 40 seconds for another. With unequal clients, such waits are
normal."""


@cache
def start() -> None:
    """Make one XLA device per core, and keep compiled programs between runs. If JAX runs already, its devices stay."""
    import jax

    flags = os.environ.get("XLA_FLAGS", "")
    patient = [f"{name}={seconds}" for name, seconds in PATIENCE.items() if name not in flags]
    os.environ["XLA_FLAGS"] = " ".join([*flags.split(), *patient])
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if jax.config.values["jax_num_cpu_devices"] < 1:
        with suppress(RuntimeError):
            jax.config.update("jax_num_cpu_devices", cores)
    if jax.config.values["jax_compilation_cache_dir"] is None:
        jax.config.update("jax_compilation_cache_dir", str(cache_folder() / "compiled" / _processor()))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)  # small ones too: there are dozens
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)


def cache_folder() -> Path:
    """Where polyfed keeps what it can make again: POLYFED_CACHE, or the user's cache folder."""
    if "POLYFED_CACHE" in os.environ:
        return Path(os.environ["POLYFED_CACHE"])
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "polyfed"


def _processor() -> str:
    """A name for this kind of processor: a compiled program runs on no other."""
    features = platform.processor() + platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = cpuinfo.read_text().splitlines()[:40]
        features += "".join(line for line in lines if line.startswith(("flags", "model name", "Features")))
    return hashlib.blake2b(features.encode(), digest_size=6).hexdigest()
