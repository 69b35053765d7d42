"""What the examples share as programs: the extra they need, and how they end."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["ExampleError", "extra", "positive", "run"]

_INTERRUPTED = 130  # as a shell reports a program that SIGINT ended


class ExampleError(Exception):
    """Ends an example with a message; ``code`` is its exit code."""

    def __init__(self, message: str, code: int = 2) -> None:
        super().__init__(message)
        self.code = code


@contextmanager
def extra() -> Iterator[None]:
    """Imports within it are those of the ``examples`` extra; a missing one ends the program."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("derive"):
            raise
        library = error.name.partition(".")[0]
        print(
            f"the examples need {library}: pip install 'derive-backward[examples]'", file=sys.stderr
        )
        raise SystemExit(2) from None


with extra():
    import torch


@contextmanager
def _one_thread() -> Iterator[None]:
    """Torch computes in one thread: batches this small are not worth sharing among several."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def positive(text: str) -> int:
    """The whole number above zero that an argument gives."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive integer")
    return int(text)


def run(name: str, main: Callable[[], None]) -> int:
    """The exit code of main; what ends it early is told on stderr."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    try:
        with _one_thread():
            main()
    except ExampleError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return error.code
    except OSError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{name}: interrupted", file=sys.stderr)
        return _INTERRUPTED
    return 0
