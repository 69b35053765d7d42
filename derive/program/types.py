"""Types of values: a forward analysis that knows the shape and the kind of each part of the code.

    x[n,k] @ w[k,m]      (n, m), float
    x > 0                (n, k), bool

A group of axes is one axis with as many elements; flags are False, and every optional tensor is
given unless its value is ABSENT. A float tensor has the dtype of the body, so that the quotient of
two integer tensors, which has torch's default dtype, is of no known kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from derive.algebra.expr import RELATIONS
from derive.algebra.poly import Poly, add, constant, mul, scale
from derive.notation.operation import Kind
from derive.program.dataflow import Forward, Statement
from derive.program.shape_rules import (
    Shape,
    TensorType,
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
from derive.program.torch_ops import (
    ELEMENTWISE,
    EXACT_ALONE,
    MATMUL,
    MONOTONE,
    TORCH_OPS,
    TorchOp,
    torch_op,
)

ABSENT = object()
"""The value of an optional tensor that is None."""
NUMBER = object()
"""A number or a truth value, or several, of which nothing is known."""


@dataclass(frozen=True)
class DType:
    """The dtype of tensors of a kind."""

    kind: Kind | None


_DTYPES = {
    **dict.fromkeys(("low", "wide", "dtype", "torch.float64"), DType("float")),
    "torch.int64": DType("int"),
    "torch.bool": DType("bool"),
}
_COUNTS = ("sum", "prod", "cumsum", "cumprod")
"""Reductions of truth values to their number."""
_SELECTS = TORCH_OPS["index_select"]


class Types(Forward[Any]):
    """Values of names: a `TensorType`, a `Poly` for an integer, a tuple, or another Python value.

    ``letters`` maps a formula to the size it equals.
    """

    def __init__(self, letters: Mapping[Poly, Poly], given: Mapping[str, Any]) -> None:
        super().__init__(given)
        self.letters = letters

    def run(self, lines: Iterable[Statement]) -> None:
        """Take in the types of these lines: the declared ones, which name sizes by letters.

        Where a guard is removed that had more axes than its value, what is made of it lacks axes
        that are declared.
        """
        for line in lines:
            value, own = self.of(line.code), line.type
            if isinstance(value, TensorType) and own and not _lacks_axes(value.shape, own.shape):
                value = replace(value, shape=own.shape, kind=own.kind)
            self.known[line.name] = value

    def runs(self, needs: Iterable[str]) -> bool:
        """True if any of these tensors is present, so that the lines for its gradient run."""
        return any(self.known.get(name) is not ABSENT for name in needs)

    def truth(self, test: Code) -> bool | None:
        """Return the value of a test; None if it is unknown."""
        found = self.of(test)
        return found if isinstance(found, bool) else None

    def shape(self, code: Code) -> Shape | None:
        """Return the shape of a tensor; None for any other value."""
        value = self.of(code)
        return value.shape if isinstance(value, TensorType) else None

    def is_float(self, code: Code) -> bool:
        """True if the code certainly is a float tensor."""
        value = self.of(code)
        return isinstance(value, TensorType) and value.kind == "float"

    def is_number(self, code: Code) -> bool:
        """True if the code certainly is a Python number."""
        return _is_number(self.of(code))

    def of(self, code: Code) -> Any:
        """Return the value of the code."""
        match code:
            case Name(name):
                return self.known.get(name, _DTYPES.get(name))
            case Literal(words):
                return _evaluated_literal(words)
            case Slice(start, stop, step):
                return slice(*(None if x is None else self.of(x) for x in (start, stop, step)))
            case Tuple(items):
                return self._items(items)
            case Attribute(Name("math" | "ctx")):
                return NUMBER
            case Attribute(obj, name):
                return _attribute(self.of(obj), name)
            case Subscript(obj, items):
                return self._subscript(self.of(obj), self._items(items))
            case Unary(op, operand):
                return self._unary(op, self.of(operand))
            case Binary(op, left, right):
                return self._binary(op, self.of(left), self.of(right))
            case Conditional(test, then, other):
                return self._chosen(self.of(test), then, other)
            case MethodCall(obj, _, args):
                whole = self.of(obj)
                return whole if whole is ABSENT else self._call(code, (whole,), args)
            case FunctionCall(_, args):
                return self._call(code, (), args)
        return None

    def computed(
        self,
        op: TorchOp,
        made: TensorType,
        reads: tuple[Shape, ...],
        args: Sequence[Any],
        named: Mapping[str, Any],
    ) -> TensorType:
        """Return the result of an operation that is no view, given the shapes that it reads."""
        return made

    def _chosen(self, test: Any, then: Code, other: Code) -> Any:
        """Return the value of a choice; that of both branches if they may differ in kind only."""
        if isinstance(test, bool) or NONE in (then, other):
            chosen = other if test is False else then
            return ABSENT if chosen is NONE else self.of(chosen)
        value, second = self.of(then), Types(self.letters, self.known).of(other)
        if isinstance(value, TensorType) and value.kind != getattr(second, "kind", None):
            return replace(value, kind=None)
        return value

    def _items(self, items: Iterable[Code]) -> tuple[Any, ...]:
        found: list[Any] = []
        for item in items:
            starred = isinstance(item, Unary) and item.op == "*"
            value = self.of(item.operand if isinstance(item, Unary) and starred else item)
            found += value if starred and isinstance(value, tuple) else (value,)
        return tuple(found)

    def _subscript(self, obj: Any, items: tuple[Any, ...]) -> Any:
        """Return a part of a shape, or a tensor read at positions."""
        if isinstance(obj, tuple) and isinstance(items[0], slice):
            ends = (None if x is None else number(x) for x in (items[0].start, items[0].stop))
            return obj[slice(*ends)]
        if isinstance(obj, tuple):
            return obj[number(items[0])]
        if not isinstance(obj, TensorType):
            return obj if obj is NUMBER else None
        if Ellipsis in items:
            n = items.index(Ellipsis)
            every = (slice(None),) * (len(obj.shape) - len(items) + 1)
            items = (*items[:n], *every, *items[n + 1 :])
        placed = [x.shape for x in items if isinstance(x, TensorType)]
        kept = (
            sliced(n, x) for x, n in zip(items, obj.shape, strict=False) if isinstance(x, slice)
        )
        shape = self._lettered((*broadcast(*placed), *kept, *obj.shape[len(items) :]))
        made = replace(obj, shape=shape)
        return self.computed(_SELECTS, made, (obj.shape, *placed), (), {}) if placed else made

    def _unary(self, op: str, x: Any) -> Any:
        if isinstance(x, TensorType):
            return self._made(ELEMENTWISE, (x,), {})
        if isinstance(x, Poly):
            return scale(x, -1) if op == "-" else None
        if op == "not" and isinstance(x, bool):
            return not x
        return x if x is NUMBER else None

    def _binary(self, op: str, a: Any, b: Any) -> Any:
        if op == "is":
            return a is ABSENT
        if not isinstance(a, TensorType) and not isinstance(b, TensorType):
            return _three_valued(op, a, b) if op in ("and", "or") else _arithmetic(op, a, b)
        if op == "/" and not isinstance(a, TensorType):
            # torch computes the reciprocal, then multiplies.
            b = self._made(ELEMENTWISE, (b,), {})
        if op in ("&", "|"):
            return self._made(ELEMENTWISE, tuple(x for x in (a, b) if x is not NUMBER), {})
        made = self._made(MATMUL if op == "@" else ELEMENTWISE, (a, b), {})
        if op in RELATIONS:
            return replace(made, kind="bool")
        return made if op != "/" or made.kind == "float" else replace(made, kind=None)

    def _call(
        self, code: MethodCall | FunctionCall, obj: tuple[Any, ...], args: Sequence[Code]
    ) -> Any:
        given = {a.name: self.of(a.value) for a in args if isinstance(a, Keyword)}
        values = (*obj, *self._items(a for a in args if not isinstance(a, Keyword)))
        op = torch_op(code)
        first = next((x for x in flat(values) if isinstance(x, TensorType)), None)
        if first is None:
            return self._made(op, values, given) if op.makes else _builtin_value(code.name, values)
        if op.name == "dim":
            return constant(len(first.shape))
        return self._made(op, values, given)

    def _made(self, op: TorchOp, args: tuple[Any, ...], given: Mapping[str, Any]) -> Any:
        tensors = [x for x in flat((*args, *given.values())) if isinstance(x, TensorType)]
        reads = () if op.makes else tuple(x.shape for x in tensors)
        plain = _shapes_of_values(args)
        named = {name: _shapes_of_values(x) for name, x in given.items()}
        made: Any = broadcast(*reads) if op.shape is None else op.shape(*plain, **named)
        kind = op.kind or _kind_of(op, args, given)
        if op.several:
            first, *others = map(self._lettered, made)
            whole = self.computed(op, TensorType(first, kind), reads, plain, named)
            return (whole, *(replace(whole, shape=shape) for shape in others))
        shape = self._lettered(made)
        if op.view:
            return replace(tensors[0], shape=shape, kind=kind)
        return self.computed(op, TensorType(shape, kind), reads, plain, named)

    def _lettered(self, shape: Iterable[Poly]) -> Shape:
        return tuple(self.letters.get(n, n) for n in shape)


def _lacks_axes(shape: Shape, declared: Shape) -> bool:
    one = constant(1)
    pairs = zip(shape, declared, strict=False)
    return len(shape) < len(declared) or any(n is one is not m for n, m in pairs)


def _is_number(x: Any) -> bool:
    return isinstance(x, Poly | bool) or x is NUMBER


def _kind_of(op: TorchOp, args: Sequence[Any], named: Mapping[str, Any]) -> Kind | None:
    """Return the kind of a result: of a dtype that is given, of the first tensor, or promoted."""
    values = [x for n, x in enumerate(args) if n not in op.compares]
    every = list(flat((*values, *named.values())))
    dtypes = (x.kind for x in every if isinstance(x, DType))
    kinds = [x.kind for x in every if isinstance(x, TensorType)]
    if op.shape is not None and not op.contracts:
        first = kinds[0] if kinds else _promoted(every, kinds)
        return next(dtypes, "int" if first == "bool" and op.name in _COUNTS else first)
    found = next(dtypes, _promoted(every, kinds))
    preserves = op in (ELEMENTWISE, MATMUL) or op.half in (MONOTONE, EXACT_ALONE)
    return found if found == "float" or preserves else None


def _promoted(values: Sequence[Any], kinds: Sequence[Kind | None]) -> Kind | None:
    """Return the kind to which tensors of these kinds promote, and the numbers among the values."""
    if "float" in kinds:
        return "float"
    if None in kinds or NUMBER in values:
        return None
    return "int" if "int" in kinds or any(isinstance(x, Poly) for x in values) else "bool"


def _shapes_of_values(x: Any) -> Any:
    """Return x with tensors replaced by their shapes, also inside tuples."""
    if isinstance(x, tuple):
        return tuple(map(_shapes_of_values, x))
    return x.shape if isinstance(x, TensorType) else x


def _evaluated_literal(words: str) -> Any:
    digits = words.lstrip("-")
    if digits.isdecimal():
        return constant(int(words))
    if digits[:1].isdigit() or digits.startswith("math."):
        return NUMBER
    known = {"True": True, "False": False, "...": Ellipsis}
    return words.strip('"') if words[0] == '"' else known.get(words)


def _attribute(obj: Any, name: str) -> Any:
    if not isinstance(obj, TensorType):
        return obj if obj is NUMBER else None
    match name:
        case "shape":
            return obj.shape
        case "dtype":
            return DType(obj.kind)
        case "mT" | "T":
            return replace(obj, shape=matrix_transposed(obj.shape))
        case "indices":
            return replace(obj, kind="int")
    return obj if name == "values" else None


def _three_valued(op: str, a: Any, b: Any) -> Any:
    """Return a conjunction or disjunction, either operand of which may decide it."""
    decides = op == "or"
    if a is decides or b is decides:
        return decides
    if a is b is (not decides):
        return a
    return NUMBER if _is_number(a) and _is_number(b) else None


def _arithmetic(op: str, a: Any, b: Any) -> Any:
    """Return the result of arithmetic on numbers, a formula for integers; None if unknown."""
    if isinstance(a, Poly) and isinstance(b, Poly):
        match op:
            case "+":
                return add(a, b)
            case "-":
                return add(a, scale(b, -1))
            case "*":
                return mul(a, b)
            case "//":
                return floor_divided(a, b)
            case "**" if not any(t.factors for t in b.terms) and number(b) > 0:
                return mul(*[a] * number(b))
            case "%" if not any(t.factors for t in (*a.terms, *b.terms)):
                return constant(number(a) % number(b))
    return NUMBER if _is_number(a) and _is_number(b) else None


def _builtin_value(name: str, args: tuple[Any, ...]) -> Any:
    """Return the result of a Python builtin; None if it is unknown."""
    match name, args:
        case "len", (tuple() as shape,):
            return constant(len(shape))
        case "range", (stop,) if isinstance(stop, Poly):
            return tuple(map(constant, range(number(stop))))
        case "range", (start, stop) if isinstance(start, Poly) and isinstance(stop, Poly):
            return tuple(map(constant, range(number(start), number(stop))))
        case "tuple", (tuple() as items,):
            return items
        case "math.prod", (tuple() as shape,):
            return elements(shape)
        case (("min" | "max"), _) if all(isinstance(x, Poly) for x in args):
            return extremum(f"{name}imum", args)
    numbers = args[1:] if name == "rt.ieee_call" else args
    known = name.startswith(("math.", "torch.finfo")) or (numbers and all(map(_is_number, numbers)))
    return NUMBER if known else None
