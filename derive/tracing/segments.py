"""Sums, maxima and means at integer positions, and writes there.

zeros(N).index_add(0, s, x)   is sum[k | s[k] == n](x[k])
x.scatter(1, s, 1.0)          is where(any[k](s[n,k] == c), 1, x[n,c])
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import torch

from derive.tracing import values as tv
from derive.tracing.choices import conjunction, where
from derive.tracing.context import Context, operation
from derive.tracing.graph import held_tensor
from derive.tracing.refusals import unread
from derive.tracing.values import reduced

_REPEATED = (
    "a write to repeated positions keeps an undefined one of the values; add them (index_add, "
    "scatter_add), or reduce them (scatter_reduce)"
)


_OF_NOTHING = {"amax": -float("inf"), "amin": float("inf"), "prod": 1}
"""The value of a position that changes no reduction, included or not."""


def parts_at(
    context: Context, position: tv.TracedNode, sizes: Sequence[Any]
) -> Sequence[tv.TracedNode] | None:
    """Return the parts of a row-major position, if they are those of an axis of these sizes."""
    match position:
        case tv.Joined(parts, own) if len(own) == len(sizes):
            alike = all(context.sizes.equal(a, b) for a, b in zip(own, sizes, strict=True))
            return parts if alike else None
    return None


def _split_as(
    context: Context, x: tv.TracedValue, dim: int, index: tv.TracedValue
) -> tv.TracedValue:
    """Return x with an axis of parts as row-major positions have them, else of one index."""
    axis, position = x.axes[dim], tv.lifted_mask(index)[1].node
    if parts_at(context, position, [a.size for a in axis]) is not None:
        return x
    x = context.with_one_index(x, dim)
    if isinstance(position, tv.Joined) and axis:
        parts = tuple(map(tv.Atom.new, position.sizes))
        if context.sizes.equal(tv.size_of(parts), tv.size_of(axis)):
            return x.split({x.axes[dim][0]: parts})
    return x


class MatchedPositions:
    """Source elements written to position n: those at ``atoms`` where ``test`` holds."""

    def __init__(
        self,
        context: Context,
        x: tv.TracedValue,
        dims: Sequence[int],
        indices: Sequence[tv.TracedValue],
        source: tv.TracedValue,
    ) -> None:
        """``source`` and ``indices`` share leading axes; the axes of x outside ``dims`` follow."""
        for n, index in zip(dims, indices, strict=True):
            x = _split_as(context, x, n, index)
        lead = len(indices[0].axes) - (len(x.axes) - len(dims))
        kept = [n for n in range(len(x.axes)) if n not in dims]
        order = [*dims, *kept]
        around: tuple[tv.Axis, ...] = ((),) * len(dims)
        wide = [replace(x, axes=(*((),) * lead, *(x.axes[n] for n in order)))]
        for v in (source, *indices):
            rest = len(x.axes) - len(dims)
            v = replace(v, axes=((),) * (lead + rest - len(v.axes)) + v.axes)
            wide.append(replace(v, axes=(*v.axes[:lead], *around, *v.axes[lead:])))
        base, source, *indices = context.aligned(*wide)
        axes = context.axes_of([base, source, *indices])
        back = {n: axes[lead + k] for k, n in enumerate(order)}
        self.axes = tuple(back[n] for n in range(len(order)))
        self.atoms: list[tv.Atom] = [a for axis in axes[:lead] for a in axis]
        self.base, self.source, self.kind = base.node, source.node, base.kind
        tests = []
        for v in (source, *indices):
            # Elements outside a mask match no position.
            if (mask := tv.lifted_mask(v)[0]) is not None and mask not in tests:
                tests.append(mask)
        source, *indices = (tv.lifted_mask(v)[1] for v in (source, *indices))
        self.source = source.node
        for i, n in zip(indices, dims, strict=True):
            at = tv.joined(back[n])
            parts = parts_at(context, i.node, [a.size for a in back[n]])
            pairs = [(i.node, at)] if parts is None else zip(parts, at.parts(), strict=True)
            tests += [tv.apply("==", a, b) for a, b in pairs if a != b]
        tests = self._without_own_positions(context, tests)
        self.test = conjunction(tests)

    def _without_own_positions(
        self, context: Context, tests: list[tv.TracedNode]
    ) -> list[tv.TracedNode]:
        """Drop k == n if k runs over all positions n: exactly one k matches each n.

        Sizes that are equal in the examples count as equal.
        """
        for alike in (context.sizes.equal, context.sizes.unify):
            for test in tests:
                match test:
                    case tv.TracedApply("==", (tv.Position(own), tv.Position(at))) if (
                        own in self.atoms
                    ):
                        if not alike(own.size, at.size):
                            continue
                        inner: dict[tv.Atom, tv.TracedNode] = {own: tv.Position(at)}
                        self.atoms.remove(own)
                        self.source = tv.substituted(self.source, inner)
                        left = [tv.substituted(t, inner) for t in tests if t is not test]
                        return self._without_own_positions(context, left)
        return tests

    def reduced(self, kind: str) -> tv.TracedNode:
        return reduced(kind, self.atoms, self.source, self.test)

    def any(self) -> tv.TracedNode:
        if self.test is None:
            return tv.TracedNumber(True)
        return reduced("any", self.atoms, self.test) if self.atoms else self.test

    def is_unique(self, context: Context) -> bool:
        """True if at most one element matches, as one j of order[n,j] == e by a sort along j."""
        own = tv.Position(self.atoms[0])
        for test in _all_tests(context, self.test) if len(self.atoms) == 1 else ():
            match test:
                case tv.TracedApply("==", (tv.TracedRead(name, places), other)):
                    rest = [*places, other]
                    along = rest.pop(context.distinct[name]) if name in context.distinct else None
                    if along == own and not any(own == x for e in rest for x in tv.walk(e)):
                        return True
        return False

    def put(self, node: tv.TracedNode) -> tv.TracedValue:
        return tv.TracedValue(self.axes, node, self.kind)

    def by(self, kind: str, with_base: bool) -> tv.TracedValue:
        """Reduce the values at each position, ``with_base`` including the present one."""
        number = self.base.value if isinstance(self.base, tv.TracedNumber) else None
        zero = number == 0
        if kind == "sum" and (with_base or zero):
            made = self.reduced("sum")
            return self.put(made if zero else self.base + made)
        if not self.atoms:
            made = self.source
        elif number == _OF_NOTHING.get(kind, "none"):
            return self.put(self.reduced(kind))
        elif kind == "mean" and with_base:
            count = 1 + reduced("sum", self.atoms, tv.TracedNumber(1), self.test)
            return self.put((self.base + self.reduced("sum")) / count)
        else:
            made = self.reduced(kind)
        if self.test is None and not with_base:
            return self.put(made)
        if with_base and kind == "mean":
            made = (self.base + made) / 2
        elif with_base:
            names = {"amax": "maximum", "amin": "minimum", "prod": "*"}
            made = tv.apply(names[kind], self.base, made)
        return self.put(where(self.any(), made, self.base))


def _named_position(context: Context, index: tv.TracedValue) -> tv.TracedValue:
    plain = isinstance(
        tv.lifted_mask(index)[1].node, tv.TracedRead | tv.Position | tv.Joined | tv.TracedNumber
    )
    index = index if plain else context.named(index, "index")
    return index.fresh()


def _from_the_start(
    context: Context, x: tv.TracedValue, dim: int, index: tv.TracedValue
) -> tv.TracedValue:
    """Return the positions of a write, where a negative one counts from the end.

    Those of an input are at least 0 in a specification; `differentiate` checks them in each call.
    """
    index = _named_position(context, index)
    mask, plain = tv.lifted_mask(index)
    kinds = {e.name: e.body.kind for e in context.equations if isinstance(e.body, tv.TracedReduce)}
    extreme = {name for name, kind in kinds.items() if kind in ("argmax", "argmin")}
    extreme |= context.computed.keys() | context.distinct.keys()
    match plain.node:
        case tv.TracedRead(name) if name in context.inputs.keys() - extreme:
            context.written.add(name)
        case tv.TracedRead(name) as i if mask is None and name not in extreme:
            size = tv.TracedNumber(tv.size_of(x.axes[x.place_of(dim)]))
            return replace(index, node=where(tv.apply("<", i, 0), i + size, i))
    return index


def _with_first(x: tv.TracedValue, dim: int) -> tv.TracedValue:
    """Return the value with one axis before the others."""
    return replace(x, axes=(x.axes[dim], *x.without_axis(dim).axes)) if x.axes else x


def _match_along(
    context: Context, x: tv.TracedValue, dim: int, index: tv.TracedValue, source: tv.TracedValue
) -> MatchedPositions:
    """Match the positions of a one-axis index, which is an axis of the source too."""
    dim = x.place_of(dim)
    source = _with_first(source.fresh(), dim)
    index = _named_position(context, index)
    index = replace(index, axes=(*(index.axes or ((),)), *((),) * (len(x.axes) - 1)))
    return MatchedPositions(context, x.fresh(), [dim], [index], source)


def _match_elements(
    context: Context, x: tv.TracedValue, dim: int, index: tv.TracedValue, source: tv.TracedValue
) -> MatchedPositions:
    """Match the positions of an index with all axes."""
    dim = x.place_of(dim)
    source, index, x = source.fresh(), _named_position(context, index), x.fresh()
    for n, axis in enumerate(index.axes):
        if n != dim and bool(axis) != bool(x.axes[n]):
            raise unread("a scatter into a part of an axis is not supported")
    for a, b in zip(index.axes, source.axes, strict=True) if source.axes else ():
        if bool(a) != bool(b):
            raise unread("a scatter of a part of a tensor is not supported")
    return MatchedPositions(context, x, [dim], [_with_first(index, dim)], _with_first(source, dim))


def match_positions(
    context: Context, x: tv.TracedValue, dim: int, index: tv.TracedValue, source: tv.TracedValue
) -> MatchedPositions:
    """Match the positions of the current operation's index."""
    find = _match_along if "index" in context.called else _match_elements
    return find(context, x, dim, index, source)


@operation("index_add", "index_add_")
def index_add(
    context: Context,
    x: tv.TracedValue,
    dim: int,
    index: tv.TracedValue,
    source: tv.TracedValue,
    alpha: Any = 1,
) -> tv.TracedValue:
    if alpha != 1:
        source = context.elementwise(operator.mul, source, alpha)
    return _match_along(context, x, dim, index, source).by("sum", True)


@operation("index_fill", "index_fill_")
def index_fill(
    context: Context, x: tv.TracedValue, dim: int, index: tv.TracedValue, value: Any
) -> tv.TracedValue:
    index = _from_the_start(context, x, dim, index)
    found = _match_along(context, x, dim, index, context.value(0))
    return found.put(where(found.any(), context.value(value).node, found.base))


@operation("scatter_add", "scatter_add_")
def scatter_add(
    context: Context, x: tv.TracedValue, dim: int, index: tv.TracedValue, source: tv.TracedValue
) -> tv.TracedValue:
    return _match_elements(context, x, dim, index, source).by("sum", True)


_KINDS = {"add": "sum", "multiply": "prod"}


@operation("scatter_reduce", "scatter_reduce_", "index_reduce", "index_reduce_")
def scatter_reduce(
    context: Context,
    x: tv.TracedValue,
    dim: int,
    index: tv.TracedValue,
    source: tv.TracedValue,
    reduce: str,
    include_self: bool = True,
) -> tv.TracedValue:
    found = match_positions(context, x, dim, index, source)
    return found.by(_KINDS.get(reduce, reduce), include_self)


@operation("scatter", "scatter_")
def scatter(
    context: Context,
    x: tv.TracedValue,
    dim: int,
    index: tv.TracedValue,
    source: Any,
    reduce: str | None = None,
) -> tv.TracedValue:
    found = _match_elements(context, x, dim, index, context.value(source))
    if reduce is not None:
        return found.by(_KINDS[reduce], True)
    return _put_unique(context, found)


def _all_tests(context: Context, test: tv.TracedNode | None) -> list[tv.TracedNode]:
    """Return the tests that hold where one holds, those of named masks too."""
    match test:
        case tv.TracedApply("and", (a, b)):
            return [*_all_tests(context, a), *_all_tests(context, b)]
        case tv.TracedRead(name, places):
            for e in context.equations:
                if e.name == name and e.kind == "bool":
                    axes = [axis for axis in e.axes if axis]
                    parts = [p.parts() or (p,) for p in places]
                    if [*map(len, axes)] == [*map(len, parts)]:
                        inner = dict(zip(chain(*axes), chain(*parts), strict=True))
                        return _all_tests(context, tv.substituted(e.body, inner))
    return [] if test is None else [test]


_OTHER_MASK = "a write of values selected by another mask is not supported; use torch.where"


def _put_unique(
    context: Context, found: MatchedPositions, is_unique: bool = False
) -> tv.TracedValue:
    """Write the values; at most one may match each position, as is known if ``is_unique``."""
    if found.test is None and not found.atoms:
        return found.put(found.source)
    if found.atoms and any(
        isinstance(n, tv.TracedRead | tv.Position | tv.TracedReduce) for n in tv.walk(found.source)
    ):
        if not is_unique and not found.is_unique(context):
            raise unread(_REPEATED)
        kind = "any" if found.kind == "bool" else "sum"
        match found.source:
            case tv.TracedApply("+", (old, added)) if old == found.base and kind == "sum":
                # y[i] += x
                return found.put(old + reduced(kind, found.atoms, added, found.test))
        return found.by(kind, False)
    return found.put(where(found.any(), found.source, found.base))


@operation("index_put", "index_put_")
def index_put(
    context: Context,
    x: tv.TracedValue,
    indices: Sequence[tv.TracedValue | None],
    values: tv.TracedValue,
    accumulate: bool = False,
) -> tv.TracedValue:
    given = [(n, i) for n, i in enumerate(indices) if i is not None]
    if len(given) == 1 and given[0][1].kind == "bool":
        if accumulate:
            raise unread("a mask of positions that are added to is not supported; use torch.where")
        return _where_mask(context, x, *given[0], values)
    if any(i.kind == "bool" for _, i in given):
        raise unread("a mask beside other indices is not supported; use torch.where")
    dims = [n for n, _ in given]
    if dims != list(range(dims[0], dims[0] + len(dims))):
        raise unread("a write at indices with whole axes between them is not supported")
    held = [held_tensor(i) for i in context.node.args[1] if i is not None]
    own = context.aligned(
        *(
            _named_position(context, i) if _is_from_start(h) else _from_the_start(context, x, n, i)
            for (n, i), h in zip(given, held, strict=True)
        )
    )
    lead, rest = len(own[0].axes), len(x.axes) - len(dims)
    values = values.fresh()
    if dims[0]:
        # x[:, i]: the axes before the index come first in the values.
        wide = ((),) * (lead + rest - len(values.axes)) + values.axes
        first, after = dims[0], dims[0] + lead
        values = replace(values, axes=(*wide[first:after], *wide[:first], *wide[after:]))
    places = [replace(i, axes=(*i.axes, *((),) * rest)) for i in own]
    found = MatchedPositions(context, x.fresh(), dims, places, values)
    if accumulate:
        return found.by("sum", True)
    return _put_unique(context, found, _are_distinct(held))


def _is_from_start(held: Any) -> bool:
    """True if positions are numbers of which none is below 0."""
    return held is not None and bool((held >= 0).all())


def _are_distinct(held: Sequence[Any]) -> bool:
    """True if positions are numbers, of which no two are equal."""
    if any(x is None for x in held):
        return False
    places = torch.stack([*torch.broadcast_tensors(*held)]).flatten(1).tolist()  # type: ignore[no-untyped-call]
    rows = [*zip(*places, strict=True)]
    return len({*rows}) == len(rows)


def _where_mask(
    context: Context, x: tv.TracedValue, dim: int, mask: tv.TracedValue, values: tv.TracedValue
) -> tv.TracedValue:
    """Write values where a mask of axes from ``dim`` holds: selected by it, or alike for all."""
    rest = len(x.axes) - dim - len(mask.axes)
    at = len(values.axes) - rest - 1
    if at >= 0:
        if values.axes[at] and tv.lifted_mask(values)[0] is None:
            text = "a write of as many values as a mask selects is not supported; use torch.where"
            raise unread(text)
        shape = values.shape
        wanted = mask.shape if values.axes[at] else [1] * len(mask.axes)
        values = context.regrouped(values, [*shape[:at], *wanted, *shape[at + 1 :]])
    # A selection names its mask if more is made of its length.
    given = (mask.fresh(), context.simple(mask).fresh())
    masks = [replace(m, axes=(*m.axes, *((),) * rest)) for m in given]
    x, values, *masks = context.aligned(x.fresh(), values, *masks)
    own, plain = tv.lifted_mask(values)
    if own not in (None, *(m.node for m in masks)):
        raise unread(_OTHER_MASK)
    return replace(x, node=where(masks[0].node, plain.node, x.node))
