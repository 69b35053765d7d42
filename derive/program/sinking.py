"""Sinks code into branches: code that may fail or is expensive runs only where it is needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce

from derive.program.torch_ir import (
    Binary,
    Code,
    Conditional,
    Literal,
    Name,
    Unary,
    operands,
    subexpressions,
)
from derive.program.torch_ops import torch_op

_NONE = Literal("None")


def is_lazy(code: Code) -> bool:
    """True if the code is None where it is not needed."""
    return isinstance(code, Conditional) and code.other is _NONE


def under_own_tests(wholes: Sequence[Code], part: Code, asked: set[str]) -> Code:
    """Return the part as code of its own, under the tests that guarded it if it is put off.

    ``asked`` are the names of such parts.
    """
    if not is_put_off(part, asked) and not any(_stands_in_for(part, whole) for whole in wholes):
        return part
    every = [path for whole in wholes for path in _guarding_tests(whole, part, ())]
    # One order for equal sets of tests.
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


def _guarding_tests(code: Code, part: Code, path: tuple[Code, ...]) -> Iterator[tuple[Code, ...]]:
    """Yield the tests that guard each occurrence of the part in the code."""
    if code is part:
        yield path
    elif isinstance(code, Conditional):
        yield from _guarding_tests(code.test, part, path)
        yield from _guarding_tests(code.then, part, (*path, *operands(code.test, "and")))
        yield from _guarding_tests(code.other, part, (*path, Unary("not", code.test)))
    else:
        for inner in code.parts():
            yield from _guarding_tests(inner, part, path)


def may_fail(code: Code, asked: set[str]) -> bool:
    """True if the code may raise an error: a position or a number out of range."""
    return _is_limited(code) or any(
        torch_op(c).at_positions or (isinstance(c, Name) and c.id in asked)
        for c in subexpressions(code)
    )


def is_put_off(code: Code, asked: set[str]) -> bool:
    """True if the code should run only where it is needed."""
    return may_fail(code, asked) or _reduces_or_contracts(code)


def _reduces_or_contracts(code: Code) -> bool:
    """True if the code has a reduction or a contraction, which costs a pass over its operands."""
    ops = ((c, torch_op(c)) for c in subexpressions(code))
    return any(op.keeps or op.contracts or (isinstance(c, Binary) and c.op == "@") for c, op in ops)


def _is_limited(code: Code) -> bool:
    return any(torch_op(c).limited for c in subexpressions(code))


def _stands_in_for(part: Code, whole: Code) -> bool:
    """True if the part is the fallback for numbers that a cheaper kernel does not support."""
    return any(
        isinstance(c, Conditional) and _is_limited(c.then) and part in subexpressions(c.other)
        for c in subexpressions(whole)
    )
