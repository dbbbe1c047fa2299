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

from polyfed.core.errors import PolyfedError

PATIENCE = {
    "--xla_cpu_collective_call_warn_stuck_timeout_seconds": 600,
    "--xla_cpu_collective_call_terminate_timeout_seconds": 7 * 24 * 3600,
}
"""By default, XLA ends the process when a device waits 40 seconds for another. With unequal clients, such waits are
normal."""

LEAST_BYTES = 3 * 2**30
"""The memory that a process must be allowed to take: on two cores 2.7 GiB were too little, and 2.9 enough."""


@cache
def start() -> None:
    """Make one XLA device per core, and keep compiled programs between runs. If JAX runs already, its devices stay."""
    _check_limit()
    import jax

    flags = os.environ.get("XLA_FLAGS", "")
    patient = [f"{name}={seconds}" for name, seconds in PATIENCE.items() if name not in flags]
    os.environ["XLA_FLAGS"] = " ".join([*flags.split(), *patient])
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if jax.config.values["jax_num_cpu_devices"] < 1:
        with suppress(RuntimeError):
            jax.config.update("jax_num_cpu_devices", cores)
    if jax.config.values["jax_compilation_cache_dir"] is None:
        trim_compiled()
        jax.config.update("jax_compilation_cache_dir", str(cache_folder() / "compiled" / _processor()))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)  # small ones too: there are dozens
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)


def cache_folder() -> Path:
    """Where polyfed keeps what it can make again: POLYFED_CACHE, or the user's cache folder."""
    if "POLYFED_CACHE" in os.environ:
        return Path(os.environ["POLYFED_CACHE"])
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "polyfed"


def _check_limit() -> None:
    """Refuse a memory limit so low that XLA would abort the process, which no exception reports."""
    try:
        import resource
    except ImportError:  # a system without such limits
        return
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY and limit < LEAST_BYTES:
        raise PolyfedError(
            f"this process may take {limit / 2**30:.1f} GiB of memory (ulimit -v), and needs at least "
            f"{LEAST_BYTES / 2**30:.1f} to start"
        )


def trim_compiled(limit: int | None = None) -> int:
    """Remove the compiled programs that were not used for longest, until at most so many bytes are left.

    By default POLYFED_CACHE_LIMIT, in GiB, or 4. JAX's own limit needs another package, and a lock at every program.
    Returns the number of files that were removed.
    """
    if limit is None:
        given = os.environ.get("POLYFED_CACHE_LIMIT", "4")
        try:
            limit = int(float(given) * 2**30)
        except (ValueError, OverflowError):
            raise PolyfedError(f"POLYFED_CACHE_LIMIT must be a number of GiB, found {given!r}") from None
    found: list[tuple[float, int, Path]] = []
    for path in (cache_folder() / "compiled").rglob("*-cache"):
        with suppress(OSError):  # another process may have removed it
            about = path.stat()
            found.append((max(about.st_atime, about.st_mtime), about.st_size, path))
    left, gone = sum(size for _, size, _ in found), 0
    for _, size, path in sorted(found):
        if left <= limit:
            break
        with suppress(OSError):
            path.unlink()
            gone += 1
        left -= size
    return gone


def _processor() -> str:
    """A name for this kind of processor: a compiled program runs on no other."""
    features = platform.processor() + platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = cpuinfo.read_text().splitlines()[:40]
        features += "".join(line for line in lines if line.startswith(("flags", "model name", "Features")))
    return hashlib.blake2b(features.encode(), digest_size=6).hexdigest()
