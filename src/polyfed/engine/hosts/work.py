"""A worker: a process that a guard has started, and that does its part of a simulation on several hosts."""

from __future__ import annotations

import os
import re
import sys
import threading
import traceback
from collections.abc import Callable

import jax

from polyfed.core.errors import LOST, USER_ERROR, PolyfedError
from polyfed.core.worker import Worker
from polyfed.engine.hosts.exchange import connect

CUT_OFF = 75
"""A worker's exit code where JAX failed, perhaps because another process was lost."""


def work(worker: Worker, command: Callable[[], None]) -> None:
    """Run a command together with the other workers."""
    sys.stdout, sys.stderr = (os.fdopen(os.dup(number), "w", buffering=1) for number in (1, 2))
    for number in (1, 2):  # what still arrives there is written by C++ libraries
        os.dup2(worker.log, number)
    threading.Thread(target=_end_with_guard, args=(worker.lifeline,), daemon=True).start()
    code = _exit_code(worker, command)
    if code:
        sys.stdout.flush()
        os._exit(code)  # JAX would say goodbye to the others, and wait for them


def _exit_code(worker: Worker, command: Callable[[], None]) -> int:
    try:
        connect(worker.coordinator, worker.count, worker.index)
        command()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except PolyfedError as error:
        print(f"error: {error}", file=sys.stderr)
        return USER_ERROR
    except BaseException as error:
        if not _is_from_jax(error):
            traceback.print_exc()
            return 1
        os.write(2, traceback.format_exc().encode())  # to the log: the guards find out whether a process was lost
        return CUT_OFF
    return 0


def _is_from_jax(error: BaseException) -> bool:
    """Whether JAX failed to exchange or to compute. It says so by its own type, or by a status before the message."""
    status = isinstance(error, ValueError) and re.match("[A-Z_]+: ", str(error)) is not None
    return status or isinstance(error, jax.errors.JaxRuntimeError)


def _end_with_guard(lifeline: int) -> None:
    os.read(lifeline, 1)
    os._exit(LOST)
