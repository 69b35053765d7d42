"""Choices by a test: those that bounds of parameters decide, and the order of the others.

    a if 0 < delta else b  =  a, where a call with delta <= 0 is an error

Choices by one test stand in a row, as one if statement may hold them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from itertools import compress

from derive.algebra.expr import MIRRORED
from derive.algebra.inequalities import decided
from derive.program.cse import Line
from derive.program.dataflow import live
from derive.program.torch_ir import Binary, Code, Conditional, Literal, Name, Unary, names_in

UNSET = Literal("unset")
"""The other branch of a choice whose name is read by choices of its own branch alone."""

Bounds = Mapping[str, Sequence[tuple[str, Fraction]]]
"""Parameter -> its bounds, such as (">", 0)."""


def without_decided_tests(
    lines: Sequence[Line], bounds: Bounds, results: Collection[str]
) -> list[Line]:
    """Return the lines without decided choices, and without lines that no result reads then."""
    known: dict[str, bool] = {}
    made = []
    for line in lines:
        code = _simplified(line.code, bounds, known)
        truth = _truth(code, bounds, known)
        known.pop(line.name, None)
        if truth is not None:
            known[line.name] = truth
        made.append(line.having(code))
    return made if made == [*lines] else [*compress(made, live(made, results))]


def _simplified(code: Code, bounds: Bounds, known: Mapping[str, bool]) -> Code:
    if isinstance(code, Conditional):
        truth = _truth(code.test, bounds, known)
        if truth is not None:
            return _simplified(code.then if truth else code.other, bounds, known)
    made: Code = code.map(lambda part: _simplified(part, bounds, known))
    return made


def _truth(test: Code, bounds: Bounds, known: Mapping[str, bool]) -> bool | None:
    """Return the value of a test of parameters, or None if it is not decided."""
    match test:
        case Name(name):
            return known.get(name)
        case Unary("not", operand):
            truth = _truth(operand, bounds, known)
            return None if truth is None else not truth
        case Binary(sign, Name(name), Literal(words)) if sign in MIRRORED and name in bounds:
            with suppress(ValueError):  # inf
                return decided(sign, Fraction(words), bounds[name])
        case Binary(sign, Literal() as left, Name() as right) if sign in MIRRORED:
            return _truth(Binary(MIRRORED[sign], right, left), bounds, known)
    return None


def choices_in_a_row(lines: Sequence[Line]) -> list[Line]:
    """Return the lines with each choice right before the next one by its test, if it may move."""
    made: list[Line] = []
    for line in reversed(lines):
        at, test, assigned = 0, branches(line.code)[0], {*line.name.split(", ")}
        for n, other in enumerate(made if test is not None else ()):
            if other.needs == line.needs and branches(other.code)[0] is test:
                at = n
                break
            names = {*other.name.split(", ")}
            if assigned & {*names, *names_in(other.code)} or names & {*names_in(line.code)}:
                break
        made.insert(at, line)
    return made


def branches(code: Code) -> tuple[Code | None, Code, Code]:
    """Return (test, then, other) of a choice, the test without a "not"; of other code, no test."""
    match code:
        case Conditional(Unary("not", test), then, other):
            return test, other, then
        case Conditional(test, then, other):
            return test, then, other
    return None, code, code
