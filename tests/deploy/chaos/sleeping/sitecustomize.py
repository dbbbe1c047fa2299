"""Sleep under libfaketime: where it leaves the steady clock alone, it refuses the call that `time.sleep` makes."""

import select
import time


def sleep(seconds: float) -> None:
    select.select([], [], [], max(0.0, seconds))


time.sleep = sleep
