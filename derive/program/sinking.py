"""Code that may be an error or takes long: what stands in a branch is computed only where taken."""

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
    """Whether the code is None where it is not asked for."""
    return isinstance(code, Conditional) and code.other is _NONE


def lazily(wholes: Sequence[Code], part: Code, asked: set[str]) -> Code:
    """The part as code of its own; one that is put off is computed only where it was.

    ``asked`` are the names of such parts.
    """
    if not is_put_off(part, asked) and not any(_stands_in_for(part, whole) for whole in wholes):
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
        yield from _tests(code.then, part, (*path, *operands(code.test, "and")))
        yield from _tests(code.other, part, (*path, Unary("not", code.test)))
    else:
        for inner in code.parts():
            yield from _tests(inner, part, path)


def may_fail(code: Code, asked: set[str]) -> bool:
    """Whether the code may be an error: a position or a number out of range."""
    return _is_limited(code) or any(
        torch_op(c).at_positions or (isinstance(c, Name) and c.id in asked)
        for c in subexpressions(code)
    )


def is_put_off(code: Code, asked: set[str]) -> bool:
    """Whether the code is computed only where it is asked for."""
    return may_fail(code, asked) or _sums(code)


def _sums(code: Code) -> bool:
    """Whether the code sums or multiplies out, which takes a pass over more than it gives."""
    ops = ((c, torch_op(c)) for c in subexpressions(code))
    return any(op.keeps or op.contracts or (isinstance(c, Binary) and c.op == "@") for c, op in ops)


def _is_limited(code: Code) -> bool:
    return any(torch_op(c).limited for c in subexpressions(code))


def _stands_in_for(part: Code, whole: Code) -> bool:
    """Whether the part is for numbers that a kernel is not for: it costs more than the kernel."""
    return any(
        isinstance(c, Conditional) and _is_limited(c.then) and part in subexpressions(c.other)
        for c in subexpressions(whole)
    )
