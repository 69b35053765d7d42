"""A time limit on a part of the work, in CPU seconds: an explanation may take too long."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_AGAIN = 0.2
"""Seconds until the next signal: code that catches all errors may swallow one."""


class _OverError(BaseException):
    """The time is over; no ``except Exception`` catches it."""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Leaves the block after so many seconds of CPU time, without an error.

    Signals reach the main thread alone, so in another one there is no limit.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "SIGPROF"):
        yield
        return
    is_on = True

    def over(number: int, frame: Any) -> None:
        if is_on:
            raise _OverError

    def unraised(error: Any) -> None:
        # A weak reference that is dropped meanwhile would print it.
        if error.exc_type is not _OverError:
            hook(error)

    hook, sys.unraisablehook = sys.unraisablehook, unraised
    before = signal.signal(signal.SIGPROF, over)
    signal.setitimer(signal.ITIMER_PROF, seconds, _AGAIN)
    try:
        yield
    except _OverError:
        pass
    finally:
        is_on = False
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
        sys.unraisablehook = hook
