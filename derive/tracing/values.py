"""Values of nodes: axes, each a row-major tuple of indices, and an expression in the indices.

An axis of size 1 has no index. The indices of all axes of a value differ. An index that a reduction
binds occurs nowhere else, so that no substitution captures it.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import count
from typing import Any

import sympy

from derive.algebra.expr import RELATIONS
from derive.tracing.refusals import many

_numbers = count()


@dataclass(frozen=True)
class Atom:
    """An index; ``size`` is its number of values, a number or an expression of symbols."""

    size: sympy.Expr
    number: int

    @staticmethod
    def new(size: Any) -> Atom:
        return Atom(sympy.sympify(size), next(_numbers))


Axis = tuple[Atom, ...]


def _operator(symbol: str) -> Callable[[TracedNode, Any], TracedNode]:
    return lambda a, b: apply(symbol, a, b)


def _reflected(symbol: str) -> Callable[[TracedNode, Any], TracedNode]:
    return lambda b, a: apply(symbol, a, b)


class TracedNode:
    """An expression. The operators of Python make others, of nodes and numbers."""

    __add__, __radd__ = _operator("+"), _reflected("+")
    __sub__, __rsub__ = _operator("-"), _reflected("-")
    __mul__, __rmul__ = _operator("*"), _reflected("*")
    __truediv__, __rtruediv__ = _operator("/"), _reflected("/")
    __floordiv__, __mod__, __pow__ = _operator("//"), _operator("%"), _operator("**")
    __and__, __or__ = _operator("and"), _operator("or")
    __lt__, __le__, __gt__, __ge__ = map(_operator, ("<", "<=", ">", ">="))

    def __neg__(self) -> TracedNode:
        return apply("neg", self)

    def parts(self) -> tuple[TracedNode, ...]:
        return ()

    def with_parts(self, parts: Sequence[TracedNode]) -> TracedNode:
        return self


@dataclass(frozen=True)
class TracedNumber(TracedNode):
    value: float | int | bool | sympy.Expr


@dataclass(frozen=True)
class TracedParameter(TracedNode):
    """A number that is an argument."""

    name: str


@dataclass(frozen=True)
class Position(TracedNode):
    """The value of an index."""

    atom: Atom


@dataclass(frozen=True)
class Joined(TracedNode):
    """The row-major position of several parts, each with its size."""

    items: tuple[TracedNode, ...]
    sizes: tuple[sympy.Expr, ...]

    def parts(self) -> tuple[TracedNode, ...]:
        return self.items

    def with_parts(self, parts: Sequence[TracedNode]) -> TracedNode:
        return replace(self, items=tuple(parts))


@dataclass(frozen=True)
class TracedRead(TracedNode):
    """An element of a tensor with a name: a position for each of its axes."""

    name: str
    positions: tuple[TracedNode, ...]

    def parts(self) -> tuple[TracedNode, ...]:
        return self.positions

    def with_parts(self, parts: Sequence[TracedNode]) -> TracedNode:
        return replace(self, positions=tuple(parts))


@dataclass(frozen=True)
class TracedApply(TracedNode):
    """A function or an operator of the notation."""

    name: str
    args: tuple[TracedNode, ...]

    def parts(self) -> tuple[TracedNode, ...]:
        return self.args

    def with_parts(self, parts: Sequence[TracedNode]) -> TracedNode:
        return replace(self, args=tuple(parts))


@dataclass(frozen=True)
class TracedReduce(TracedNode):
    """A reduction over indices, where a condition holds."""

    kind: str
    atoms: tuple[Atom, ...]
    body: TracedNode
    condition: TracedNode | None = None

    def parts(self) -> tuple[TracedNode, ...]:
        return (self.body,) if self.condition is None else (self.body, self.condition)

    def with_parts(self, parts: Sequence[TracedNode]) -> TracedNode:
        return replace(self, body=parts[0], condition=parts[1] if len(parts) > 1 else None)


@dataclass(frozen=True)
class TracedValue:
    """The axes of a tensor and its element; ``kind`` is "float", "int" or "bool"."""

    axes: tuple[Axis, ...]
    node: TracedNode
    kind: str = "float"

    @property
    def atoms(self) -> tuple[Atom, ...]:
        return tuple(a for axis in self.axes for a in axis)

    def at(self, positions: Mapping[Atom, TracedNode]) -> TracedValue:
        """Return the value with indices replaced by positions."""
        return replace(self, node=substituted(self.node, positions))

    @property
    def shape(self) -> list[sympy.Expr]:
        return [*map(size_of, self.axes)]

    def place_of(self, dim: int) -> int:
        """Return the number of an axis, counted from the first."""
        return dim % len(self.axes) if self.axes else 0

    def with_axis(self, dim: int, axis: Axis) -> TracedValue:
        """Return the value with another axis in the place of one."""
        return replace(self, axes=(*self.axes[:dim], axis, *self.axes[dim + 1 :]))

    def without_axis(self, dim: int) -> TracedValue:
        return replace(self, axes=(*self.axes[:dim], *self.axes[dim + 1 :]))

    def with_unit_axis(self, dim: int) -> TracedValue:
        """Return the value with one more axis, of size 1."""
        return replace(self, axes=(*self.axes[:dim], (), *self.axes[dim:]))

    def fresh(self) -> TracedValue:
        """Return the value with new indices."""
        return self.renamed({a: Atom.new(a.size) for a in self.atoms})

    def renamed(self, names: Mapping[Atom, Atom]) -> TracedValue:
        axes = tuple(tuple(names.get(a, a) for a in axis) for axis in self.axes)
        return replace(self, axes=axes, node=substituted(self.node, position_map(names)))

    def split(self, parts: Mapping[Atom, Axis]) -> TracedValue:
        """Return the value with indices split into several, row-major."""
        if not parts:
            return self
        axes = tuple(tuple(p for a in axis for p in parts.get(a, (a,))) for axis in self.axes)
        inner = {a: joined(axis) for a, axis in parts.items()}
        return replace(self, axes=axes, node=substituted(self.node, inner))


def new_axis(size: Any) -> Axis:
    """Return an axis with an index of its own, without one if its size is 1."""
    return () if size == 1 else (Atom.new(size),)


def size_of(axis: Sequence[Atom]) -> sympy.Expr:
    return sympy.prod([a.size for a in axis], sympy.S.One)


def kind_of(tensor: Any) -> str:
    """Return the kind of a tensor of torch: "float", "int" or "bool"."""
    if tensor.is_floating_point():
        return "float"
    return "bool" if "bool" in str(tensor.dtype) else "int"


def joint_kind(values: Iterable[TracedValue]) -> str:
    """Return the kind of torch's promotion of several."""
    kinds = {v.kind for v in values}
    return next(k for k in ("float", "int", "bool") if k in kinds)


def input_value(name: str, axes: tuple[Axis, ...], kind: str) -> TracedValue:
    """Return the value of an input with these axes."""
    return TracedValue(axes, TracedRead(name, tuple(joined(a) for a in axes if a)), kind)


def position_map(names: Mapping[Atom, Atom]) -> dict[Atom, TracedNode]:
    return {a: Position(b) for a, b in names.items()}


def joined(axis: Sequence[Atom]) -> TracedNode:
    """Return the position on an axis of these indices."""
    if not axis:
        return TracedNumber(0)
    if len(axis) == 1:
        return Position(axis[0])
    return Joined(tuple(map(Position, axis)), tuple(a.size for a in axis))


def substituted(node: TracedNode, positions: Mapping[Atom, TracedNode]) -> TracedNode:
    """Replace indices by positions in an expression."""
    if isinstance(node, Position):
        return positions.get(node.atom, node)
    parts = node.parts()
    new = tuple(substituted(p, positions) for p in parts)
    if all(a is b for a, b in zip(parts, new, strict=True)):
        return node
    if isinstance(node, Joined):
        return _flat_joined(new, node.sizes)
    return _folded(node.with_parts(new))


def gap_of(a: TracedNode, b: TracedNode) -> int | None:
    """Return the sign of a - b if both are one position plus a number, and None if unknown."""
    one, other = _from_position(a), _from_position(b)
    if one is None or other is None or one[0] != other[0]:
        return None
    gap = sympy.expand(one[1] - other[1])
    return 0 if gap == 0 else 1 if gap.is_positive else -1 if gap.is_negative else None


def _from_position(node: TracedNode) -> tuple[Position, sympy.Expr] | None:
    """Return (a position, the number added to it), else None."""
    match node:
        case Position():
            return node, sympy.Integer(0)
        case TracedApply("+", (Position() as p, TracedNumber(n))) | TracedApply(
            "+", (TracedNumber(n), Position() as p)
        ):
            return p, sympy.sympify(n)
        case TracedApply("-", (Position() as p, TracedNumber(n))):
            return p, -sympy.sympify(n)
        case Joined((TracedNumber(n), Position() as p), (_, size)):
            return p, n * size
    return None


def _folded(node: TracedNode) -> TracedNode:
    """Fold arithmetic of integers, comparisons of known positions, and choices by known conditions.

    0 + a = a,  a*1 = a, and 0*a + b = b: the first turn of a loop reads a state of zeros.
    """
    match node:
        case TracedApply("+" | "-" | "*" as symbol, (TracedNumber(a), TracedNumber(b))) if (
            is_integer(a) and is_integer(b)
        ):
            return TracedNumber(_ARITHMETIC[symbol](a, b))
        case TracedApply("+", (a, b)) if _is_zero(a) or _is_zero(b):
            return b if _is_zero(a) else a
        case TracedApply("-", (a, b)) if _is_zero(b):
            return a
        case TracedApply("*", (TracedNumber(n), a) | (a, TracedNumber(n))) if (
            is_integer(n) and n == 1
        ):
            return a
        case TracedApply(symbol, (TracedNumber(a), TracedNumber(b))) if (
            symbol in RELATIONS and is_integer(a) and is_integer(b)
        ):
            return TracedNumber(bool(RELATIONS[symbol](a, b)))
        case TracedApply(
            "!=", (TracedApply("where", (c, TracedNumber(1), TracedNumber(0))), b)
        ) if _is_zero(b):
            return c
        case TracedApply(
            "maximum" | "minimum" as name, (TracedNumber(n), a) | (a, TracedNumber(n))
        ) if isinstance(n, float) and n == (-math.inf if name == "maximum" else math.inf):
            return a
        case TracedApply("not", (TracedNumber(bool() as truth),)):
            return TracedNumber(not truth)
        case TracedApply("not", (TracedApply("==" | "!=" as symbol, (a, b)),)):
            return TracedApply("!=" if symbol == "==" else "==", (a, b))
        case TracedApply("and" | "or" as name, (TracedNumber(bool() as truth), a)) | TracedApply(
            "and" | "or" as name, (a, TracedNumber(bool() as truth))
        ):
            return a if truth == (name == "and") else TracedNumber(truth)
        case TracedApply("==", (a, TracedNumber(n))) if is_integer(n) and not _may_equal(a, n):
            return TracedNumber(False)
        case TracedApply(symbol, (a, b)) if (
            symbol in RELATIONS and (gap := gap_of(a, b)) is not None
        ):
            return TracedNumber(bool(RELATIONS[symbol](gap, 0)))
        case TracedApply("where", (TracedNumber(bool() as holds), a, b)):
            return a if holds else b
        case TracedApply("where", (_, a, b)) if isinstance(a, _LEAVES) and a == b:
            return a
    return node


def _may_equal(node: TracedNode, n: Any) -> bool:
    """False if a position plus a number is never n: it is at least that number."""
    known = _from_position(node)
    if known is None or isinstance(node, Joined):
        return True
    last = known[0].atom.size - 1 + known[1]
    return not (n < known[1] or (last.is_Integer and n > last))


_LEAVES = Position | TracedNumber | TracedRead
_ARITHMETIC = {"+": operator.add, "-": operator.sub, "*": operator.mul}


def _is_zero(node: TracedNode) -> bool:
    """True for 0 and 0*a."""
    match node:
        case TracedNumber(float() as value):
            return value == 0
        case TracedNumber(n) | TracedApply("*", (TracedNumber(n), _) | (_, TracedNumber(n))):
            return is_integer(n) and n == 0
    return False


def is_integer(value: Any) -> bool:
    """True if the value of a number is an integer, in Python or in SymPy."""
    return not isinstance(value, bool | float) and bool(sympy.sympify(value).is_Integer)


def _flat_joined(items: Sequence[TracedNode], sizes: Sequence[sympy.Expr]) -> TracedNode:
    """Flatten a row-major position with parts that are row-major positions themselves."""
    found: list[tuple[TracedNode, sympy.Expr]] = []
    for item, size in zip(items, sizes, strict=True):
        if isinstance(item, Joined):
            found += zip(item.items, item.sizes, strict=True)
        else:
            found.append((item, size))
    return Joined(tuple(i for i, _ in found), tuple(s for _, s in found))


def walk(node: TracedNode) -> Iterator[TracedNode]:
    """Return all nodes of an expression, each before its parts.

    The value of a loop is nested as deeply as it has turns, so no call is made for each level.
    """
    left = [node]
    while left:
        node = left.pop()
        yield node
        left.extend(reversed(node.parts()))


def rewritten(node: TracedNode, change: Callable[[TracedNode], TracedNode]) -> TracedNode:
    """Apply a function to the nodes of an expression, from the leaves up."""
    parts = tuple(rewritten(p, change) for p in node.parts())
    return change(node.with_parts(parts) if parts else node)


def reduced(
    kind: str, atoms: Sequence[Atom], node: TracedNode, condition: TracedNode | None = None
) -> TracedNode:
    """Return a reduction over indices, which are renamed to occur nowhere else.

    Without indices it is the reduction of one element; under a condition, its sum.
    """
    if kind == "sum" and condition is None and isinstance(node, TracedNumber):
        return TracedNumber(node.value * sympy.prod([a.size for a in atoms])) if atoms else node
    own = {a: Atom.new(a.size) for a in atoms}
    if not own and kind == "norm2":
        return TracedApply("abs", (node,))
    if not own and kind in ("argmax", "argmin"):
        return TracedNumber(0)
    if not own:
        return node if condition is None else apply("where", condition, node, 0)
    test = None if condition is None else substituted(condition, position_map(own))
    return TracedReduce(kind, tuple(own.values()), substituted(node, position_map(own)), test)


def as_node(x: Any) -> TracedNode:
    return x if isinstance(x, TracedNode) else TracedNumber(x)


def apply(name: str, *args: Any) -> TracedNode:
    """Return a function or an operator of nodes and numbers."""
    return _folded(TracedApply(name, tuple(map(as_node, args))))


def pieces_of(
    flat: Sequence[Atom], parts_of: Sequence[Sequence[int]], pieces: Sequence[sympy.Expr]
) -> tuple[dict[Atom, Axis], dict[int, Atom]]:
    """Return (the indices that each split index becomes, the index of each piece)."""
    splits: dict[Atom, Axis] = {}
    atoms: dict[int, Atom] = {}
    for atom, parts in zip(flat, parts_of, strict=True):
        whole = len(parts) == 1
        made = (atom,) if whole else tuple(Atom.new(pieces[p]) for p in parts)
        atoms.update(zip(parts, made, strict=True))
        if not whole:
            splits[atom] = made
    return splits, atoms


def without_gradient(made: Any) -> Any:
    """Detach a value that is computed under torch.no_grad()."""
    match made:
        case tuple() | list():
            return type(made)(map(without_gradient, made))
        case TracedValue(_, TracedNumber() | TracedApply("detach")):
            return made
        case TracedValue(_, node, "float"):
            if any(isinstance(x, TracedApply) and x.name == "detach" for x in walk(node)):
                node = rewritten(node, _undetached)
            return replace(made, node=TracedApply("detach", (node,)))
    return made


def _undetached(node: TracedNode) -> TracedNode:
    match node:
        case TracedApply("detach", (inner,)):
            return inner
    return node


# -------------------------------------------------------------------------------------------- masks
# Elements that a boolean mask selects, whose number depends on the mask's values.
#
# x[m]         has all elements of the axes of m as one axis, under its mask: `held`
# x[m].mean()  is mean[n,c | m[n,c]](x[n,c])


def with_first_joined(x: TracedValue, count: int) -> TracedValue:
    """Return x with its first axes as one, as the elements that a mask of them selects have it."""
    return replace(x, axes=(tuple(a for axis in x.axes[:count] for a in axis), *x.axes[count:]))


def under_mask(mask: TracedNode | None, node: TracedNode) -> TracedNode:
    return node if mask is None else apply("held", mask, node)


def lifted_mask(value: TracedValue) -> tuple[TracedNode | None, TracedValue]:
    """Return (the mask in a value, the value without it).

    Masks of different axes, as those of p[a][:, None] - p[b], hold together.
    """
    if not any(isinstance(x, TracedApply) and x.name == "held" for x in walk(value.node)):
        return None, value
    found: list[TracedNode] = []

    def without(node: TracedNode, bound: frozenset[Atom]) -> TracedNode:
        if isinstance(node, TracedApply) and node.name == "held":
            mask, inner = node.args
            if not bound.isdisjoint(_chosen_by(mask)):
                raise many()
            found.extend(_conditions(mask))
            return without(inner, bound)
        if isinstance(node, TracedReduce):
            bound = bound | set(node.atoms)
        parts = node.parts()
        return node.with_parts([without(p, bound) for p in parts]) if parts else node

    node = without(value.node, frozenset())
    atoms, masks = value.atoms, dict[TracedNode, list[int]]()
    for one in dict.fromkeys(found):
        own = _chosen_by(one)
        if own.isdisjoint(atoms) or any(own & _chosen_by(other) for other in masks):
            # A single selected element, which depends on the values of the mask; or another mask.
            raise many()
        masks[one] = [n for n, a in enumerate(atoms) if a in own]
    ordered = sorted(masks, key=lambda one: masks[one])
    return all_of(ordered), replace(value, node=node)


def all_of(masks: Iterable[TracedNode | None]) -> TracedNode | None:
    """Return the mask that holds where all hold, None if there is none."""
    given = [m for m in masks if m is not None]
    return reduce(partial(apply, "and"), given) if given else None


def _conditions(mask: TracedNode) -> list[TracedNode]:
    """Return the parts of a mask that are conditions on different axes."""
    match mask:
        case TracedApply("and", (a, b)) if a == b or not _chosen_by(a) & _chosen_by(b):
            return [*_conditions(a), *_conditions(b)]
    return [mask]


def _chosen_by(mask: TracedNode) -> set[Atom]:
    """Return the indices of which a mask is a condition, without those that it binds."""
    bound = {a for p in walk(mask) if isinstance(p, TracedReduce) for a in p.atoms}
    return {p.atom for p in walk(mask) if isinstance(p, Position)} - bound


def mask_along(
    value: TracedValue, atoms: Sequence[Atom]
) -> tuple[TracedNode | None, TracedNode | None, TracedValue]:
    """Return (the mask on these axes, that on others, the value without them)."""
    mask, plain = lifted_mask(value)
    sides: tuple[list[TracedNode], list[TracedNode]] = [], []
    for one in () if mask is None else _conditions(mask):
        is_beside = _chosen_by(one).isdisjoint(atoms)
        if not is_beside and not _chosen_by(one) <= {*atoms}:
            raise many()
        sides[is_beside].append(one)
    along, beside = map(all_of, sides)
    return along, beside, plain


def with_outer_mask(value: TracedValue) -> TracedValue:
    """Return the value with its mask outermost."""
    mask, plain = lifted_mask(value)
    return replace(plain, node=under_mask(mask, plain.node))
