"""Python numbers by the rules of IEEE 754: log(0) is -inf and 1/0 is inf, no error.

Plain arithmetic stays as it is if it certainly has a value.
"""

from __future__ import annotations

from dataclasses import replace

from derive.algebra.expr import Param, Rel, Size, num
from derive.algebra.functions import FUNCTIONS
from derive.lowering.ground.value import Frame, Value
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
    joined,
    literal,
    operands,
)


def math_call(name: str, *args: Code) -> Code:
    """Return a call of the function in Python's math, on numbers."""
    function = FUNCTIONS.get(name)
    certain = function is not None and function.total and not function.overflows
    if name == "sqrt":
        certain = not any(map(_may_be_negative, args))
    if certain or all(map(_is_constant, args)):
        return FunctionCall(f"math.{name}", args)
    return FunctionCall("rt.ieee_call", (Name(f"math.{name}"), *args))


def _may_be_negative(code: Code) -> bool:
    """True unless the number is a product of sizes and nonnegative literals."""
    if isinstance(code, Literal):
        return code.text.startswith("-")
    if isinstance(code, Attribute | Subscript | Dim | Shape):
        return False
    if isinstance(code, Binary) and code.op == "*":
        return any(map(_may_be_negative, code.parts()))
    return not (isinstance(code, FunctionCall) and code.name == "math.prod")


def quotient_of_numbers(frame: Frame, above: Code, below: Code) -> Code:
    """Return above / below; nan if an axis is empty, as in torch.mean."""
    factors = list(operands(below, "*"))
    sizes = [f for f in factors if _is_constant(f) or _reads_size(f) or _is_checked(frame, f)]
    others = [f for f in factors if f not in sizes]
    if not any(map(_reads_size, sizes)):
        by = FunctionCall("rt.ieee_divide", (above, below))
        return by if others else Binary("/", above, below)
    if others:
        above = FunctionCall("rt.ieee_divide", (above, joined("*", others)))
        below = joined("*", sizes)
    nonzero = _is_nonzero_divisor(frame, below)
    return Binary("/", above, below if nonzero else Binary("or", below, _NAN))


def _is_checked(frame: Frame, code: Code) -> bool:
    """True if a call checks that the parameter is not 0."""
    if not isinstance(code, Name):
        return False
    return frame.bounds.holds(Rel("!=", Param(code.id), num(0))) is True


def _is_nonzero_divisor(frame: Frame, divisor: Code) -> bool:
    """True if the number is not 0: a literal, or the size of an axis that is not empty."""
    return all(
        _is_constant(f)
        or _is_checked(frame, f)
        or (isinstance(f, Dim) and has_positions(frame, f.extent))
        for f in map(_radicand, operands(divisor, "*"))
    )


def has_positions(frame: Frame, extent: str) -> bool:
    """True if every axis of this extent is certain to be nonempty."""
    known = frame.bounds
    if any(known.size(extent) == known.size(given) for given in frame.given):
        return True
    return known.holds(Rel("<", num(0), Size(extent))) is True


def whole_divisor(frame: Frame, divided: Value, divisor: Value) -> Value:
    """Return the divisor of positions: a size that may be 0 beside positions of others is not."""
    match divisor.code:
        case Dim(extent) if not divided.scalar and not has_positions(frame, extent):
            if all(i.extent != extent for i in divided.indices):
                return replace(divisor, code=FunctionCall("max", (divisor.code, literal(1))))
    return divisor


_NAN = Literal("math.nan")


def _radicand(code: Code) -> Code:
    """Return code with the same zeros and without a square root."""
    match code:
        case FunctionCall("math.sqrt", (square,)):
            return square
    return code


def over_positions(code: Code, extents: frozenset[str]) -> Code:
    """Return the code of an adjoint that is constant along these axes, dividing by size or 1.

    If such an axis is empty, so is the adjoint; but the derivative of G/0 by G would be nan.
    """
    if isinstance(code, Binary) and code.op == "/":
        below = code.right
        if isinstance(below, Binary) and below.op == "or" and below.right is _NAN:
            below = below.left
        factors = list(operands(below, "*"))
        sizes = [f for f in factors if _is_constant(f) or isinstance(_radicand(f), Dim)]
        if any(isinstance(f, Dim) and f.extent in extents for f in map(_radicand, sizes)):
            above = over_positions(code.left, extents)
            others = [f for f in factors if f not in sizes]
            divisor = Binary("or", joined("*", sizes), literal(1))
            return Binary("/", above, joined("*", [divisor, *others]))
    return code.map(lambda part: over_positions(part, extents)) if extents else code


def _is_constant(code: Code) -> bool:
    """True if the number is a literal or arithmetic on literals."""
    parts = code.parts()
    return isinstance(code, Literal) or (bool(parts) and all(map(_is_constant, parts)))


def _reads_size(code: Code) -> bool:
    return isinstance(code, Dim) or any(map(_reads_size, code.parts()))
