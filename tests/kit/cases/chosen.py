"""Some of the cases of an operation: what is dear is tried on a typical and on an odd one."""

import re
from collections.abc import Sequence
from functools import cache

from kit.cases import CASES
from kit.cases.case import Case


def words(case: Case) -> frozenset[str]:
    """What a case is of: the words of its label, each shape one of them, and its parameters."""
    said = re.findall(r"\[.*?\]|\(.*?\)|\S+", case.label)
    return frozenset(said) | {f"{k}={v}" for k, v in case.parameters.items()}


@cache
def every(name: str) -> tuple[Case, ...]:
    """All cases of an operation, in their order."""
    return tuple(case for case in CASES if case.name == name)


def typical_and_odd(cases: Sequence[Case]) -> list[Case]:
    """The first with two axes in a tensor, and the one with the most that is not of it."""
    first = next((case for case in cases if wide(case)), cases[0])
    others = [case for case in cases if case is not first]
    odd = max(others, key=lambda case: len(words(case) - words(first)), default=None)
    return [first] if odd is None else [first, odd]


def wide(case: Case) -> bool:
    return any(x is not None and x.dim() > 1 for x in case.given)


def positive(case: Case) -> bool:
    return case.parameters.get("dim", 0) >= 0


def small(case: Case) -> bool:
    """One of each kind: at three axes or fewer."""
    return positive(case) and all(x is None or x.dim() < 4 for x in case.given)


def two(name: str) -> list[Case]:
    """A typical and an odd case of an operation, along an axis counted from the front."""
    return typical_and_odd([case for case in every(name) if positive(case)])


def two_small(name: str) -> list[Case]:
    """The same, of those whose second derivatives take little time."""
    return typical_and_odd([case for case in every(name) if small(case)] or every(name))


def least(name: str) -> list[Case]:
    """The one of the smallest tensors that have two axes, alone."""
    cases = [case for case in every(name) if small(case)] or every(name)
    return [min([case for case in cases if wide(case)] or cases, key=elements)]


def elements(case: Case) -> int:
    return sum(0 if x is None else x.numel() for x in case.given)


def each_word(cases: Sequence[Case]) -> list[Case]:
    """So many of them that each word of any is a word of one: the first that adds the most."""
    left = {word for case in cases for word in words(case)}
    found = []
    while left:
        best = max(cases, key=lambda case: len(words(case) & left))
        found.append(best)
        left -= words(best)
    return found
