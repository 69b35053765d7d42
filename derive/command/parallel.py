"""Run one task for many operations, on all cores."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing.context import BaseContext
from typing import TypeVar

from derive.errors import DeriveError

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def each(
    task: Callable[[_Item], _Result],
    items: Sequence[_Item],
    name: Callable[[_Item], str],
    share: int,
) -> Iterator[_Result | DeriveError]:
    """Yield the task's result or error for each item, in order.

    One worker is started per ``share`` items, since fewer finish before a worker has started.
    """
    told = partial(_result_or_error, task, name)
    processes = min(_cores(), len(items) // share)
    if processes < 2:
        yield from map(told, items)
        return
    with _Pool(processes) as pool:
        tasks = [pool.begun(told, item) for item in items]
        for item, future in zip(items, tasks, strict=True):
            try:
                yield future.result()
            except BrokenProcessPool:
                yield _run_alone(told, item, name)


def _run_alone(
    told: Callable[[_Item], _Result | DeriveError], item: _Item, name: Callable[[_Item], str]
) -> _Result | DeriveError:
    """Run an item again in a worker of its own, after some item killed the pool."""
    with _Pool(1) as pool:
        try:
            return pool.begun(told, item).result()
        except BrokenProcessPool:
            return DeriveError(
                f"{name(item)}: its worker process was killed from outside, or by the system for "
                "lack of memory",
                kind="over-limit",
            )


def _result_or_error(
    task: Callable[[_Item], _Result], name: Callable[[_Item], str], item: _Item
) -> _Result | DeriveError:
    """Return the result, or the error as a DeriveError."""
    try:
        return task(item)
    except DeriveError as error:
        return error
    except MemoryError:
        return DeriveError(f"{name(item)}: out of memory", kind="over-limit")
    except Exception as error:
        found = f"{type(error).__name__}: {error}".strip(": ")
        return DeriveError(
            f"{name(item)}: internal error of derive, please report it: {found}",
            kind="internal-error",
        )


class _Pool(ProcessPoolExecutor):
    """A process pool that ends with its parent, and at once on an interrupt."""

    def __init__(self, processes: int) -> None:
        self._others = multiprocessing.active_children()
        super().__init__(processes, mp_context=copies(), initializer=_init_worker)

    def begun(self, task: Callable[[_Item], _Result], item: _Item) -> Future[_Result]:
        """Submit a task; if the pool is broken, return a failed future."""
        try:
            return self.submit(task, item)
        except BrokenProcessPool as error:
            failed: Future[_Result] = Future()
            failed.set_exception(error)
            return failed

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> bool | None:
        if kind is not None:
            self.shutdown(wait=False, cancel_futures=True)
            for child in multiprocessing.active_children():
                if child not in self._others:
                    child.kill()
        super().__exit__(kind, *rest)  # type: ignore[arg-type]
        return None


def copies() -> BaseContext:
    """Return how processes start: fork on Linux, which keeps imported modules, else spawn."""
    return multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")


def _init_worker() -> None:
    """Initialize a worker: one torch thread, and Ctrl-C left to the parent."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()


def end_with_parent() -> None:
    """End this process as soon as its parent ends."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_outlive, args=(parent.join,), daemon=True).start()


def _outlive(wait: Callable[[], None]) -> None:
    wait()
    os._exit(1)


def _cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
