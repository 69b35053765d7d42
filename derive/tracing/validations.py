"""Recognize branches on the values of tensors that only validate them.

    if torch.any(var < 0):
        raise ValueError

takes the branch of the examples, if the other branch raises an error in the same function. The
error may also be raised by a function that gets the answer as an argument: check(bool((var >
0).all()), "no variance"). A call then either returns what the reading does, or raises. A branch for
any other purpose is an error.
"""

from __future__ import annotations

import ast
import linecache
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Answer:
    """A truth test of a tensor: its result in the examples, and where it is."""

    holds: bool
    code: Any
    file: str
    line: int

    def __str__(self) -> str:
        text = linecache.getline(self.file, self.line).strip().rstrip(":")
        return f"{Path(self.file).name}:{self.line}: {text}"


def validations(function: Callable[..., Any], tensors: Mapping[str, Any]) -> list[Answer]:
    """Return the truth tests of tensors in a function; [] if one is more than a validation."""
    found, error = _run_answering(function, tensors, ())
    if error is not None:
        return []
    for n, answer in enumerate(found):
        holds = [a.holds for a in found[:n]] + [not answer.holds]
        asked, error = _run_answering(function, tensors, holds)
        if error is None or len(asked) != n + 1 or not _is_raised(error, answer):
            return []
    return found


def _run_answering(
    function: Callable[..., Any], tensors: Mapping[str, Any], holds: Sequence[bool]
) -> tuple[list[Answer], Exception | None]:
    """Run a call with its first truth tests answered by ``holds``; return all tests, the error."""
    import torch

    asked: list[Answer] = []
    plain = torch.Tensor.__bool__

    def answer(tensor: Any, frame: Any) -> bool:
        if frame.f_code.co_filename == torch._tensor_str.__file__:
            # The message of an error contains a tensor; torch tests its values to format it.
            return bool(plain(tensor))
        n = len(asked)
        found = holds[n] if n < len(holds) else bool(plain(tensor))
        asked.append(Answer(found, frame.f_code, frame.f_code.co_filename, frame.f_lineno))
        return found

    with _bool_replaced(answer), torch.random.fork_rng(devices=[]):
        try:
            function(**{k: t.detach().clone() for k, t in tensors.items()})
        except Exception as error:
            return asked, error
    return asked, None


@contextmanager
def replayed(answers: Sequence[Answer]) -> Iterator[None]:
    """Give the same truth tests the same answers, on tensors without data."""
    import torch

    plain, left = torch.Tensor.__bool__, list(answers)

    def answer(tensor: Any, frame: Any) -> bool:
        if left and left[0].code is frame.f_code and left[0].line == frame.f_lineno:
            return left.pop(0).holds
        return bool(plain(tensor))

    with _bool_replaced(answer):
        yield


@contextmanager
def _bool_replaced(answer: Callable[[Any, Any], bool]) -> Iterator[None]:
    import torch

    own = "__bool__" in vars(torch.Tensor)
    before = torch.Tensor.__bool__

    def asked(tensor: Any) -> bool:
        return answer(tensor, sys._getframe(1))

    torch.Tensor.__bool__ = asked  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        if own:
            torch.Tensor.__bool__ = before  # type: ignore[method-assign]
        else:
            del torch.Tensor.__bool__


def _is_raised(error: Exception, answer: Answer) -> bool:
    """True if the function itself raises the error, by a statement that only raises.

    A function that gets the answer as an argument may raise it too: check(bool((x > 0).all()),
    "..").
    """
    places = []
    traceback = error.__traceback__
    while traceback is not None:
        places.append(traceback)
        traceback = traceback.tb_next
    *_, caller, last = [None, None, *places]
    if last is None:
        return False
    frame = last.tb_frame
    is_own = frame.f_code is answer.code
    is_told = caller is not None and caller.tb_frame.f_code is answer.code
    if not is_own and not (is_told and _is_given(frame, not answer.holds)):
        return False
    file, line = frame.f_code.co_filename, last.tb_lineno
    return any(first <= line <= end for first, end in _raising(file, version_of(file)))


def _is_given(frame: Any, truth: bool) -> bool:
    """True if a bool is an argument of a call."""
    names = frame.f_code.co_varnames[: frame.f_code.co_argcount]
    return any(frame.f_locals.get(name) is truth for name in names)


def version_of(file: str) -> tuple[int, int]:
    """Return (time, size) of a file, which identify its version."""
    try:
        status = os.stat(file)
    except OSError:  # no file: the cell of a notebook
        return 0, 0
    return status.st_mtime_ns, status.st_size


@lru_cache(maxsize=64)
def _raising(file: str, version: tuple[int, int]) -> Sequence[tuple[int, int]]:
    """Return the lines of statements that raise in this version of a file."""
    linecache.checkcache(file)
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return ()
    found = (n for n in ast.walk(tree) if isinstance(n, ast.Raise | ast.Assert))
    return [(n.lineno, n.end_lineno or n.lineno) for n in found]
