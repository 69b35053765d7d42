"""Read spec files in a separate process, so that their side effects do not reach this one.

A Python spec may raise any error, exit, or never end. The reader waits up to the limit and reports
what happened.
"""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from pickle import PicklingError
from time import monotonic
from typing import TYPE_CHECKING

from derive.budget import SECONDS
from derive.command.parallel import copies, end_with_parent
from derive.errors import DeriveError, DeriveWarning, SpecError

if TYPE_CHECKING:
    from derive.notation.operation import Operation

_ENDLESS = 1e6
"""Seconds that count as no limit, but that the system accepts."""

_Told = tuple[int, int, "tuple[Operation, ...] | Exception", list[str]]
"""(process id, file number, operations or error, warnings)."""


def read_all(
    paths: Sequence[Path], limit: float = SECONDS
) -> Iterator[tuple[Path, tuple[Operation, ...]]]:
    """Yield (file, operations) for each file, as soon as it is read; the first error is raised."""
    if not paths:
        return
    with _reader(paths, limit) as (process, pipe):
        for n, path in enumerate(paths):
            found, warned = _answer(process, pipe, n, path, limit)
            for text in warned:
                warnings.warn(text, DeriveWarning, stacklevel=2)
            if isinstance(found, Exception):
                raise found
            yield path, found


@contextmanager
def _reader(paths: Sequence[Path], limit: float) -> Iterator[tuple[BaseProcess, Connection]]:
    """Start the reading process; afterwards kill it and all its children."""
    context = copies()
    mine, its = context.Pipe(duplex=False)
    process = context.Process(target=_reader_main, args=(paths, its, limit), daemon=True)  # type: ignore[attr-defined]
    with warnings.catch_warnings():
        # The fork lacks the parent's other threads, but needs none of them.
        warnings.simplefilter("ignore", DeprecationWarning)
        process.start()
    its.close()
    try:
        with suppress(EOFError):
            mine.recv()
        yield process, mine
    finally:
        mine.close()
        if process.pid is not None and hasattr(os, "killpg"):
            with suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
        process.kill()
        process.join()


def _answer(
    process: BaseProcess, pipe: Connection, n: int, path: Path, limit: float
) -> tuple[tuple[Operation, ...] | Exception, list[str]]:
    """Wait for the answer about one file; raise a SpecError if there is none."""
    end = monotonic() + limit
    try:
        while pipe.poll(None if limit > _ENDLESS else max(0, end - monotonic())):
            told: _Told = pipe.recv()
            if told[:2] == (process.pid, n):
                return told[2:]
    except (EOFError, OSError):
        process.join(1)
        code = process.exitcode
        how = f"by signal {-code}" if code is not None and code < 0 else f"with exit code {code}"
        raise SpecError(
            f"{path}: the spec ended the process that reads it, {how}; a spec may only define "
            "operations",
            kind="spec-module",
        ) from None
    raise SpecError(
        f"{path}: the spec was stopped after {limit:g} s; a spec should only define operations. "
        "--spec-timeout sets the limit",
        kind="spec-module",
    )


def _reader_main(paths: Sequence[Path], pipe: Connection, limit: float) -> None:
    """In the reading process: read each file and send the result."""
    from derive.notation.specification import read

    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(os, "setpgid"):
        os.setpgid(0, 0)
    # The output of a spec goes to stderr.
    with suppress(OSError):
        os.dup2(2, 1)
    sys.stdout = sys.stderr
    pipe.send(os.getpid())
    for n, path in enumerate(paths):
        if limit < _ENDLESS and hasattr(signal, "setitimer"):
            # The alarm ends code that blocks all threads, if the parent has died.
            signal.setitimer(signal.ITIMER_REAL, limit + 1)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", DeriveWarning)
            found: tuple[Operation, ...] | Exception
            try:
                found = read(path)
            except (DeriveError, OSError) as error:
                found = error
        warned = [str(w.message) for w in caught if issubclass(w.category, DeriveWarning)]
        _send_result(pipe, n, path, found, warned)


def _send_result(
    pipe: Connection,
    n: int,
    path: Path,
    found: tuple[Operation, ...] | Exception,
    warned: list[str],
) -> None:
    """Send the result for one file; exit if the pipe is broken."""
    try:
        try:
            pipe.send((os.getpid(), n, found, warned))
        except (PicklingError, ValueError, TypeError, AttributeError) as error:
            text = f"{path}: its operations cannot be sent to another process: {error}"
            pipe.send((os.getpid(), n, SpecError(text, kind="spec-module"), warned))
    except OSError:
        os._exit(1)
