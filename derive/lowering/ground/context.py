"""The context of each lowering step: available tensors, statements, shared conversions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from derive.algebra.expr import Access, Expr, Index
from derive.algebra.logic import conditions_of, conjunction
from derive.algebra.substitution import Recursion
from derive.budget import at
from derive.calculus.lets import Let, layout
from derive.errors import LoweringError
from derive.kernels.recognise import Pattern
from derive.lowering.ground.guard_lowering import above, above_number, follows_data
from derive.lowering.ground.value import ZERO, Axes, Frame, Indices, Value, broadcast
from derive.notation.operation import Kind
from derive.program.torch_ir import (
    Attribute,
    Code,
    Conditional,
    Dim,
    FunctionCall,
    Keyword,
    Literal,
    MethodCall,
    Name,
    literal,
    subexpressions,
)


@dataclass(frozen=True)
class Statement:
    """The statement ``name = code``, the axes of the tensor and its kind."""

    name: str
    code: Code
    axes: Axes
    kind: Kind


@dataclass
class Scope(ABC):
    """The code written so far, and the tensors that it can read.

    ``tensors`` are available; any other name is lowered from its definition at its first read.
    """

    find: Callable[[str], Let | None]
    frame: Frame
    tensors: dict[str, Value]
    like: Code
    """The float tensor from which new tensors take dtype and device."""
    integers: frozenset[str] = frozenset()
    """The integer parameters."""
    adjoints: frozenset[str] = frozenset()
    """The names of gradients."""
    kernels: Sequence[Pattern] = ()
    """The fused kernels that the code may call."""
    statements: list[Statement] = field(default_factory=list)

    noted: dict[tuple[str, str, str], None] = field(default_factory=dict)
    """Keys (equation, pattern that lowered it, its identity), in the order of the code."""
    results: dict[str, Value] = field(default_factory=dict)
    """Additional results of kernels, by name."""
    _defining: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._computed = Recursion(self._compute, self.tensors)

    @abstractmethod
    def lower(self, e: Expr, order: Indices) -> Value:
        """Return the code of e, which fits ``order``; ``order`` contains every free index of e."""

    @abstractmethod
    def condition(self, e: Expr, order: Indices) -> Value:
        """Return a condition as a bool tensor, or as a Python bool if it reads no tensor."""

    @abstractmethod
    def definition(self, let: Let) -> Value:
        """Return the code of a let with all of its axes at full size."""

    @abstractmethod
    def nested(self, body: Expr) -> Expr:
        """Return a flat body in the nested form in which it is computed."""

    def tensor(self, name: str) -> Value:
        """Return the named tensor, computing it first if it is not available."""
        return self._computed(name)

    def _compute(self, name: str) -> Value:
        let = self.find(name)
        if let is None:
            raise LoweringError(f"{name} is not defined")
        self.define(let)
        return self.tensors[name]

    def absent(self, name: str) -> Let | None:
        """Return the definition of a name that is not available yet."""
        return None if name in self.tensors else self.find(name)

    def define(self, let: Let) -> None:
        """Write the statement of a let."""
        at(f"the code of {let.name}")
        self._defining.append(let.name)
        try:
            value = self.definition(let)
        finally:
            self._defining.pop()
        self.statements.append(Statement(let.name, value.code, value.axes, value.kind))
        self.tensors[let.name] = replace(value, code=Name(let.name))

    @property
    def defined(self) -> Let | None:
        """The equation that is being lowered."""
        return self.find(self._defining[-1]) if self._defining else None

    @property
    def is_gradient(self) -> bool:
        """True if the current equation is a gradient, which scatters to the positions read."""
        return bool(self._defining) and self._defining[-1] in self.adjoints

    def note(self, pattern: str, states: str) -> None:
        """Record that this pattern lowered a part of the current equation."""
        self.noted.setdefault((self._defining[-1], pattern, states))

    def named(self, e: Expr) -> Expr:
        """Return an access to the value of e, whose axes are the free indices of e."""
        value = self.frame.squeeze(self.lower(e, layout(e)))
        return e if value.scalar else self.held(value)

    def held(self, value: Value) -> Access:
        """Return an access to an available value, under a new name."""
        name = f"#{len(self.tensors)}"
        self.tensors[name] = value
        return Access(name, value.indices)

    def as_float(self, value: Value) -> Value:
        """Return an integer or bool tensor in the float dtype of ``like``."""
        if value.kind == "bool" and value.scalar:
            return Value(Conditional(value.code, literal(1), literal(0)), scalar=True)
        if value.kind == "float" or value.scalar:
            return replace(value, kind="float")
        code = MethodCall(value.code, "to", (Attribute(self.like, "dtype"),))
        return replace(value, code=code, kind="float")

    def as_int(self, value: Value) -> Value:
        """Return a bool tensor as integers."""
        if value.kind != "bool":
            return value
        if value.scalar:
            return replace(self.as_float(value), kind="int")
        return replace(value.call("to", Name("torch.int64")), kind="int")

    def positions(self, i: Index) -> Value:
        """0, 1, ..., size(i) - 1."""
        device = Keyword("device", Attribute(self.like, "device"))
        return Value(FunctionCall("torch.arange", (Dim(i.extent), device)), (i,), "int")

    def as_tensor(self, value: Value) -> Value:
        return self.frame.expand(value, (), self.like) if value.scalar else value

    def only_where(self, condition: Expr, value: Value, order: Indices) -> Value:
        """Return the value where the condition holds, else 0."""
        parts = {c: self._level(c, order) for c in conditions_of(condition)}
        levels = [found for found in parts.values() if found is not None]
        tensor = value.kind == "float" and not value.scalar
        test = self.condition(condition, order) if levels and tensor else None
        # The value's code may already apply this mask as a guard.
        if test is None or test.code in subexpressions(value.code):
            return self.where(self.condition(condition, order), value, ZERO, order)
        others = [c for c, found in parts.items() if found is None]
        if others:
            value = self.where(self.condition(conjunction(others), order), value, ZERO, order)
        for x, t in levels:
            value, x = (self.frame.fit(v, order) for v in (value, x))
            code = above(x.code, t.code, value.code)
            value = replace(value, code=code, axes=broadcast(value.axes, x.axes))
        return value

    def _level(self, condition: Expr, order: Indices) -> tuple[Value, Value] | None:
        """Return the tensor x and the number t of a condition ``not x <= t``."""
        sides = above_number(condition)
        if sides is None:
            return None
        x, t = (self.lower(side, order) for side in sides)
        return (x, t) if x.kind == "float" and not x.scalar else None

    def where(
        self, test: Value, then: Value, other: Value, order: Indices, foreseen: bool = False
    ) -> Value:
        """Return one of two values; a test is ``foreseen`` if it holds nearly everywhere."""
        kind = common_kind([then, other])
        test, then, other = (self.frame.fit(v, order) for v in (test, then, other))
        if test.scalar:
            return self._chosen(test.code, then, other, kind)
        if then.scalar and other.scalar:
            if kind == "float":
                then = self.as_tensor(replace(then, kind=kind))
        elif kind == "float" and (then.scalar or other.scalar):
            # Integers beside a number would have torch's default type.
            then, other = (v if v.scalar else self.as_float(v) for v in (then, other))
        axes = broadcast(test.axes, broadcast(then.axes, other.axes))
        inside = _drop_inner_where(test.code, then.code)
        slow = not foreseen and follows_data(test.code, self.tensors)
        # torch.where is also slow if mask and value are both broadcast along each other's axes.
        least = max(len(test.indices), len(then.indices), len(other.indices))
        slow = kind == "float" and (slow or least < len(axes))
        name = "rt.where" if slow else "torch.where"
        return Value(FunctionCall(name, (test.code, inside, other.code)), axes, kind)

    def _chosen(self, test: Code, then: Value, other: Value, kind: Kind) -> Value:
        """Select one of two values by a Python bool; both get the joint shape."""
        axes = broadcast(then.axes, other.axes)
        both = then.scalar and other.scalar
        if kind == "float":
            then, other = self.as_float(then), self.as_float(other)
        if not both and (then.axes != other.axes or then.scalar or other.scalar):
            tensors = (self.as_tensor(replace(v, kind=kind)) for v in (then, other))
            then, other = (self.frame.fill(v, axes) for v in tensors)
        return Value(Conditional(test, then.code, other.code), axes, kind, both)


def _drop_inner_where(test: Code, code: Code) -> Code:
    """Return the code without an inner ``where`` of the same test, which holds here."""
    match code:
        case FunctionCall("torch.where" | "rt.where", (asked, then, Literal())) if asked is test:
            return code if isinstance(then, Literal) else then
    return code


def whole(n: int) -> Literal:
    """Return an integer literal; beyond int64 it is written as a float."""
    try:
        return literal(n) if abs(n) < 2**63 else literal(float(n))
    except OverflowError:
        raise LoweringError(
            f"a number of {len(str(n))} digits is out of the range of float64"
        ) from None


def neutral(let: Let) -> Value:
    """Return the neutral element of a let's reduction."""
    return Value(literal(let.reduction.neutral), scalar=True)


def fraction_value(value: Fraction) -> Value:
    if value.denominator == 1:
        return Value(whole(int(value)), kind="int", scalar=True)
    return Value(literal(float(value)), scalar=True)


def common_kind(values: Sequence[Value]) -> Kind:
    kinds = {v.kind for v in values}
    if "float" in kinds:
        return "float"
    return "int" if "int" in kinds else "bool"
