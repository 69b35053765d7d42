"""What the reading of an operation is given: equations, names, sizes and axes; and the readings."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import chain
from typing import Any, TypeVar

import sympy

from derive.errors import DeriveError
from derive.tracing import values as tv
from derive.tracing.choices import InfiniteChoice, Outward, infinite_choice, leaves_out
from derive.tracing.graph import Graph, SourceStatement, name_of
from derive.tracing.names import fresh_name, is_simple, value_key
from derive.tracing.refusals import extracted, many, unread
from derive.tracing.sizes import SymbolicSizes

Translate = Callable[..., Any]
_F = TypeVar("_F", bound=Translate)

OPERATIONS: dict[str, Translate] = {}
"""Reading of each ATen operation, by its name."""


def operation(*names: str) -> Callable[[_F], _F]:
    """Register the reading of operations of these names."""

    def put(f: _F) -> _F:
        assert OPERATIONS.keys().isdisjoint(names), names
        OPERATIONS.update(dict.fromkeys(names, f))
        return f

    return put


def of_each_element(*names: str) -> Callable[[_F], _F]:
    """Register an elementwise reading, which also accepts elements selected by a mask."""

    def put(f: _F) -> _F:
        f.of_each_element = True  # type: ignore[attr-defined]
        return operation(*names)(f)

    return put


def is_of_each_element(f: Translate) -> bool:
    return getattr(f, "of_each_element", False)


# -------------------------------------------------------------------- equations


@dataclass(frozen=True)
class TracedEquation:
    """name[axes] = body, with the statement that it comes from."""

    name: str
    axes: tuple[tv.Axis, ...]
    body: tv.TracedNode
    kind: str = "float"
    place: SourceStatement | None = None


@dataclass(frozen=True)
class Computed:
    """A result without gradient that is an input: of which node, or which of its results."""

    node: Any
    part: int | None
    unread: DeriveError
    """Why it has no reading."""


Length = tuple[Any, tv.TracedValue | None]
"""The size of a piece of an axis with all its elements, and the piece's mask."""


class Context:
    """The equations so far, the node that is read, and operations on the axes of values."""

    def __init__(self, graph: Graph, inputs: dict[str, tv.TracedValue], taken: set[str]) -> None:
        self.sizes = SymbolicSizes(graph.shapes, graph.rounded)
        self.answers = graph.answers
        self.has_branches = graph.has_branches
        self.applied = graph.applied
        self.given = graph.given
        self.leaves_out = graph.leaves_out
        self.held = any(node.meta.get("held") for node in graph.graph.nodes)
        self.inputs = inputs
        self.taken = taken
        self.equations: list[TracedEquation] = []
        self.starts: list[str] = []
        self.computed: dict[str, Computed] = {}
        """The inputs that torch computes in each call."""
        self.distinct: dict[str, int] = {}
        """Names of positions, with the axis along which no two are equal; axes of size 1 have no
        number."""
        self.ascending: dict[str, int] = {}
        """The inputs that ascend along an axis, as boundaries do, with this axis."""
        self.written: set[str] = set()
        """The inputs that are positions of writes, where a negative one counts from the end."""
        self.outward = Outward()
        self.node: Any = None
        self.place: SourceStatement | None = None
        self.lengths: dict[Any, Sequence[Length]] = {}
        """The pieces of an axis, by torch's symbol for its size."""
        self.counts: dict[Any, tv.TracedValue] = {}
        """Numbers made of values, as that of elements that a mask selects, by torch's symbols."""
        self._piece = 0
        self._said: dict[tuple[Any, ...], str] = {}

    @contextmanager
    def at_node(self, node: Any, place: SourceStatement | None) -> Iterator[None]:
        """Make a node the current one for a while."""
        before = self.node, self.place
        self.node, self.place = node, place
        try:
            yield
        finally:
            self.node, self.place = before

    @contextmanager
    def in_piece(self, k: int) -> Iterator[None]:
        """Take the k-th piece of each axis that has pieces for the axis."""
        before, self._piece = self._piece, k
        try:
            yield
        finally:
            self._piece = before

    @property
    def called(self) -> str:
        """Name of the current operation."""
        return name_of(self.node.target)

    # ---------------------------------------------------------------- names

    def named(self, value: tv.TracedValue, stem: str) -> tv.TracedValue:
        """Return the value as a read of its equation, which is added at the first call."""
        mask, plain = tv.lifted_mask(value)
        if mask is not None:
            if self._is_at_positions(plain.node):
                # Elsewhere the position may be none, as that of a label to ignore.
                plain = replace(plain, node=tv.apply("where", mask, plain.node, 0))
            # The mask may be of more axes than the values.
            used = {x.atom for x in tv.walk(plain.node) if isinstance(x, tv.Position)}
            axes = tuple(tuple(a for a in axis if a in used) for axis in plain.axes)
            made = self.named(replace(plain, axes=axes), stem)
            own = made.renamed(dict(zip(made.atoms, chain(*axes), strict=True)))
            return replace(value, node=tv.under_mask(mask, own.node)).fresh()
        if (left := infinite_choice(value.node)) is not None:
            rest = self.named(replace(value, node=left.rest), stem)
            there = tv.position_map(dict(zip(value.atoms, rest.atoms, strict=True)))
            return replace(rest, node=left.moved(tv.substituted(left.condition, there), rest.node))
        said = value_key(value)
        name = self._said.get(said) or self.fresh(stem)
        if said not in self._said:
            self._said[said] = name
            self._stated(name, value)
        return _read_of(name, value).fresh()

    def _is_at_positions(self, node: tv.TracedNode) -> bool:
        """True if elements are read at positions that an input has, or what is computed of it."""
        computed = (e for e in self.equations if e.kind == "int")
        made = {e.name for e in computed if not isinstance(e.body, tv.TracedReduce)}
        names = (self.inputs.keys() | made) - self.distinct.keys()
        reads = (x for x in tv.walk(node) if isinstance(x, tv.TracedRead))
        inside = (x for read in reads for place in read.positions for x in tv.walk(place))
        return any(isinstance(x, tv.TracedRead) and x.name in names for x in inside)

    def named_variable(self, value: tv.TracedValue, stem: str) -> tv.TracedValue:
        """Name a value as the variable that the current statement assigns, if it does."""
        return self.named(value, (self.place and self.place.variable) or stem)

    def again_named(self, value: tv.TracedValue, stem: str) -> tv.TracedValue:
        """Return the value as a read of one more equation for it."""
        name = self.fresh(stem)
        self._stated(name, value)
        return _read_of(name, value)

    def _stated(self, name: str, value: tv.TracedValue) -> None:
        self.equations.append(TracedEquation(name, value.axes, value.node, value.kind, self.place))

    def fresh(self, stem: str) -> str:
        """Return an unused name."""
        return fresh_name(stem, self.taken)

    def simple(self, value: tv.TracedValue) -> tv.TracedValue:
        """Return the value, named if it is more than a read, for use in several places."""
        if is_simple(value.node):
            return value
        return self.named(value, "kept" if value.kind == "bool" else "h")

    # ---------------------------------------------------------------- values

    def value(self, x: Any) -> tv.TracedValue:
        """Return a number as a value, and a value as it is."""
        if isinstance(x, tv.TracedValue):
            return x
        if isinstance(x, sympy.Rel):
            a, b = (e if self.is_held(e) else self.sizes.plain(e) for e in x.args)
            test = self.elementwise(partial(tv.apply, x.rel_op), a, b)
            return replace(test, node=tv.apply("where", test.node, 1, 0), kind="int")
        whole = x.is_integer if isinstance(x, sympy.Expr) else isinstance(x, int)
        kind = "bool" if isinstance(x, bool) else "int" if whole else "float"
        if isinstance(x, sympy.Expr) and x.is_Integer:
            x = int(x)
        if isinstance(x, sympy.Expr) and self.is_held(x):
            return self._counted(x)
        if isinstance(x, sympy.Expr) and not self.sizes.are_known(x):
            raise extracted()
        return tv.TracedValue((), tv.TracedNumber(x), kind)

    def size(self, n: Any) -> sympy.Expr:
        """Return a number of torch as an expression: of sizes, or of what tensors hold."""
        return n.node.expr if self.is_held(n.node.expr) else self.sizes.of(n)

    def is_held(self, e: sympy.Expr) -> bool:
        """True of a number made of values of tensors, and of a truth."""
        return isinstance(e, sympy.Rel) or not self.counts.keys().isdisjoint(e.free_symbols)

    def _counted(self, x: sympy.Expr) -> tv.TracedValue:
        """Return arithmetic of numbers made of values as values."""
        if x in self.counts:
            return self.counts[x].fresh()
        name, args = x.func.__name__, [*map(self.value, x.args)]
        if name == "Pow" and x.exp == -1:
            name, args = "FloatTrueDiv", [self.value(1.0), args[0]]
        if name not in _ARITHMETIC:
            raise extracted()
        kind = "float" if "Float" in name or "True" in name or "Unary" in name else None
        if len(args) == 1:
            return replace(args[0], node=_ARITHMETIC[name](args[0].node), kind=kind or args[0].kind)
        return reduce(partial(self.elementwise, _ARITHMETIC[name], kind=kind), args)

    def shape(self, node: Any = None) -> list[sympy.Expr]:
        """Return the sizes of a node's result."""
        shape = (node or self.node).meta["val"].shape
        return [self._piece_of(n) or self.sizes.of(n) for n in shape]

    def counted_shape(self) -> list[sympy.Expr]:
        """Return the sizes of the current node's first result, rounded down for all sizes."""
        return [self._piece_of(n) or self.sizes.counted(n) for n in self.made.shape]

    @property
    def made(self) -> Any:
        """The first result of the current node, as torch made it."""
        made = self.node.meta["val"]
        return made[0] if isinstance(made, tuple | list) else made

    def _piece_of(self, size: Any) -> sympy.Expr | None:
        """Return the size of the current piece; None if the axis has no pieces."""
        lengths = self.lengths.get(symbol_of(size))
        return lengths[self._piece if len(lengths) > 1 else 0][0] if lengths else None

    def start(self) -> str:
        """Return the parameter, 0 as given, that offsets reads of a part of a longer axis."""
        if not self.starts:
            self.starts.append(self.fresh("start"))
        return self.starts[0]

    def elementwise(
        self, f: Callable[..., tv.TracedNode], *args: Any, kind: str | None = None
    ) -> tv.TracedValue:
        """Return f of the elements of aligned values."""
        values = self.aligned(*map(self.value, args))
        node = f(*(v.node for v in values))
        if any(leaves_out(v.node) for v in values):
            node = self.outward(node)
        return tv.TracedValue(self.axes_of(values), node, kind or tv.joint_kind(values))

    def masked(self, x: tv.TracedValue, mask: tv.TracedValue) -> tv.TracedValue:
        """Return the elements of x where a mask of its first axes holds, along one axis."""
        for a, b in zip(x.axes, mask.axes, strict=False):
            if bool(a) != bool(b):
                raise many()
        wide = replace(mask, axes=(*mask.axes, *((),) * (len(x.axes) - len(mask.axes))))
        x, wide = self.aligned(x, wide)
        x = tv.with_first_joined(x, len(mask.axes))
        count = tv.reduced("sum", mask.atoms, tv.apply("where", mask.node, 1, 0))
        symbol = symbol_of(self.made.shape[0])
        if symbol is not None and not self.sizes.are_known(symbol):
            self.counts[symbol] = tv.TracedValue((), count, "int")
        return replace(x, node=tv.under_mask(wide.node, x.node))

    # ---------------------------------------------------------------- axes

    def aligned(self, *values: tv.TracedValue) -> list[tv.TracedValue]:
        """Return the values broadcast from the right, with shared indices; size 1 has none."""
        rank = max(len(v.axes) for v in values)
        found = [
            replace(v, axes=((),) * (rank - len(v.axes)) + v.axes)
            for v in (value.fresh() for value in values)
        ]
        for n in range(rank):
            leader = next((k for k, v in enumerate(found) if v.axes[n]), None)
            if leader is None:
                continue
            for k in range(leader + 1, len(found)):
                if found[k].axes[n]:
                    found = self._joined_axis(found, leader, k, n)
        return found

    def _joined_axis(
        self, values: list[tv.TracedValue], leader: int, k: int, n: int
    ) -> list[tv.TracedValue]:
        """Return the values, with the indices of axis n shared by the leader and the k-th."""
        one, other = values[leader].axes[n], values[k].axes[n]
        ours, theirs, pieces = self.sizes.refined([a.size for a in one], [a.size for a in other])
        splits, atoms = tv.pieces_of(one, ours, pieces)
        names: dict[tv.Atom, tv.Atom] = {}
        for atom, parts in zip(other, theirs, strict=True):
            if len(parts) == 1:
                names[atom] = atoms[parts[0]]
            else:
                splits[atom] = tuple(atoms[p] for p in parts)
        return [v.split(splits).renamed(names) for v in values]

    def axes_of(self, values: Sequence[tv.TracedValue]) -> tuple[tv.Axis, ...]:
        """Return the axes of a result of aligned values."""
        return tuple(
            next((v.axes[n] for v in values if v.axes[n]), ()) for n in range(len(values[0].axes))
        )

    def regrouped(self, value: tv.TracedValue, shape: Sequence[sympy.Expr]) -> tv.TracedValue:
        """Reshape a value to these sizes, row-major."""
        flat = value.atoms
        targets = [n for n in shape if n != 1]
        try:
            ours, theirs, pieces = self.sizes.refined([a.size for a in flat], targets)
        except DeriveError:
            if (made := self._counted_anew(value, shape)) is None:
                raise
            return made
        split = ((a, [pieces[p] for p in own]) for a, own in zip(flat, ours, strict=True))
        if any(not self.sizes.make_up(a.size, own) and not _has_axis(value, a) for a, own in split):
            # A read of an axis of its own tells that the parts divide it.
            value = self.named(value, "whole")
            flat = value.atoms
        splits, atoms = tv.pieces_of(flat, ours, pieces)
        value = value.split(splits)
        groups = iter(tuple(atoms[p] for p in parts) for parts in theirs)
        return replace(value, axes=tuple(() if n == 1 else next(groups) for n in shape))

    def _counted_anew(
        self, value: tv.TracedValue, shape: Sequence[sympy.Expr]
    ) -> tv.TracedValue | None:
        """Reshape across row boundaries, by reading at row-major positions; None if sizes differ.

        Leading and trailing axes that do not change stay as they are.
        """
        sizes = value.shape
        first = 0
        while first < min(map(len, (sizes, shape))) and sizes[first] == shape[first]:
            first += 1
        last = 0
        while last < min(map(len, (sizes, shape))) - first and sizes[-1 - last] == shape[-1 - last]:
            last += 1
        end = len(sizes) - last
        inner = tuple(a for axis in value.axes[first:end] for a in axis)
        wanted = shape[first : len(shape) - last]
        if not self.sizes.equal(sympy.prod(sizes[first:end]), sympy.prod(wanted)):
            return None
        axes = (*value.axes[:first], inner, *value.axes[end:])
        whole, atom = self.single(replace(value, axes=axes), first)
        made = [*map(tv.new_axis, wanted)]
        node = tv.substituted(whole.node, {atom: tv.joined([a for axis in made for a in axis])})
        axes = (*whole.axes[:first], *made, *whole.axes[first + 1 :])
        return tv.TracedValue(axes, node, value.kind)

    def single(self, value: tv.TracedValue, dim: int) -> tuple[tv.TracedValue, tv.Atom]:
        """Merge the indices of an axis into one; return the value and that index."""
        axis = value.axes[dim]
        if len(axis) == 1:
            return value, axis[0]
        if not axis:
            raise unread("an axis of size 1 is not supported here")
        if (left := infinite_choice(value.node)) is not None:
            return self._single_apart(value, left, dim)
        value = self.named(value, "joined")
        atom = tv.Atom.new(value.shape[dim])
        kept = [n for n, own in enumerate(value.axes) if own]
        assert isinstance(value.node, tv.TracedRead)
        positions = list(value.node.positions)
        positions[kept.index(dim)] = tv.Position(atom)
        node = tv.TracedRead(value.node.name, tuple(positions))
        return replace(value.with_axis(dim, (atom,)), node=node), atom

    def with_one_index(self, value: tv.TracedValue, *dims: int) -> tv.TracedValue:
        """Return the value with at most one index on each of these axes."""
        for dim in dims:
            value = self.single(value, dim)[0] if value.axes[dim] else value
        return value

    def _single_apart(
        self, value: tv.TracedValue, left: InfiniteChoice, dim: int
    ) -> tuple[tv.TracedValue, tv.Atom]:
        """Merge the indices of an axis in a choice with an infinite branch.

        No equation can hold the infinite branch, so the finite branch and the condition are merged.
        """
        rest, atom = self.single(replace(value, node=left.rest), dim)
        there = _other_positions(value, rest, dim)
        whole = tv.joined(value.axes[dim])
        test = tv.rewritten(left.condition, lambda x: tv.Position(atom) if x == whole else x)
        if {x.atom for x in tv.walk(test) if isinstance(x, tv.Position)} & {*value.axes[dim]}:
            own, place = self.single(replace(value, node=left.condition, kind="bool"), dim)
            there = _other_positions(own, rest, dim)
            test = tv.substituted(own.node, {place: tv.Position(atom)})
        return replace(rest, node=left.moved(tv.substituted(test, there), rest.node)), atom


def _read_of(name: str, value: tv.TracedValue) -> tv.TracedValue:
    """Return a value as a read of the equation of this name."""
    return replace(value, node=tv.TracedRead(name, tuple(map(tv.joined, filter(None, value.axes)))))


_ARITHMETIC: dict[str, Callable[..., tv.TracedNode]] = {
    "Add": operator.add,
    "Mul": operator.mul,
    **dict.fromkeys(("FloatTrueDiv", "IntTrueDiv"), operator.truediv),
    **dict.fromkeys(("Pow", "FloatPow", "PowByNatural"), operator.pow),
    **dict.fromkeys(("FloorDiv", "CleanDiv"), operator.floordiv),
    **dict.fromkeys(("Mod", "PythonMod"), operator.mod),
    "ToFloat": lambda x: x,
    **{name: partial(tv.apply, name.lower()) for name in ("Abs", "exp", "log")},
    **{f"OpaqueUnaryFn_{name}": partial(tv.apply, name) for name in ("sqrt", "exp", "log")},
    **{name: partial(tv.apply, f"{name.lower()}imum") for name in ("Max", "Min")},
}
"""torch's and SymPy's arithmetic of numbers, by the names of its classes."""


def symbol_of(size: Any) -> Any:
    """Return torch's symbol for a size, None for a number."""
    made: Any = getattr(getattr(size, "node", None), "expr", None)
    if type(made).__name__ == "Max" and made.args[0] == 0:  # torch's own, of a diagonal
        return made.args[1]
    return made


def _other_positions(
    one: tv.TracedValue, other: tv.TracedValue, dim: int
) -> dict[tv.Atom, tv.TracedNode]:
    """Return the positions of one value's indices in another one, except on an axis."""
    pairs = zip(one.without_axis(dim).atoms, other.without_axis(dim).atoms, strict=True)
    return tv.position_map(dict(pairs))


def _has_axis(value: tv.TracedValue, atom: tv.Atom) -> bool:
    """True if an index reads an axis of its own size, of which parts must be divisors."""
    at = tv.Position(atom)
    reads = (x for x in tv.walk(value.node) if isinstance(x, tv.TracedRead))
    positions = (p for x in reads for p in x.positions)
    return any(at in (p.parts() if isinstance(p, tv.Joined) else (p,)) for p in positions)
