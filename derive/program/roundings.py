"""Counts the roundings of a body that is computed in the dtype of its arguments.

A value is ``EXACT`` if half precision and float32 give the same: a moved or selected element, its
negative, a number of few digits. It is ``ROUNDED`` if it is the float32 result rounded to nearest,
by one call that computes in float32 internally. Monotone functions, such as a maximum, preserve
both, since rounding is monotone. Arithmetic on a rounded value, or a comparison of it, is neither.

So a body of exact values is the same in each dtype. A body of rounded ones has the error of a
float32 body whose results are rounded last. ``ROUNDED`` holds for bfloat16, since torch's kernels
compute it in float32 and it has the same range; `rt.widened_for_kernel` tests for that at run time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from enum import IntEnum
from math import frexp, inf

from derive.algebra.expr import RELATIONS
from derive.program import flop_rules
from derive.program.cse import Line
from derive.program.dataflow import Forward
from derive.program.torch_ir import (
    Attribute,
    Binary,
    Code,
    Conditional,
    Dim,
    FunctionCall,
    Keyword,
    Literal,
    MethodCall,
    Name,
    Shape,
    Slice,
    Subscript,
    Tuple,
    Unary,
)
from derive.program.torch_ops import EXACT_ALONE, MONOTONE, ONCE, TorchOp, torch_op


class Has(IntEnum):
    """The relation of a value to its float32 counterpart."""

    NUMBER = 0
    """Not a tensor: a size, a position or a parameter."""
    INTEGER = 1
    """A tensor of integers, or of other values that half precision cannot have."""
    UNIT = 2
    """A mask or a sign: 0, 1 or -1."""
    EXACT = 3
    ROUNDED = 4


class Roundings(IntEnum):
    """How often the results of a body are rounded if it is computed in the given dtype."""

    NONE = 0
    ONCE = 1
    MORE = 2


def roundings(
    lines: Sequence[Line], given: Iterable[str], integers: Collection[str] = ()
) -> Roundings:
    """Return how often the lines round, given their float and integer tensors."""
    body = _RoundedBody(dict.fromkeys(given, Has.EXACT) | dict.fromkeys(integers, Has.INTEGER))
    try:
        body.run(lines)
    except _More:
        return Roundings.MORE
    return Roundings.ONCE if body.rounds else Roundings.NONE


class _More(Exception):
    """A value is rounded more than once."""


_DIGITS = 8
"""The binary digits of bfloat16; float16 has more, and covers all exponents this small."""


class _RoundedBody(Forward[Has]):
    """The state of the names of a body; unknown names are numbers."""

    rounds = False

    def of(self, code: Code) -> Has:
        match code:
            case Name(name):
                return self.known.get(name, Has.NUMBER)
            case Keyword(_, x) | Attribute(x, "mT" | "T" | "values") | Subscript(x) | Unary("-", x):
                return self.of(x)
            case Attribute(obj, "indices"):
                return self._asked(obj, Has.INTEGER)
            case Literal() | Dim() | Shape() | Slice() | Attribute():
                return Has.NUMBER
            case Tuple(items):
                return self._joined(items)
            case Conditional(_, then, other):
                return self._joined((then, other))
            case Unary(_, operand):
                return self._asked(operand, Has.UNIT)
            case Binary():
                return self._binary(code)
            case MethodCall() | FunctionCall():
                return self._call(code)
        raise _More

    def _asked(self, code: Code, found: Has) -> Has:
        """Return the state of a test of the values, which must not be rounded."""
        kind = self.of(code)
        if kind is Has.ROUNDED:
            raise _More
        return kind if kind is Has.NUMBER else found

    def _joined(self, codes: Iterable[Code]) -> Has:
        """Return the joint state of the elements of all of these."""
        found = {self.of(code) for code in codes}
        mixed = Has.INTEGER in found and max(found) > Has.INTEGER
        if mixed or (Has.NUMBER in found and len(found) > 1):
            raise _More
        return max(found, default=Has.NUMBER)

    # ---------------------------------------------------------------- operators

    def _binary(self, code: Binary) -> Has:
        op, sides = code.op, (code.left, code.right)
        left, right = map(self.of, sides)
        if left is right is Has.NUMBER:
            return Has.NUMBER
        if op in ("&", "|") and max(left, right) <= Has.UNIT:
            return Has.UNIT
        if op in RELATIONS:
            if max(left, right) > Has.INTEGER:
                self._tells(code)
            return Has.UNIT
        if max(left, right) <= Has.INTEGER and op in ("+", "-", "*", "//", "%"):
            return Has.INTEGER
        if Has.INTEGER in (left, right):
            raise _More
        return self._arithmetic(op, sides, (left, right))

    def _tells(self, code: Binary) -> None:
        """Check that a comparison has no rounded side."""
        for side in (code.left, code.right):
            kind = self.of(side)
            if kind in (Has.INTEGER, Has.ROUNDED) or (kind is Has.NUMBER and not is_short(side)):
                raise _More

    def _arithmetic(self, op: str, sides: tuple[Code, Code], kinds: tuple[Has, Has]) -> Has:
        if max(kinds) is Has.UNIT and (op != "*" or Has.NUMBER in kinds):
            raise _More
        if op == "*" and Has.UNIT in kinds and Has.NUMBER not in kinds:
            return max(kinds)
        if op == "*":
            for side, other in (sides, sides[::-1]):
                if _is_doubling(side) and self.of(other) is Has.EXACT:
                    self.rounds = True
                    return Has.EXACT
        scales = op == "*" or (op == "/" and kinds[0] is not Has.NUMBER)
        for side, kind in zip(sides, kinds, strict=True):
            if kind is Has.ROUNDED or (kind is Has.NUMBER and not (scales or is_short(side))):
                raise _More
        if op not in ("+", "-", "*", "/"):
            raise _More
        self.rounds = True
        return Has.ROUNDED

    # ---------------------------------------------------------------- calls

    def _call(self, code: MethodCall | FunctionCall) -> Has:
        op = torch_op(code)
        match code:
            case MethodCall(_, "dim" | "size"):
                return Has.NUMBER
            case FunctionCall("len" | "min" | "max" | "rt.nonnegative"):
                return self._joined(code.args)
            case FunctionCall(name) if name.startswith("math."):
                return self._joined(code.args)
            case MethodCall(obj, "to"):
                kind = self.of(obj)
                if kind is not Has.UNIT and not op.view:
                    raise _More
                return kind
        if op.makes:
            return self._made(code)
        if op.contracts or op.several:
            raise _More
        parts = code.parts()
        for n in op.compares:
            self._compared(parts[n], op)
        values = [p for n, p in enumerate(parts) if n not in op.compares]
        kinds = [self.of(p) for p in values]
        tensors = [kind for kind in kinds if kind > Has.INTEGER]
        if op.half == ONCE:
            return self._once(tensors)
        if op.half == MONOTONE:
            return self._monotone(op, values, kinds)
        if op.half == EXACT_ALONE and Has.ROUNDED not in tensors:
            return max(kinds)
        if not op.half and op.flops is flop_rules.none and op.shape is not None:
            return self._moved(values, kinds)
        raise _More

    def _made(self, code: MethodCall | FunctionCall) -> Has:
        """Return the state of a new tensor."""
        if isinstance(code, FunctionCall) or any(_is_keyword(a, "dtype") for a in code.args):
            return Has.INTEGER
        if not all(map(is_short, code.args[1:])):
            raise _More
        return Has.EXACT

    def _compared(self, code: Code, op: TorchOp) -> None:
        """Check that a compared argument, or a mask, is not rounded."""
        kind = self.of(code)
        if kind is Has.ROUNDED or (kind is Has.NUMBER and not (op.in_float32 or is_short(code))):
            raise _More
        self.rounds = self.rounds or (kind is Has.NUMBER and not is_short(code))

    def _once(self, tensors: Sequence[Has]) -> Has:
        if not tensors or Has.ROUNDED in tensors:
            raise _More
        self.rounds = True
        return Has.ROUNDED

    def _moved(self, values: Sequence[Code], kinds: Sequence[Has]) -> Has:
        """Return the state of moved elements; the other arguments are positions."""
        tensors = [kind for kind in kinds if kind > Has.INTEGER]
        if not tensors:
            return max(kinds)
        added = (v for v in values if _is_keyword(v, "value"))
        if kinds[0] <= Has.INTEGER or not all(map(is_short, added)):
            raise _More
        return max(tensors)

    def _monotone(self, op: TorchOp, values: Sequence[Code], kinds: Sequence[Has]) -> Has:
        """Return the state of one of these elements, or of its magnitude."""
        found = max(kinds)
        if found <= Has.INTEGER:
            return Has.INTEGER
        if Has.INTEGER in kinds:
            raise _More
        pairs = zip(values, kinds, strict=True)
        # The numbers of a reduction are axes, and strides of windows.
        numbers = [v for v, kind in pairs if kind is Has.NUMBER and op.shape is None]
        if all(map(is_short, numbers)):
            return Has.EXACT if found is Has.UNIT and numbers else found
        # If the slope depends on a comparison with the number, the number is rounded too.
        self.rounds = self.rounds or not op.compares
        return Has.ROUNDED


def _is_keyword(code: Code, name: str) -> bool:
    return isinstance(code, Keyword) and code.name == name


def _written_number(code: Code) -> float | None:
    """Return a number that is written out, else None."""
    match code:
        case Literal(words):
            try:
                return inf if words.endswith("math.inf") else float(words)
            except ValueError:
                return None
        case Unary("-", operand):
            return _written_number(operand)
        case Keyword(_, value):
            return _written_number(value)
    return None


def is_short(code: Code) -> bool:
    """True if the code is a number that every half-precision dtype represents exactly."""
    value = _written_number(code)
    if value is None:
        return False
    if value in (0, inf):
        return True
    digits, power = frexp(abs(value))
    return (digits * 2**_DIGITS).is_integer() and -_DIGITS < power <= _DIGITS


def _is_doubling(code: Code) -> bool:
    """True if multiplication by the number preserves the digits: a power of two."""
    value = _written_number(code)
    return value is not None and value != inf and value >= 1 and frexp(value)[0] == 0.5
