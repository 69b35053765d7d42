"""Code that may be an error: what stands in a branch is computed only where that is taken."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce

from derive.algebra.recursion import Recursion
from derive.lowering.code import (
    Attribute,
    Binary,
    Code,
    Conditional,
    Dim,
    Function,
    Literal,
    Method,
    Name,
    Shape,
    Subscript,
    Unary,
    operands,
    subexpressions,
)

__all__ = ["asked_once", "is_lazy", "lazily", "may_be_no_number", "may_fail"]

_NONE = Literal("None")


def is_lazy(code: Code) -> bool:
    """Whether the code is None where it is not asked for."""
    return isinstance(code, Conditional) and code.other is _NONE


def asked_once(
    code: Code, true: frozenset[Code] = frozenset(), false: frozenset[Code] = frozenset()
) -> Code:
    """The code without questions whose answer is known where it stands."""

    def asked(key: tuple[Code, frozenset[Code], frozenset[Code]]) -> Code:
        code, true, false = key
        if not isinstance(code, Conditional):
            return code.map(lambda part: visit((part, true, false)))  # type: ignore[no-any-return]
        test = visit((code.test, true, false))
        parts = frozenset(_conjuncts(test))
        if parts <= true:
            return visit((code.then, true, false))
        if parts & false:
            return visit((code.other, true, false))
        other = false | parts if len(parts) == 1 else false
        then = visit((code.then, true | parts, false))
        return Conditional(test, then, visit((code.other, true, other)))

    visit = Recursion(asked)
    return visit((code, true, false))


def lazily(wholes: Sequence[Code], part: Code, asked: set[str]) -> Code:
    """The part as code of its own; one that may be an error is computed only where it was.

    ``asked`` are the names of such parts.
    """
    if not may_fail(part, asked):
        return part
    every = [path for whole in wholes for path in _tests(whole, part, ())]
    # One order for the same questions.
    paths = list({frozenset(path): tuple(dict.fromkeys(path)) for path in reversed(every)}.values())
    least = [p for p in reversed(paths) if not any(set(other) < set(p) for other in paths)]
    test: Code | None = None
    for path in least:
        if not path:
            return part
        own = reduce(lambda a, b: Binary("and", a, b), path)
        test = own if test is None else Binary("or", test, own)
    assert test is not None
    return Conditional(test, part, _NONE)


def _tests(code: Code, part: Code, path: tuple[Code, ...]) -> Iterator[tuple[Code, ...]]:
    """What is asked before the part is computed, for each time that it stands in the code."""
    if code is part:
        yield path
    elif isinstance(code, Conditional):
        yield from _tests(code.test, part, path)
        yield from _tests(code.then, part, (*path, *_conjuncts(code.test)))
        yield from _tests(code.other, part, (*path, Unary("not", code.test)))
    else:
        for inner in code.parts():
            yield from _tests(inner, part, path)


def _conjuncts(test: Code) -> Iterator[Code]:
    return operands(test, "and")


_AT_POSITIONS = (
    *("gather", "index_add", "index_put", "index_select", "scatter_add", "scatter_reduce"),
    *("narrow", "select", "slice_scatter"),
)


def may_fail(code: Code, asked: set[str]) -> bool:
    """Whether the code may be an error: a position out of range, or no number."""
    return may_be_no_number(code) or any(
        (isinstance(c, Method) and c.name in _AT_POSITIONS)
        or (isinstance(c, Name) and c.id in asked)
        for c in subexpressions(code)
    )


def may_be_no_number(code: Code) -> bool:
    """Whether a function of Python numbers in the code may have no value."""
    return any(isinstance(c, Function) and _has_no_value(c) for c in subexpressions(code))


def _has_no_value(code: Function) -> bool:
    """Whether Python's function may have no value; a root of sizes and a product have one."""
    if not code.name.startswith("math.") or code.name == "math.prod":
        return False
    return code.name != "math.sqrt" or any(map(_may_be_negative, code.args))


def _may_be_negative(code: Code) -> bool:
    """Whether the number is not just a product of sizes and literals."""
    if isinstance(code, Literal):
        return code.text.startswith("-")
    if isinstance(code, Attribute | Subscript | Dim | Shape):
        return False
    if isinstance(code, Binary) and code.op == "*":
        return any(map(_may_be_negative, code.parts()))
    return not (isinstance(code, Function) and code.name == "math.prod")
