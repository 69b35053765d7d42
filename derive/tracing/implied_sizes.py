"""The sizes that a text says: those that do not follow from its equations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from derive.algebra.expr import Expr, Mul, Num, Size
from derive.errors import DeriveError
from derive.notation.operation import Operation
from derive.notation.smart_constructors import product
from derive.notation.specification import parse
from derive.notation.unparse import same


@dataclass(frozen=True)
class Said:
    """A text, and the letters whose size it may say by others."""

    text: str
    sums: tuple[str, ...]
    """Those whose size is a sum or a quotient that is rounded, or that no axis is composed of."""
    products: tuple[str, ...]
    """The others, whose size follows from that of a composite axis, as a rule."""
    rounded: tuple[str, ...] = ()
    """Those of the first that are a part of a composite axis too."""


def least(written: Callable[..., Said]) -> tuple[Operation, str]:
    """The operation, and its text with as few sizes as say it.

    ``written`` gives the text without the sizes of some letters.
    """
    every: Said = written()
    parts = (*every.products, *every.rounded)
    ways = [
        every.products,
        (),
        *([parts] if every.rounded else []),
        *((*every.products, letter) for letter in every.sums),
    ]
    errors = []
    for unsaid in ways:
        text = written(unsaid=unsaid).text
        try:
            op = parse(text)
        except DeriveError as error:
            errors.append(DeriveError(f"{error}\nwhat was read:\n{text}"))
            continue
        return _shorter(written, op, text, every, unsaid)
    raise errors[0]


def _shorter(
    written: Callable[..., Said], op: Operation, text: str, every: Said, unsaid: Sequence[str]
) -> tuple[Operation, str]:
    for letter in (*every.sums, *every.products):
        if letter in unsaid:
            continue
        less = written(unsaid=(*unsaid, letter)).text
        try:
            made = parse(less)
        except DeriveError:
            continue
        if same(_sorted(made), _sorted(op)):
            op, text, unsaid = made, less, (*unsaid, letter)
    return op, text


def _sorted(op: Operation) -> Operation:
    """The operation, its extents in an order that does not depend on what is said of them.

    Sizes that are numbers are these in the sizes of others.
    """
    numbers = {e.name: e.size for e in op.extents if isinstance(e.size, Num)}

    def plain(size: Expr) -> Expr:
        match size:
            case Size(extent):
                return numbers.get(extent) or size
            case Mul(args):
                return product(map(plain, args))
        mapped: Expr = size.map(plain)
        return mapped

    own = (e if e.size is None else replace(e, size=plain(e.size)) for e in op.extents)
    extents = tuple(sorted(own, key=lambda e: e.name))
    parts = op.inputs, op.parameters, op.equations, op.outputs, extents
    return type(op).resolved(op.name, *parts, stable=op.stable)
