"""Drop sizes from a text that follow from its equations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from derive.algebra.expr import Expr, Mul, Num, Size
from derive.errors import DeriveError
from derive.notation.operation import Operation
from derive.notation.smart_constructors import product
from derive.notation.specification import parse
from derive.notation.unparse import same_operation


@dataclass(frozen=True)
class StatedSizes:
    """A text, and the letters whose sizes it may state in terms of others."""

    text: str
    sums: tuple[str, ...]
    """Letters whose size is a sum or a rounded quotient, or that are part of no composite axis."""
    products: tuple[str, ...]
    """The other letters; their size usually follows from that of a composite axis."""
    rounded: tuple[str, ...] = ()
    """Letters in ``sums`` that are part of a composite axis too."""


def with_fewest_sizes(written: Callable[..., StatedSizes]) -> tuple[Operation, str]:
    """Return the operation, and its text with as few stated sizes as determine it.

    ``written`` returns the text without the sizes of some letters.
    """
    every: StatedSizes = written()
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
        return _drop_implied_sizes(written, op, text, every, unsaid)
    raise errors[0]


def _drop_implied_sizes(
    written: Callable[..., StatedSizes],
    op: Operation,
    text: str,
    every: StatedSizes,
    unsaid: Sequence[str],
) -> tuple[Operation, str]:
    for letter in (*every.sums, *every.products):
        if letter in unsaid:
            continue
        less = written(unsaid=(*unsaid, letter)).text
        try:
            made = parse(less)
        except DeriveError:
            continue
        if same_operation(_canonical_extents(made), _canonical_extents(op)):
            op, text, unsaid = made, less, (*unsaid, letter)
    return op, text


def _canonical_extents(op: Operation) -> Operation:
    """Return the operation with its extents in an order that does not depend on stated sizes.

    Sizes that are numbers are substituted into the sizes of others.
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
