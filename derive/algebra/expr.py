"""The nested expression: what a person writes, what the oracle interprets, what is lowered.

Nodes are immutable and interned: equality is ``is``. Order never comes from an id or a hash but
from `sort_key`. `Reduce` and the flat `Term` of `derive.algebra.poly` bind indices; what renames
or replaces an index goes through `substitute`, which never captures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any, TypeVar, dataclass_transform
from weakref import WeakValueDictionary

from derive.budget import tick

__all__ = [
    "Access",
    "Add",
    "And",
    "Call",
    "Composite",
    "Const",
    "Delta",
    "Expr",
    "Guard",
    "Index",
    "Iverson",
    "Mul",
    "Node",
    "Not",
    "Num",
    "Or",
    "Param",
    "Placed",
    "Pow",
    "Reduce",
    "Rel",
    "Size",
    "Where",
    "accesses",
    "as_expr",
    "free_indices",
    "is_number",
    "node",
    "num",
    "sort_key",
    "tensors",
    "walk",
]

_Class = TypeVar("_Class")
_TABLE: WeakValueDictionary[tuple[Any, ...], Any] = WeakValueDictionary()


class _Interned(type):
    """Calling a node class returns the one node with that content."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if kwargs:
            names = cls.__match_args__[len(args) :]  # type: ignore[attr-defined]
            args += tuple(kwargs[name] for name in names if name in kwargs)
        missing = len(cls.__match_args__) - len(args)  # type: ignore[attr-defined]
        if missing:
            args += tuple(f.default for f in fields(cls)[-missing:])  # type: ignore[arg-type]
        key = (cls, *args)
        found = _TABLE.get(key)
        if found is None:
            tick()
            found = super().__call__(*args)
            _TABLE[key] = found
        return found


@dataclass_transform(eq_default=False, frozen_default=True)
def node(cls: type[_Class]) -> type[_Class]:
    """Class decorator of every node: immutable, compared by identity."""
    return dataclass(frozen=True, eq=False, slots=True, weakref_slot=True, repr=False)(cls)


class Node(metaclass=_Interned):
    """Base of everything interned: content in fields, identity by content."""

    __slots__ = ("_parts",)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(getattr(self, n) for n in type(self).__match_args__)  # type: ignore[attr-defined]

    def parts(self) -> tuple[Any, ...]:
        """The child nodes, in order."""
        try:
            return self._parts  # type: ignore[no-any-return, attr-defined]
        except AttributeError:
            found: list[Node] = []
        for name in type(self).__match_args__:  # type: ignore[attr-defined]
            value = getattr(self, name)
            if isinstance(value, Node):
                found.append(value)
            elif isinstance(value, tuple):
                found += (item for item in value if isinstance(item, Node))
        object.__setattr__(self, "_parts", tuple(found))
        return tuple(found)

    def map(self, f: Callable[[Any], Any]) -> Any:
        """The same node over mapped children; itself when none changed."""
        parts = self.parts()
        mapped = tuple(map(f, parts)) if parts else parts
        if mapped == parts:
            return self
        left = iter(mapped)
        content = []
        for name in type(self).__match_args__:  # type: ignore[attr-defined]
            value = getattr(self, name)
            if isinstance(value, Node):
                value = next(left)
            elif isinstance(value, tuple):
                value = tuple(next(left) if isinstance(item, Node) else item for item in value)
            content.append(value)
        return type(self)(*content)

    def __repr__(self) -> str:
        inside = ", ".join(repr(getattr(self, name)) for name in type(self).__match_args__)  # type: ignore[attr-defined]
        return f"{type(self).__name__}({inside})"


class Expr(Node):
    """Base of index expressions. Numbers, conditions and positions are all expressions."""

    __slots__ = ("_free", "_key", "_tensors")

    def bound(self) -> tuple[Index, ...]:
        """The indices this node binds in all of its children."""
        return ()

    def __add__(self, other: Expr | Fraction | int) -> Expr:
        return Add((self, as_expr(other)))

    def __radd__(self, other: Fraction | int) -> Expr:
        return Add((as_expr(other), self))

    def __sub__(self, other: Expr | Fraction | int) -> Expr:
        return Add((self, -as_expr(other)))

    def __rsub__(self, other: Fraction | int) -> Expr:
        return Add((as_expr(other), -self))

    def __mul__(self, other: Expr | Fraction | int) -> Expr:
        return Mul((self, as_expr(other)))

    def __rmul__(self, other: Fraction | int) -> Expr:
        return Mul((as_expr(other), self))

    def __truediv__(self, other: Expr | Fraction | int) -> Expr:
        return Mul((self, Pow(as_expr(other), num(-1))))

    def __rtruediv__(self, other: Fraction | int) -> Expr:
        return Mul((as_expr(other), Pow(self, num(-1))))

    def __pow__(self, exponent: Expr | Fraction | int) -> Expr:
        return Pow(self, as_expr(exponent))

    def __neg__(self) -> Expr:
        return Num(-self.value) if isinstance(self, Num) else Mul((num(-1), self))


@node
class Num(Expr):
    """An exact rational number."""

    value: Fraction


@node
class Const(Expr):
    """A named constant: ``pi`` or ``inf``."""

    name: str


@node
class Index(Expr):
    """An index i in [0, size(i)), also as a value: its position.

    ``extent`` names its size class; equal extents have equal sizes. A ``group`` stands for any
    number of neighbouring axes and is a multi-index everywhere else.
    """

    name: str
    extent: str
    group: bool = False

    def __repr__(self) -> str:
        return f"{'*' if self.group else ''}{self.name}:{self.extent}"


@node
class Size(Expr):
    """The number of values of every index with this extent."""

    extent: str


@node
class Param(Expr):
    """A parameter of the operation used as a number."""

    name: str


@node
class Access(Expr):
    """One element X[e1, ..., er] of an input or of an earlier equation."""

    tensor: str
    positions: tuple[Expr, ...]

    def __repr__(self) -> str:
        return f"{self.tensor}{list(self.positions)}"


@node
class Composite(Expr):
    """An axis (a b ...) read as its parts in row-major order: a*size(b) + b for two of them."""

    args: tuple[Expr, ...]


@node
class Guard(Expr):
    """A position that is made only where the condition holds, and is 0 elsewhere."""

    condition: Expr
    position: Expr


@node
class Add(Expr):
    """a + b + ..."""

    args: tuple[Expr, ...]


@node
class Mul(Expr):
    """a * b * ...; an `Iverson` factor that is 0 makes the product 0 whatever the rest is."""

    args: tuple[Expr, ...]


@node
class Pow(Expr):
    """base ** exponent."""

    base: Expr
    exponent: Expr


@node
class Call(Expr):
    """A scalar function of `derive.algebra.functions` applied to scalars; ``detach`` is one."""

    function: str
    args: tuple[Expr, ...]


@node
class Reduce(Expr):
    """kind over the indices of body, taken only where the condition (if any) holds.

    Kinds: sum mean prod max min amax amin logsumexp argmax argmin any all. ``max`` and ``min``
    have the same value as ``amax`` and ``amin`` and another gradient.
    """

    kind: str
    indices: tuple[Index, ...]
    body: Expr
    condition: Expr | None = None

    def bound(self) -> tuple[Index, ...]:
        return self.indices


@node
class Rel(Expr):
    """A comparison; op is one of ``== != < <= > >=``."""

    op: str
    left: Expr
    right: Expr


@node
class And(Expr):
    """Conjunction; an earlier condition guards the later ones. Empty: true."""

    args: tuple[Expr, ...]


@node
class Or(Expr):
    """Disjunction. Empty: false."""

    args: tuple[Expr, ...]


@node
class Not(Expr):
    """Negation."""

    arg: Expr


@node
class Iverson(Expr):
    """[condition]: 1 where it holds and 0 elsewhere. As a factor it guards the other factors."""

    condition: Expr


@node
class Where(Expr):
    """then where the condition holds, other elsewhere; the branch not taken is not evaluated."""

    condition: Expr
    then: Expr
    other: Expr


class Placed(Expr):
    """Base of what reads or fills an axis at one position, and computes with its other parts."""

    __slots__ = ()
    position: Expr


@node
class Delta(Placed):
    """Kronecker delta of an axis index and the position that was read on that axis."""

    axis: Expr
    position: Expr


def num(value: int | Fraction) -> Num:
    """The node of an exact number."""
    return Num(Fraction(value))


def as_expr(value: Expr | Fraction | int) -> Expr:
    """A number as a node; a node as it is."""
    return value if isinstance(value, Expr) else num(value)


def free_indices(e: Expr) -> frozenset[Index]:
    """The indices that e depends on: those not bound inside it."""
    try:
        return e._free  # type: ignore[no-any-return, attr-defined]
    except AttributeError:
        pass
    if isinstance(e, Index):
        found = frozenset((e,))
    else:
        found = frozenset().union(*(free_indices(part) for part in e.parts())) - set(e.bound())
    object.__setattr__(e, "_free", found)
    return found


def tensors(e: Expr) -> frozenset[str]:
    """The names of all tensors that are read inside e."""
    try:
        return e._tensors  # type: ignore[no-any-return, attr-defined]
    except AttributeError:
        found = frozenset().union(*(tensors(part) for part in e.parts()))
    if isinstance(e, Access):
        found |= {e.tensor}
    object.__setattr__(e, "_tensors", found)
    return found


def sort_key(e: Expr) -> tuple[Any, ...]:
    """A total order by structure alone, the same in every process."""
    try:
        return e._key  # type: ignore[no-any-return, attr-defined]
    except AttributeError:
        pass
    content = []
    for field in fields(e):  # type: ignore[arg-type]
        content.append(_content_key(getattr(e, field.name)))
    key = (type(e).__name__, *content)
    object.__setattr__(e, "_key", key)
    return key


def _content_key(value: Any) -> tuple[Any, ...]:
    if isinstance(value, Expr):
        return sort_key(value)
    if isinstance(value, tuple):
        return (len(value), *(_content_key(item) for item in value))
    if value is None:
        return ("",)
    if isinstance(value, Fraction):
        # In an order of integers and fractions alike; integers are compared much faster.
        return ("#", value.numerator if value.denominator == 1 else value)
    return (str(type(value).__name__), value)


def walk(e: Expr) -> Iterator[Expr]:
    """e and everything inside it, each once, in the order in which they are first met.

    What is shared is met once: nested conditions hold one another many times over.
    """
    met: set[Expr] = set()
    pending = [e]
    while pending:
        inner = pending.pop()
        if inner not in met:
            met.add(inner)
            yield inner
            pending.extend(reversed(inner.parts()))


def accesses(e: Expr, tensor: str | None = None) -> Iterator[Access]:
    """Every access inside e once, nested ones included."""
    for inner in walk(e):
        if isinstance(inner, Access) and (tensor is None or inner.tensor == tensor):
            yield inner


def is_number(e: Expr) -> bool:
    """Whether e is made of sizes, parameters and constants alone."""
    return not any(isinstance(inner, Access | Index) for inner in walk(e))
