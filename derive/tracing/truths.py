"""Truth tests of tensors in a person's code: those that validate, and those that choose.

    if torch.any(var < 0):
        raise ValueError

takes the branch of the examples, if the other branch raises an error in the same function. The
error may also be raised by a function that gets the answer as an argument: check(bool((var >
0).all()), "no variance"). A call then either returns what the reading does, or raises.

    if mask.sum() == 0:
        return x.sum() * 0

is both branches, torch.where(mask.sum() == 0, the result of this one, that of the other).
"""

from __future__ import annotations

import ast
import linecache
import operator
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from traceback import walk_tb
from typing import Any

import sympy
import torch
from torch.utils._pytree import tree_flatten, tree_unflatten
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.reference import PythonReferenceAnalysis

from derive.errors import DeriveError
from derive.tracing.sizes import substitute_symbols
from derive.tracing.terms import Test, as_terms


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
    """Return the truth tests of tensors in a function whose other answer raises an error."""
    found, error = _run_answering(function, tensors, ())
    made: list[Answer] = []
    others: list[Answer] = []
    for n, answer in enumerate(found if error is None else ()):
        holds = [a.holds for a in found[:n]] + [not answer.holds]
        asked, error = _run_answering(function, tensors, holds)
        raises = error is not None and len(asked) == n + 1 and _is_raised(error, answer)
        (made if raises else others).append(answer)
        if len(others) > _MOST_TESTS:
            break
    chosen = {(a.code, a.line) for a in others}
    return [a for a in made if (a.code, a.line) not in chosen]


def _run_answering(
    function: Callable[..., Any], tensors: Mapping[str, Any], holds: Sequence[bool]
) -> tuple[list[Answer], Exception | None]:
    """Run a call with its first truth tests answered by ``holds``; return all tests, the error."""
    asked: list[Answer] = []

    def answer(plain: Callable[[], bool], frame: Any, x: Any) -> bool:
        if frame.f_code.co_filename == torch._tensor_str.__file__:
            # The message of an error contains a tensor; torch tests its values to format it.
            return plain()
        n = len(asked)
        found = holds[n] if n < len(holds) else plain()
        asked.append(Answer(found, frame.f_code, frame.f_code.co_filename, frame.f_lineno))
        return found

    with _bool_replaced(answer), torch.random.fork_rng(devices=[]):
        try:
            function(**{k: t.detach().clone() for k, t in tensors.items()})
        except Exception as error:
            return asked, error
    return asked, None


@contextmanager
def _bool_replaced(answer: Callable[[Callable[[], bool], Any, Any], bool]) -> Iterator[None]:
    def asking(plain: Callable[..., Any]) -> Callable[..., Any]:
        def asked(*args: Any, **named: Any) -> Any:
            own = partial(plain, *args, **named)
            if plain in numbers and args[0].dtype != torch.bool:
                return own()
            return numbers.get(plain, bool)(answer(own, sys._getframe(1), args[0]))

        return asked

    kinds = {"item": bool, "__int__": int, "__float__": float}
    numbers: dict[Any, Any] = {getattr(torch.Tensor, n): kind for n, kind in kinds.items()}
    names = [(torch.Tensor, n) for n in ("__bool__", *kinds, "allclose", "equal")]
    of_sizes = torch.SymBool, "__bool__"
    places: list[tuple[Any, str]] = [*names, of_sizes, (torch, "allclose"), (torch, "equal")]
    before = [(own, n, vars(own).get(n), getattr(own, n)) for own, n in places]
    for own, name, _, plain in before:
        setattr(own, name, asking(plain))
    try:
        yield
    finally:
        for own, name, held, _ in before:
            if held is None:
                delattr(own, name)
            else:
                setattr(own, name, held)


def _is_raised(error: Exception, answer: Answer) -> bool:
    """True if the function itself raises the error, by a statement that only raises.

    A function that gets the answer as an argument may raise it too: check(bool((x > 0).all()),
    "..").
    """
    *_, caller, last = [None, None, *walk_tb(error.__traceback__)]
    if last is None:
        return False
    frame, line = last
    is_own = frame.f_code is answer.code
    is_told = caller is not None and caller[0].f_code is answer.code
    if not is_own and not (is_told and _is_given(frame, not answer.holds)):
        return False
    raising = statements_of(frame.f_code.co_filename, (ast.Raise, ast.Assert))
    return any(s.lineno <= line <= (s.end_lineno or s.lineno) for s in raising)


def _is_given(frame: Any, truth: bool) -> bool:
    """True if a bool is an argument of a call."""
    names = frame.f_code.co_varnames[: frame.f_code.co_argcount]
    return any(frame.f_locals.get(name) is truth for name in names)


def statements_of(file: str, kinds: tuple[type[ast.stmt], ...]) -> Sequence[ast.stmt]:
    try:
        status = os.stat(file)
        version = status.st_mtime_ns, status.st_size
    except OSError:  # no file: the cell of a notebook
        version = 0, 0
    return _statements_of_version(file, kinds, version)


@lru_cache(maxsize=256)
def _statements_of_version(
    file: str, kinds: tuple[type[ast.stmt], ...], version: tuple[int, int]
) -> Sequence[ast.stmt]:
    linecache.checkcache(file)
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return ()
    return [n for n in ast.walk(tree) if isinstance(n, kinds)]


# ------------------------------------------------------------------------------------------ choices

_MOST_TESTS = 6
"""The truth tests of one call that may choose."""
_MOST_MASKS = 32
"""The masks of one call of which it is tested whether they hold anywhere."""
_MOST_WAYS = 16
"""The ways through a call that are traced."""


def writes(x: Any) -> int:
    """The number of writes into a tensor, as far as torch counts them."""
    return 0 if x.is_inference() else int(x._version)


def on_all_paths(
    call: Callable[[], Any], answers: list[Answer], inputs: Sequence[Any]
) -> tuple[Any, bool]:
    """Return where(t, result if t, result if not t) for each truth test t of a tensor in a call.

    The second is True if there is such a test.

    A test that validates has the answer that raises no error; ``answers`` gets those of branches
    that the examples do not take.
    """
    told: dict[Any, list[bool]] = {}
    for a in answers:
        told.setdefault((a.code, a.line), []).append(a.holds)
    versions = [*map(writes, inputs)]
    ways: list[Sequence[bool]] = []
    run = partial(_run_along, call, told, inputs)

    def explored(path: Sequence[bool]) -> Any:
        ways.append(path)
        if len(ways) > _MOST_WAYS:
            raise _depends(f"there are more than {_MOST_WAYS} ways through its branches")
        made, asked = run(path)
        if len(asked) > len(path) and [*map(writes, inputs)] != versions:
            raise _depends("one of the branches changes an argument")
        if len(asked) > len(path):

            def again(flipped: frozenset[int], sums: Any) -> tuple[Any, Sequence[Test]]:
                other, own = run(path, flipped, sums)
                return other, own[len(path) :]

            # It runs again: sizes that were found equal have one symbol now.
            if (found := as_terms(again, inputs[0].fake_mode)) is not None:
                has_branches.append(True)
                return found
        for n in reversed(range(len(path), len(asked))):
            test = asked[n]
            has_branches.append(True)
            answered = [t.holds for t in asked[len(path) : n]]
            other = explored([*path, *answered, not test.holds])
            raising = [isinstance(x, _Raised) for x in (made, other)]
            if not any(raising):
                pair = (made, other) if test.holds else (other, made)
                made = _either(test.truth, *pair, inputs[0].fake_mode)
            elif not all(raising):
                made = other if raising[0] else made
                assumed = replace(test.place, holds=test.holds != raising[0])
                if assumed not in answers:
                    answers.append(assumed)
        return made

    has_branches: list[bool] = []
    made = explored(())
    if isinstance(made, _Raised):
        raise made.error
    return made, any(has_branches)


@dataclass(frozen=True)
class _Raised:
    """The result of a path whose last truth test raises an error."""

    error: Exception


def _run_along(
    call: Callable[[], Any],
    told: Mapping[Any, list[bool]],
    inputs: Sequence[Any],
    path: Sequence[bool],
    flipped: frozenset[int] = frozenset(),
    sums: Any = None,
) -> tuple[Any, list[Test]]:
    """Return (the result, the tests) with these answers; after them, the usual ones.

    That is True, or that a mask holds somewhere; it is the other about what is ``flipped``. A
    tensor that is tested again has the same answer.
    """
    asked: dict[int, Test] = {}
    last: list[Answer] = []
    left = {site: [*holds] for site, holds in told.items()}
    counts, mode = _Ranges(), inputs[0].fake_mode

    def answer(plain: Any, frame: Any, x: Any) -> bool:
        if holds := left.get((frame.f_code, frame.f_lineno)):
            return holds.pop(0)
        truth = _as_tensor(x, inputs, frame)
        if truth is not None and (implied := counts.implied(x)) is not None:
            return implied
        if truth is None or plain.func.__name__ in ("allclose", "equal"):
            return bool(plain())
        number = mode.number(truth)
        place = Answer(True, frame.f_code, frame.f_code.co_filename, frame.f_lineno)
        if number not in asked:
            mask, of_nothing = mode.values.test_of(number) or (None, False)
            alike = sum((t.mask is None) == (mask is None) for t in asked.values())
            if alike == (_MOST_TESTS if mask is None else _MOST_MASKS):
                raise _depends(f"it tests more than {alike} truths", place)
            n, about = len(asked), number if mask is None else mask
            found = path[n] if n < len(path) else of_nothing == (about in flipped)
            asked[number] = Test(truth, place, found, about, mask)
        found = asked[number].holds
        last[:] = [replace(place, holds=not found)]
        counts.add(x, found)
        return found

    if sums is not None:
        sums.asked = asked
    with _bool_replaced(answer), sums or nullcontext():
        try:
            made = call()
        except Exception as error:
            if not last or not _is_raised(error, last[0]):
                raise
            made = _Raised(error)
    return made, [*asked.values()]


def _as_tensor(x: Any, inputs: Sequence[Any], frame: Any) -> Any:
    """Return a truth without axes that is tested; None of one of sizes that masks do not select."""
    if isinstance(x, torch.Tensor):
        if x.numel() != 1:
            return None
        x = x.reshape(()) if x.dim() else x
        return x if x.dtype == torch.bool else x != 0
    if frame.f_code.co_filename.startswith(str(Path(torch.__file__).parent)):
        return None
    mode, symbols, expr = inputs[0].fake_mode, x.node.expr.free_symbols, x.node.expr
    masks = (m for m in mode.selectors.values() if m.nonzero_memo is not None)
    of_values = {m.nonzero_memo.node.expr: m.bool().sum for m in masks}
    of_values |= {u: partial(t.reshape, ()) for u, t in mode.taken.items()}
    known = {n.node.expr: n for t in inputs for n in t.shape if isinstance(n, torch.SymInt)}
    known |= {u: of_values[u]() for u in symbols & of_values.keys()}
    if symbols.isdisjoint(of_values) or not symbols <= known.keys():
        return None
    return sympy_interp(_Counts, known, expr)


_SOME = frozenset(range(64))
"""Numbers of elements for which comparisons with integers up to half of their number are asked."""


class _Ranges:
    """The values that numbers of elements may have, by the comparisons that hold or do not."""

    def __init__(self) -> None:
        self._known: dict[Any, frozenset[int]] = {}

    def implied(self, x: Any) -> bool | None:
        """Return what is known of a comparison, None if nothing."""
        number, where = self._compared(x)
        found = self._known.get(number, _SOME)
        if where is None or not (found <= where or found.isdisjoint(where)):
            return None
        return found <= where

    def add(self, x: Any, holds: bool) -> None:
        number, where = self._compared(x)
        if where is not None:
            found = self._known.get(number, _SOME)
            self._known[number] = found & where if holds else found - where

    @staticmethod
    def _compared(x: Any) -> tuple[Any, frozenset[int] | None]:
        """Return (a number of elements, its values for which the comparison holds)."""
        expr = None if isinstance(x, torch.Tensor) else x.node.expr
        if not isinstance(expr, sympy.Rel) or len(expr.free_symbols) != 1:
            return None, None
        if any(not n.is_Integer or 2 * abs(n) > len(_SOME) for n in expr.atoms(sympy.Number)):
            return None, None
        (number,) = expr.free_symbols
        return number, frozenset(n for n in _SOME if substitute_symbols(expr, {number: n}))


class _Counts(PythonReferenceAnalysis):
    """torch's arithmetic of sizes, for numbers of elements that are tensors."""

    and_ = staticmethod(torch.logical_and)
    or_ = staticmethod(torch.logical_or)
    not_ = staticmethod(torch.logical_not)
    int_truediv = staticmethod(operator.truediv)
    to_dtype = staticmethod(lambda x, *_: x)


def _depends(why: str, place: Answer | None = None) -> DeriveError:
    where = "" if place is None else f" ({place})"
    return DeriveError(
        f"the function cannot be read{where}: the control flow depends on the values of a tensor, "
        f"and {why}; pass the decision as an argument, or select values with torch.where",
        kind="data-dependent",
    )


def _either(truth: Any, one: Any, other: Any, mode: Any) -> Any:
    """Return two results as one, chosen by a truth."""
    (a, form), (b, other_form) = tree_flatten(one), tree_flatten(other)
    if form != other_form:
        raise _depends("the branches return results of different structure")
    pairs = zip(a, b, strict=True)
    made = [x if mode.number(x) == mode.number(y) else _chosen(truth, x, y) for x, y in pairs]
    return tree_unflatten(made, form)


def _chosen(truth: Any, x: Any, y: Any) -> Any:
    tensors = sum(isinstance(t, torch.Tensor) for t in (x, y))
    numbers = sum(isinstance(t, int | float) for t in (x, y))
    if not tensors or tensors + numbers < 2:
        raise _depends("the branches return different objects")
    if len({tuple(map(str, getattr(t, "shape", ()))) for t in (x, y)}) > 1:
        raise _depends("the branches return results of different shapes")
    return torch.where(truth, x, y)
