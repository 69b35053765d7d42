"""Branches that need no tree of choices: each leaves out a term of a sum, or nothing.

    for m in masks:
        if m.any():
            loss = loss + x[m].mean()

has 2^k ways through k branches, but each only adds a term:

    loss = loss + where(any m, x[m].mean(), 0)

A way is compared with that of all branches, where the term goes: every one of up to 4 branches; of
more, those without one branch, and without the first two, the first three and so on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_leaves

_WRITES = frozenset("add_ __iadd__ sub_ __isub__".split())
_ADDED = _WRITES | frozenset("add __add__ __radd__ sub __sub__".split())


@dataclass(frozen=True)
class Test:
    """A truth that is tested, where, the answer, and the number of what it is about."""

    truth: Any
    place: Any
    holds: bool
    about: int
    mask: int | None
    """The mask of which it is tested whether it holds anywhere."""


@dataclass(frozen=True)
class _Sum:
    """An addition of a call: the numbers of the result and of what it adds."""

    made: int
    given: tuple[int, ...]
    is_difference: bool
    is_write: bool


@dataclass(frozen=True)
class _Choice:
    """The n-th addition is left out: argument ``place`` of the ``first`` one stays."""

    n: int
    first: int
    place: int


class Sums(TorchFunctionMode):
    """The additions of a call in order; some are chosen by a test, with what it is about."""

    def __init__(self, mode: Any, chosen: Mapping[int, tuple[_Choice, int]] | None = None) -> None:
        self.found: list[_Sum] = []
        self.asked: Mapping[int, Test] = {}
        self.left = dict(chosen or {})
        """What is not chosen yet; in the end, what could not be."""
        self._mode = mode
        self._args: list[Sequence[Any]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name not in _ADDED or len(args) != 2 or kwargs:
            return func(*args, **kwargs or {})
        n, number = len(self.found), self._mode.number
        choice, about = self.left.get(n, (None, None))
        test = next((t for t in self.asked.values() if t.about == about), None)
        if choice is not None and test is not None and choice.first == n:
            if isinstance(args[term := 1 - choice.place], torch.Tensor):
                args = [*args[:term], _either(test, args[term], 0), *args[term + 1 :]]
                choice = None
                del self.left[n]
        given = tuple(map(number, args))
        self._args.append(args)
        made = func(*args)
        self.found.append(_Sum(number(made), given, "sub" in name, name in _WRITES))
        if choice is not None and test is not None:
            kept = self._args[choice.first][choice.place]
            if number(kept) == self.found[choice.first].given[choice.place]:
                made = _either(test, made, kept)
                del self.left[n]
        return made


def _either(test: Test, value: Any, rest: Any) -> Any:
    """Return the value where a test has its answer, else the rest."""
    return torch.where(test.truth, *((value, rest) if test.holds else (rest, value)))


def as_terms(run: Callable[..., tuple[Any, Sequence[Test]]], mode: Any) -> Any:
    """Return the result of a call whose tests each leave out a term or nothing; None of others.

    ``run(flipped, sums)`` returns the result and the tests, with the other answer to some.
    """
    _, asked = run(frozenset(), None)
    answers = dict.fromkeys((frozenset(), frozenset(t.about for t in asked if t.mask is None)))
    tried = (_as_terms(lambda own, sums, a=a: run(a ^ own, sums), mode) for a in answers)
    return next((made for made in tried if made is not None), None)


def _as_terms(run: Callable[..., tuple[Any, Sequence[Test]]], mode: Any) -> Any:
    sums = Sums(mode)
    made, asked = run(frozenset(), sums)
    tests = {t.about: t for t in asked}
    chosen: dict[int, _Choice] = {}

    def is_alike(other: Any, own: Sequence[int], choices: Iterable[_Choice]) -> bool:
        left = {sums.found[c.n].made: sums.found[c.first].given[c.place] for c in choices}
        masks = [m for about in own if (m := tests[about].mask) is not None]
        return _are_alike(made, other, masks, left, mode)

    for own in _left_out([*tests]):
        other, asked = run(frozenset(own), None)
        if not {t.about for t in asked} <= tests.keys():
            return None
        if is_alike(other, own, [chosen[about] for about in own if about in chosen]):
            continue
        if len(own) > 1:
            return None
        choices = _choices(sums.found, made, other, mode)
        found = next((c for c in choices if is_alike(other, own, [c])), None)
        if found is None or found.n in {c.n for c in chosen.values()}:
            return None
        chosen[own[0]] = found
    if not chosen:
        return made
    joined = Sums(mode, {c.n: (c, about) for about, c in chosen.items()})
    made, _ = run(frozenset(), joined)
    return None if joined.left else made


_ALL = 4
"""The tests of which all ways are compared."""


def _left_out(every: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield the tests that have the other answer in each way, one alone first."""
    yield from combinations(every, 1)
    for n in range(2, len(every) + 1):
        yield from combinations(every, n) if len(every) <= _ALL else [(*every[:n],)]


_MOST = 3
"""The additions of one term, as of loss + 1 - x."""


def _choices(found: Sequence[_Sum], made: Any, other: Any, mode: Any) -> Iterator[_Choice]:
    """Yield the additions that only the first of two results has, and what may stay of each.

    Without the term, the dtype and the sizes stay, as those of a sum that starts at the number 0.
    """
    kinds, numbers = mode.values.kinds, mode.values.numbers
    leaves = (map(mode.number, tree_leaves(x)) for x in (made, other))
    mine, others = map(mode.values.reached, leaves)
    for n, x in enumerate(found):
        for first, place in _starts(found, n) if x.made in mine - others else ():
            kept = found[first].given[place]
            is_start = numbers.get(kept) == 0 and not kinds[x.made][1]
            is_term = first == n and x.given[1 - place] in kinds
            if (is_start or kinds.get(kept) == kinds[x.made]) and (is_term or not x.is_write):
                yield _Choice(n, first, place)


def _starts(found: Sequence[_Sum], n: int, most: int = _MOST) -> Iterator[tuple[int, int]]:
    """Yield the arguments that an addition, and those before it in a chain, add to."""
    for place in (0,) if found[n].is_difference or found[n].is_write else (0, 1):
        yield n, place
        before = [k for k in range(n) if found[k].made == found[n].given[place]]
        if before and most > 1 and not found[before[-1]].is_write:
            yield from _starts(found, before[-1], most - 1)


def _are_alike(
    one: Any, other: Any, masks: Sequence[int], left: Mapping[int, int], mode: Any
) -> bool:
    """True if two results are equal where masks hold nowhere, with values in place of some."""
    (a, form), (b, other_form) = tree_flatten(one), tree_flatten(other)
    shapes = [[str(tuple(getattr(x, "shape", ()))) for x in leaves] for leaves in (a, b)]
    if form != other_form or shapes[0] != shapes[1]:
        return False
    pair = (map(mode.number, leaves) for leaves in (a, b))
    counts = (mode.selectors[m].nonzero_memo for m in masks if m in mode.selectors)
    symbols = [n.node.expr for n in counts if n is not None]
    alike: bool = mode.values.are_alike(*pair, masks, symbols, left)
    return alike
