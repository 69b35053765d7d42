"""Limit the CPU seconds of a block, such as the search for an explanation."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_AGAIN = 0.2
"""Seconds until the signal repeats, since a handler for all errors may swallow one."""


class _OverError(BaseException):
    """The time is over. Not an Exception, so that no ``except Exception`` catches it."""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Leave the block after this CPU time, without an error.

    Signals reach the main thread only, so other threads have no limit.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "SIGPROF"):
        yield
        return
    is_on = True

    def over(number: int, frame: Any) -> None:
        if is_on:
            raise _OverError

    def unraised(error: Any) -> None:
        # A weakref callback that is interrupted would print the error.
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
