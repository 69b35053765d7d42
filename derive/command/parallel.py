"""The code of many operations, on all processor cores."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor

from derive.pipeline import source
from derive.spec.operation import Operation

__all__ = ["sources"]

_WORTH_WHILE = 24
"""Fewer operations are derived sooner than processes have started."""


def sources(operations: Sequence[Operation]) -> Iterator[str]:
    """The source of each operation, in order; the first error ends it."""
    processes = min(_cores(), len(operations) // (_WORTH_WHILE // 2))
    if processes < 2:
        yield from map(source, operations)
        return
    chunk = max(1, len(operations) // (4 * processes))
    with ProcessPoolExecutor(processes) as pool:
        yield from pool.map(source, operations, chunksize=chunk)


def _cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
