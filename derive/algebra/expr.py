"""Nested expressions: the form that is written, interpreted by the oracle, and lowered.

Order comes from `sort_key` alone. `Reduce` and the flat `Term` bind indices; use `substitute` to
replace an index.
"""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import lru_cache
from itertools import islice
from typing import Any, ClassVar, TypeVar, dataclass_transform
from weakref import ref

from derive.budget import tick

# ----------------------------------------------------------------------------------------- hashcons
# Hash-consed tree nodes: immutable and interned, so that equality is ``is``.

_Class = TypeVar("_Class")
_Vertex = TypeVar("_Vertex", bound=Hashable)


class _NodeReference(ref["Node"]):
    """A weak reference to an interned node."""

    __slots__ = ("content",)
    content: tuple[Any, ...]


_TABLE: dict[tuple[Any, ...], _NodeReference] = {}
"""The node of each class and content."""

_LATEST: deque[Node] = deque(maxlen=2**15)
"""Strong references to the latest nodes: a dropped node is often needed again soon."""


def _forget(known: _NodeReference) -> None:
    if _TABLE.get(known.content) is known:
        del _TABLE[known.content]


@dataclass_transform(eq_default=False, frozen_default=True)
def node(cls: type[_Class]) -> type[_Class]:
    """Class decorator of every node: immutable, compared by identity."""
    made: Any = dataclass(
        init=False, frozen=True, eq=False, slots=True, weakref_slot=True, repr=False
    )(cls)
    made.defaults = tuple(f.default for f in fields(made))
    made.puts = tuple(getattr(made, name).__set__ for name in made.__match_args__)
    return made  # type: ignore[no-any-return]


class Node:
    """Base of all interned nodes: content in fields, identity by content.

    Each field is a node, a tuple of nodes, or a plain value.
    """

    __slots__ = ("_parts",)
    __match_args__: ClassVar[tuple[str, ...]]
    defaults: ClassVar[tuple[Any, ...]]
    puts: ClassVar[tuple[Callable[[Any, Any], None], ...]]

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """The one node with that content."""
        if len(args) != len(cls.puts):
            names = cls.__match_args__[len(args) :]
            args += tuple(map(kwargs.get, names, cls.defaults[len(args) :]))
        return interned(cls, (cls, *args), args)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(getattr(self, name) for name in self.__match_args__)

    def parts(self) -> tuple[Any, ...]:
        """The child nodes, in order."""
        try:
            return self._parts  # type: ignore[no-any-return, attr-defined]
        except AttributeError:
            found: tuple[Node, ...] = ()
        for name in self.__match_args__:
            value = getattr(self, name)
            if isinstance(value, Node):
                found += (value,)
            elif isinstance(value, tuple):
                found += value  # the same tuple if it is the first
        object.__setattr__(self, "_parts", found)
        return found

    def map(self, f: Callable[[Any], Any]) -> Any:
        """The same node over mapped children; itself if none changed."""
        parts = self.parts()
        if not parts:
            return self
        mapped = tuple(map(f, parts))
        if mapped == parts:
            return self
        left = iter(mapped)
        content = []
        for name in self.__match_args__:
            value = getattr(self, name)
            if isinstance(value, Node):
                value = next(left)
            elif isinstance(value, tuple):
                value = tuple(islice(left, len(value)))
            content.append(value)
        return type(self)(*content)

    def __repr__(self) -> str:
        inside = ", ".join(repr(getattr(self, name)) for name in self.__match_args__)
        return f"{type(self).__name__}({inside})"


def interned(cls: type[Node], content: tuple[Any, ...], args: tuple[Any, ...]) -> Any:
    """Return the node with that content, created from ``args`` if needed."""
    known = _TABLE.get(content)
    found = None if known is None else known()
    if found is None:
        tick()
        found = object.__new__(cls)
        for put, value in zip(cls.puts, args, strict=True):
            put(found, value)
        known = _TABLE[content] = _NodeReference(found, _forget)
        known.content = content
        _LATEST.append(found)
    return found


# --------------------------------------------------------------------------------------------- expr


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

    def __new__(cls, value: Fraction) -> Num:
        """Intern by numerator and denominator, which hash faster than a fraction."""
        return interned(cls, (cls, *value.as_integer_ratio()), (value,))  # type: ignore[no-any-return]


@node
class Const(Expr):
    """A named constant: ``pi`` or ``inf``."""

    name: str


@node
class Index(Expr):
    """An index i in [0, size(i)); as a value, its position.

    ``extent`` names its size class; equal extents have equal sizes. A ``group`` represents any
    number of neighboring axes and is a multi-index everywhere else.
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
    """An operand evaluated only where the condition holds, and a harmless number elsewhere.

    The number is 0 for a position, and 1 for the operand of a partial function.
    """

    condition: Expr
    position: Expr
    elsewhere: Expr = Num(Fraction(0))


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
    """kind over the indices of body, restricted to where the condition (if any) holds.

    Kinds: sum mean prod max min amax amin logsumexp argmax argmin any all. ``max`` and ``min`` have
    the same value as ``amax`` and ``amin`` and another gradient.
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


RELATIONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
"""The comparison of each op of a `Rel`, on numbers or elementwise on tensors."""

MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
"""The op with its sides exchanged."""

DENIED = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}
"""The op that holds where this one does not, for numbers other than nan."""


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


class PositionedExpr(Expr):
    """Base of nodes that read or scatter at one position of an axis, with other operands."""

    __slots__ = ()
    position: Expr


@node
class Delta(PositionedExpr):
    """Kronecker delta of an axis index and the position that was read on that axis."""

    axis: Expr
    position: Expr


def num(value: int | Fraction) -> Num:
    """The node of an exact number."""
    return Num(Fraction(value))


def as_expr(value: Expr | Fraction | int) -> Expr:
    """Return a number as a node, and a node unchanged."""
    return value if isinstance(value, Expr) else num(value)


def sum_of(args: Sequence[Expr]) -> Expr:
    """a + b + ..., simplified to the operand if there is one, and to 0 for none."""
    return (args[0] if len(args) == 1 else Add(tuple(args))) if args else num(0)


def product_of(args: Sequence[Expr]) -> Expr:
    """a * b * ..., simplified to the operand if there is one, and to 1 for none."""
    return (args[0] if len(args) == 1 else Mul(tuple(args))) if args else num(1)


def flat_operands(e: Expr, kind: type[Add | Mul]) -> Iterator[Expr]:
    """The terms of nested sums, or the factors of nested products; any other e is its only one."""
    pending = [e]
    while pending:
        part = pending.pop()
        if isinstance(part, kind):
            pending.extend(reversed(part.args))
        else:
            yield part


def factors_of(e: Expr) -> tuple[Expr, ...]:
    """The factors of a product; any other expression is its only factor."""
    return e.args if isinstance(e, Mul) else (e,)


_NO_INDICES: frozenset[Index] = frozenset()


def free_indices(e: Expr) -> frozenset[Index]:
    """The indices that e depends on: those not bound inside it."""
    try:
        return e._free  # type: ignore[no-any-return, attr-defined]
    except AttributeError:
        pass
    if isinstance(e, Index):
        found = frozenset((e,))
    else:
        found = _NO_INDICES.union(*map(free_indices, e.parts()))
        bound = e.bound()
        if bound:
            found = found.difference(bound)
    object.__setattr__(e, "_free", found)
    return found


def indices_of(parts: Iterable[Expr]) -> frozenset[Index]:
    """The indices that any of the parts depends on."""
    return frozenset().union(*map(free_indices, parts))


def tensors(e: Expr) -> frozenset[str]:
    """The names of all tensors that are read inside e."""
    try:
        return e._tensors  # type: ignore[no-any-return, attr-defined]
    except AttributeError:
        own = {e.tensor} if isinstance(e, Access) else ()
        found = frozenset(own).union(*map(tensors, e.parts()))
    object.__setattr__(e, "_tensors", found)
    return found


def sort_key(e: Expr) -> tuple[Any, ...]:
    """A total order by structure alone, the same in every process."""
    try:
        return e._key  # type: ignore[no-any-return, attr-defined]
    except AttributeError:
        key = (type(e).__name__, *(_content_key(getattr(e, name)) for name in e.__match_args__))
    object.__setattr__(e, "_key", key)
    return key


def _content_key(value: Any) -> tuple[Any, ...]:
    if isinstance(value, Expr):
        return sort_key(value)
    if isinstance(value, tuple):
        return (len(value), *map(sort_key, value))
    if value is None:
        return ("",)
    if isinstance(value, Fraction):  # integers are compared much faster
        return ("#", value.numerator if value.denominator == 1 else value)
    return (type(value).__name__, value)


def walk(e: Expr, parts: Callable[[Expr], Sequence[Expr]] = lambda e: e.parts()) -> Iterator[Expr]:
    """e and all its subexpressions, each once, in preorder; ``parts`` may leave some out."""
    met: set[Expr] = set()
    pending = [e]
    while pending:
        inner = pending.pop()
        if inner not in met:
            met.add(inner)
            yield inner
            pending.extend(reversed(parts(inner)))


def inside_out(
    roots: Iterable[_Vertex], following: Callable[[_Vertex], Iterable[_Vertex]]
) -> Iterator[_Vertex]:
    """All that is reached from the roots of a graph, each once, after what follows it.

    It needs no recursion: a network is deeper than Python's stack.
    """
    met: set[_Vertex] = set()
    pending = [(root, False) for root in roots][::-1]
    while pending:
        vertex, is_done = pending.pop()
        if is_done:
            yield vertex
        elif vertex not in met:
            met.add(vertex)
            pending.append((vertex, True))
            pending += ((other, False) for other in following(vertex))


def accesses(e: Expr, tensor: str | None = None) -> Iterator[Access]:
    """Every access inside e once, nested ones included."""
    if not tensors(e):
        return iter(())
    found = _accesses(e)
    return iter(found) if tensor is None else (a for a in found if a.tensor == tensor)


@lru_cache(maxsize=2**12)
def _accesses(e: Expr) -> tuple[Access, ...]:
    return tuple(inner for inner in walk(e) if isinstance(inner, Access))


def is_number(e: Expr) -> bool:
    """True if e has only sizes, parameters and constants."""
    if tensors(e) or free_indices(e):
        return False
    return not any(isinstance(inner, Index) for inner in walk(e))
