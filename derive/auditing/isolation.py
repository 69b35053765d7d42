"""Run user code in a forked process, so that a crash or a hang becomes a finding.

A fork needs no imports or pickled arguments; results return through a pipe. The child announces
each part before it runs. A part that ends the process is thus known, and is skipped in the next
run.
"""

from __future__ import annotations

import gc
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from select import select
from typing import Any, TypeVar

import torch

T = TypeVar("T")

Enter = Callable[[str], bool]
"""Called with the name of a part before it runs; False to skip it."""

SECONDS = 120.0
_MOST_DEATHS = 6
_LEAST_SECONDS = 5.0
"""The least time limit after a part has timed out; also twice what precedes the first part."""
_SHARE = 8
"""A part may take this fraction of the time, and 4 times what precedes the first part."""
LAST = "in the search for an explanation"
"""The part that may take as long as all others."""


class EndedError(Exception):
    """The process ended before its first part, so there is no result."""


def isolated(run: Callable[[Enter], T], seconds: float = SECONDS) -> tuple[T, dict[str, str]]:
    """Run a function in a forked process; return its result and how each fatal part ended.

    Where forking is unsafe (not on Linux, or with a GPU in use), it runs in this process.
    """
    if not may_fork():
        return run(lambda part: True), {}
    ended: dict[str, str] = {}
    most = seconds
    while True:
        result, part, how, before = _fork_once(run, frozenset(ended), seconds, most)
        if not how:
            if isinstance(result, RuntimeError) and "fork" in str(result):
                # A forked process lacks the autograd threads that a GPU needs.
                return run(lambda part: True), {}
            if isinstance(result, BaseException):
                raise result
            return result, ended
        if not part or part in ended or len(ended) >= _MOST_DEATHS:
            raise EndedError(how)
        ended[part] = how
        if how.startswith("does not end"):
            seconds = max(seconds / 4, _LEAST_SECONDS, 2 * before)


def may_fork() -> bool:
    """True if forking this process is safe."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return False  # a fork lacks the threads of the process group
    return sys.platform == "linux" and not bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]


def _fork_once(
    run: Callable[[Enter], Any], left_out: frozenset[str], seconds: float, most: float
) -> Any:
    """Fork once: (result, last part, how it ended, '' if normally, seconds before the first)."""
    start = time.monotonic()
    read, write = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if not child:
        os.close(read)
        _child(run, left_out, write)
    os.close(write)
    part, result, complete, before, data = "", None, False, 0.0, b""
    until, limit = start + seconds, seconds
    while True:
        left = until - time.monotonic()
        timed_out = left <= 0 or not select([read], [], [], left)[0]
        more = b"" if timed_out else os.read(read, 1 << 16)
        if not more:
            break
        data += more
        while len(data) >= 8 and len(data) >= 8 + (size := int.from_bytes(data[:8], "big")):
            kind, value = pickle.loads(data[8 : 8 + size])
            data = data[8 + size :]
            if kind == "result":
                result, complete = value, True
                continue
            part, at = value
            before = before or at - start
            share = max(seconds / _SHARE, 4 * before, _LEAST_SECONDS)
            limit = most if part == LAST else min(seconds, share)
            until = at + most if part == LAST else min(start + seconds, at + limit)
    os.close(read)
    if timed_out:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if complete:
        return result, part, "", before
    if timed_out:
        return None, part, f"does not end within {limit:.3g} s", before
    if os.WIFSIGNALED(status):
        return None, part, f"dies ({signal.Signals(os.WTERMSIG(status)).name})", before
    return None, part, f"ends with code {os.waitstatus_to_exitcode(status)}", before


def _child(run: Callable[[Enter], Any], left_out: frozenset[str], write: int) -> None:
    """Run, send the result, and exit without any cleanup of the parent's state."""
    import faulthandler

    faulthandler.disable()  # the parent reports a crash
    gc.freeze()  # to look for garbage in what both processes share would copy its memory

    def send(kind: str, value: Any) -> None:
        data = pickle.dumps((kind, value))
        data = len(data).to_bytes(8, "big") + data
        while data:
            data = data[os.write(write, data) :]

    def enter(part: str) -> bool:
        if part in left_out:
            return False
        send("part", (part, time.monotonic()))
        return True

    code = 0
    try:
        # A fork lacks the parent's threads; a pool that waits for them would hang.
        torch.set_num_threads(1)
        try:
            result: Any = run(enter)
            pickle.dumps(result)
        except Exception as error:
            try:
                pickle.loads(pickle.dumps(error))
                result = error
            except Exception:
                result = RuntimeError(f"{type(error).__name__}: {error}")
        send("result", result)
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        code = 70
    finally:
        os._exit(code)


def none_if_raises(call: Callable[..., Any], *args: Any, **named: Any) -> Any:
    """Return the result of the call, or None if it raises, so that explanations never fail."""
    try:
        return call(*args, **named)
    except Exception:
        return None


# --------------------------------------------------------------------------------------- time limit
# Limit the CPU seconds of a block, such as the search for an explanation.

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
