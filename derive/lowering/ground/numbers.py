"""Python numbers by the rules of IEEE 754: log(0) is -inf and 1/0 is inf, no error.

Code of plain arithmetic is left as it is wherever it is certain to have a value.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce

from derive.algebra.expr import Rel, Size, num
from derive.algebra.functions import FUNCTIONS
from derive.lowering.ground.value import Frame
from derive.program.torch_ir import (
    Attribute,
    Binary,
    Code,
    Dim,
    FunctionCall,
    Literal,
    Name,
    Shape,
    Subscript,
    literal,
)


def of_number(name: str, *args: Code) -> Code:
    """The function of this name in Python's math, of numbers."""
    function = FUNCTIONS.get(name)
    certain = function is not None and function.total and not function.overflows
    if name == "sqrt":
        certain = not any(map(_may_be_negative, args))
    if certain or all(map(_is_constant, args)):
        return FunctionCall(f"math.{name}", args)
    return FunctionCall("_ieee", (Name(f"math.{name}"), *args))


def _may_be_negative(code: Code) -> bool:
    """Whether the number is not just a product of sizes and literals."""
    if isinstance(code, Literal):
        return code.text.startswith("-")
    if isinstance(code, Attribute | Subscript | Dim | Shape):
        return False
    if isinstance(code, Binary) and code.op == "*":
        return any(map(_may_be_negative, code.parts()))
    return not (isinstance(code, FunctionCall) and code.name == "math.prod")


def quotient_of_numbers(frame: Frame, above: Code, below: Code) -> Code:
    """above / below; nan where the size of an axis is 0, as torch's mean is."""
    factors = list(_factors(below))
    sizes = [f for f in factors if _is_constant(f) or _reads_size(f)]
    others = [f for f in factors if f not in sizes]
    if not any(map(_reads_size, sizes)):
        return FunctionCall("_quotient", (above, below)) if others else Binary("/", above, below)
    if others:
        above, below = FunctionCall("_quotient", (above, _product(others))), _product(sizes)
    return Binary("/", above, below if _is_certain(frame, below) else Binary("or", below, _NAN))


def _product(factors: list[Code]) -> Code:
    return reduce(lambda a, b: Binary("*", a, b), factors)


def _is_certain(frame: Frame, divisor: Code) -> bool:
    """Whether the number is not 0: neither a literal is, nor an axis that has positions."""
    return all(
        _is_constant(f) or (isinstance(f, Dim) and has_positions(frame, f.extent))
        for f in map(_squared, _factors(divisor))
    )


def has_positions(frame: Frame, extent: str) -> bool:
    """Whether every axis of this extent is certain to have a position."""
    known = frame.bounds
    if any(known.size(extent) == known.size(given) for given in frame.given):
        return True
    return known.holds(Rel("<", num(0), Size(extent))) is True


_NAN = Literal("math.nan")


def _factors(code: Code) -> Iterator[Code]:
    if isinstance(code, Binary) and code.op == "*":
        yield from _factors(code.left)
        yield from _factors(code.right)
    else:
        yield code


def _squared(code: Code) -> Code:
    """What is 0 where the code is."""
    match code:
        case FunctionCall("math.sqrt", (square,)):
            return square
    return code


def over_positions(code: Code, extents: frozenset[str]) -> Code:
    """The code of an adjoint that is the same along these axes, whose sizes divide as 1 if 0.

    Where such an axis is empty so is the adjoint; but G/0 has a derivative by G, which is nan.
    """
    if isinstance(code, Binary) and code.op == "/":
        below = code.right
        if isinstance(below, Binary) and below.op == "or" and below.right is _NAN:
            below = below.left
        factors = list(_factors(below))
        sizes = [f for f in factors if _is_constant(f) or isinstance(_squared(f), Dim)]
        if any(isinstance(f, Dim) and f.extent in extents for f in map(_squared, sizes)):
            above = over_positions(code.left, extents)
            others = [f for f in factors if f not in sizes]
            divisor: Code = Binary("or", _product(sizes), literal(1))
            return Binary("/", above, _product([divisor, *others]))
    return code.map(lambda part: over_positions(part, extents)) if extents else code


def _is_constant(code: Code) -> bool:
    """Whether the number is one that is written out."""
    return isinstance(code, Literal) or (
        bool(code.parts()) and all(map(_is_constant, code.parts()))
    )


def _reads_size(code: Code) -> bool:
    return isinstance(code, Dim) or any(map(_reads_size, code.parts()))
