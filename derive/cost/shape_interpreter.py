"""Execute an operation's code abstractly, with shapes in place of tensors.

A group of axes is one axis with as many elements; flags are False, and every optional tensor is
given unless its value is ABSENT.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from derive.algebra.poly import ZERO, Poly, add, constant, mul, scale
from derive.cost.size_formula import degree
from derive.program.cse import Line
from derive.program.shape_rules import (
    Shape,
    broadcast,
    elements,
    extremum,
    flat,
    floor_divided,
    matrix_transposed,
    number,
    sliced,
)
from derive.program.torch_ir import (
    NONE,
    Attribute,
    Binary,
    Code,
    Conditional,
    FunctionCall,
    Keyword,
    Literal,
    MethodCall,
    Name,
    Slice,
    Subscript,
    Tuple,
    Unary,
)
from derive.program.torch_ops import ELEMENTWISE, MATMUL, TorchOp, torch_op

ABSENT = object()
"""The value of an optional tensor that is None."""


@dataclass(frozen=True)
class ShapedTensor:
    """A tensor with a known shape, and the number of the step that computed it."""

    shape: Shape
    made: int | None = None


@dataclass(frozen=True)
class ShapedStep:
    """One operation other than a view: the shapes of its operands and its result, and its flops."""

    line: str
    reads: tuple[Shape, ...]
    result: Shape
    flops: Poly
    contracts: bool


@dataclass
class Trace:
    """Values by name, and the steps so far. ``letters`` maps a formula to the size it equals."""

    letters: Mapping[Poly, Poly]
    values: dict[str, Any]
    steps: list[ShapedStep] = field(default_factory=list)
    _line: str = ""

    def run(self, lines: Iterable[Line], known: Mapping[str, Shape]) -> None:
        """Execute the lines; ``known`` has the declared shapes of names.

        A name may hold a tensor with other axes: those of a composite axis split.
        """
        for line in lines:
            self._line = line.name
            value, declared = self._value(line.code), known.get(line.name, ())
            if isinstance(value, ShapedTensor) and len(value.shape) == len(declared):
                value = replace(value, shape=declared)
            self.values[line.name] = value

    def runs(self, needs: Iterable[str]) -> bool:
        """True if any of these tensors is present, so that the lines for its gradient run."""
        return any(self.values.get(name) is not ABSENT for name in needs)

    def truth(self, test: Code) -> bool | None:
        """The value of a test; None if it is unknown."""
        found = self._value(test)
        return found if isinstance(found, bool) else None

    def shape(self, code: Code) -> Shape | None:
        """The shape of a tensor; None for any other value."""
        value = self._value(code)
        return value.shape if isinstance(value, ShapedTensor) else None

    def _value(self, code: Code) -> Any:
        """A `ShapedTensor`, a `Poly` for an integer, a tuple, or another Python value."""
        match code:
            case Name(name):
                return self.values.get(name)
            case Literal(words):
                return _evaluated_literal(words)
            case Slice(start, stop, step):
                return slice(*(None if x is None else self._value(x) for x in (start, stop, step)))
            case Tuple(items):
                return self._items(items)
            case Attribute(obj, name):
                return _attribute(self._value(obj), name)
            case Subscript(obj, items):
                return self._subscript(self._value(obj), self._items(items))
            case Unary(op, operand):
                return self._unary(op, self._value(operand))
            case Binary(op, left, right):
                return self._binary(op, self._value(left), self._value(right))
            case Conditional(test, then, other):
                chosen = other if self._value(test) is False else then
                return ABSENT if chosen is NONE else self._value(chosen)
            case MethodCall(obj, _, args):
                whole = self._value(obj)
                return whole if whole is ABSENT else self._call(code, (whole,), args)
            case FunctionCall(_, args):
                return self._call(code, (), args)
        return None

    def _items(self, items: Iterable[Code]) -> tuple[Any, ...]:
        found: list[Any] = []
        for item in items:
            starred = isinstance(item, Unary) and item.op == "*"
            value = self._value(item.operand if isinstance(item, Unary) and starred else item)
            found += value if starred and isinstance(value, tuple) else (value,)
        return tuple(found)

    def _subscript(self, obj: Any, items: tuple[Any, ...]) -> Any:
        """A part of a shape, or a tensor read at positions."""
        if isinstance(obj, tuple) and isinstance(items[0], slice):
            ends = (None if x is None else number(x) for x in (items[0].start, items[0].stop))
            return obj[slice(*ends)]
        if isinstance(obj, tuple):
            return obj[number(items[0])]
        if not isinstance(obj, ShapedTensor):
            return None
        if Ellipsis in items:
            n = items.index(Ellipsis)
            every = (slice(None),) * (len(obj.shape) - len(items) + 1)
            items = (*items[:n], *every, *items[n + 1 :])
        placed = [x.shape for x in items if isinstance(x, ShapedTensor)]
        kept = (
            sliced(n, x) for x, n in zip(items, obj.shape, strict=False) if isinstance(x, slice)
        )
        shape = self._lettered((*broadcast(*placed), *kept, *obj.shape[len(items) :]))
        return self._did((obj.shape, *placed), shape, ZERO) if placed else replace(obj, shape=shape)

    def _unary(self, op: str, x: Any) -> Any:
        if isinstance(x, ShapedTensor):
            return self._made(ELEMENTWISE, (x,), {})
        if isinstance(x, Poly):
            return scale(x, -1) if op == "-" else None
        return not x if op == "not" and isinstance(x, bool) else None

    def _binary(self, op: str, a: Any, b: Any) -> Any:
        if op == "is":
            return a is ABSENT
        if not isinstance(a, ShapedTensor) and not isinstance(b, ShapedTensor):
            return _three_valued(op, a, b) if op in ("and", "or") else _integer_arithmetic(op, a, b)
        if op == "/" and not isinstance(a, ShapedTensor):
            # torch computes the reciprocal, then multiplies.
            b = self._made(ELEMENTWISE, (b,), {})
        return self._made(MATMUL if op == "@" else ELEMENTWISE, (a, b), {})

    def _call(
        self, code: MethodCall | FunctionCall, obj: tuple[Any, ...], args: Sequence[Code]
    ) -> Any:
        given = {a.name: self._value(a.value) for a in args if isinstance(a, Keyword)}
        values = (*obj, *self._items(a for a in args if not isinstance(a, Keyword)))
        op = torch_op(code)
        first = next((x for x in flat(values) if isinstance(x, ShapedTensor)), None)
        if first is None:
            return self._made(op, values, given) if op.makes else _builtin_value(code.name, values)
        if op.name == "dim":
            return constant(len(first.shape))
        return self._made(op, values, given)

    def _made(self, op: TorchOp, args: tuple[Any, ...], given: Mapping[str, Any]) -> Any:
        """The result of an operation, recorded as a step unless it is a view."""
        tensors = [x for x in flat((*args, *given.values())) if isinstance(x, ShapedTensor)]
        reads = () if op.makes else tuple(x.shape for x in tensors)
        plain, named = (
            _shapes_of_values(args),
            {name: _shapes_of_values(x) for name, x in given.items()},
        )
        made = broadcast(*reads) if op.shape is None else op.shape(*plain, **named)
        for own, flops in op.before(*plain, **named):
            self._did((), own, flops)
        if op.several:
            results: Any = made
            first, *others = map(self._lettered, results)
            done = self._did(reads, first, op.flops(first, *plain, **named), op.contracts)
            return (done, *(replace(done, shape=shape) for shape in others))
        shape = self._lettered(made)
        if op.view:
            return replace(tensors[0], shape=shape)
        return self._did(reads, shape, op.flops(shape, *plain, **named), op.contracts)

    def _did(
        self, reads: tuple[Shape, ...], result: Shape, flops: Poly, contracts: bool = False
    ) -> ShapedTensor:
        self.steps.append(ShapedStep(self._line, reads, result, flops, contracts))
        return ShapedTensor(result, len(self.steps) - 1)

    def _lettered(self, shape: Iterable[Poly]) -> Shape:
        return tuple(self.letters.get(n, n) for n in shape)


def _shapes_of_values(x: Any) -> Any:
    """x with tensors replaced by their shapes, also inside tuples."""
    if isinstance(x, tuple):
        return tuple(map(_shapes_of_values, x))
    return x.shape if isinstance(x, ShapedTensor) else x


def _evaluated_literal(words: str) -> Any:
    if words.lstrip("-").isdecimal():
        return constant(int(words))
    known = {"True": True, "False": False, "...": Ellipsis}
    return words.strip('"') if words[0] == '"' else known.get(words)


def _attribute(obj: Any, name: str) -> Any:
    if not isinstance(obj, ShapedTensor):
        return None
    match name:
        case "shape":
            return obj.shape
        case "mT":
            return replace(obj, shape=matrix_transposed(obj.shape))
    return obj if name in ("values", "indices") else None


def _three_valued(op: str, a: Any, b: Any) -> Any:
    """The conjunction or disjunction, where None is unknown; either operand may decide it."""
    decides = op == "or"
    if a is decides or b is decides:
        return decides
    return not decides if a is b is (not decides) else None


def _integer_arithmetic(op: str, a: Any, b: Any) -> Any:
    """Integer arithmetic on formulas; None if an operand is unknown."""
    if not isinstance(a, Poly) or not isinstance(b, Poly):
        return None
    match op:
        case "+":
            return add(a, b)
        case "-":
            return add(a, scale(b, -1))
        case "*":
            return mul(a, b)
        case "//":
            return floor_divided(a, b)
        case "%" if not (degree(a) or degree(b)):
            return constant(number(a) % number(b))
    return None


def _builtin_value(name: str, args: tuple[Any, ...]) -> Any:
    """The result of a Python builtin; None if it is unknown."""
    match name, args:
        case "len", (tuple() as shape,):
            return constant(len(shape))
        case "math.prod", (tuple() as shape,):
            return elements(shape)
        case (("min" | "max"), _) if all(isinstance(x, Poly) for x in args):
            return extremum(f"{name}imum", args)
    return None
