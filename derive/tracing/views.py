"""Views, concatenation and stacking: indices renamed, split and merged."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import sympy

from derive.algebra.expr import RELATIONS
from derive.algebra.reductions import REDUCTIONS
from derive.tracing import values as tv
from derive.tracing.choices import leaves_out
from derive.tracing.context import Context, TracedEquation, operation
from derive.tracing.elementwise import as_number, as_truth
from derive.tracing.names import is_short
from derive.tracing.refusals import unread


@operation(
    *("view", "reshape", "_unsafe_view", "flatten", "unflatten", "unsqueeze", "squeeze"),
    *("view_as", "reshape_as", "unsqueeze_", "squeeze_", "_reshape_alias", "ravel"),
)
def view(context: Context, x: tv.TracedValue, *args: Any, **__: Any) -> tv.TracedValue:
    shape = context.shape()
    sizes: Sequence[Any] = args[0] if args and isinstance(args[0], list) else ()
    first = 0
    if context.called == "unflatten":
        first, sizes = x.place_of(args[0]), args[1]
    for given, size in zip(sizes, shape[first:], strict=False):
        # Beside a -1, torch may keep the old symbol of a size that is given as a number.
        if sympy.sympify(given).is_Integer and given >= 0:
            context.sizes.unify(size, sympy.sympify(given))
    return context.regrouped(x, context.shape() if sizes else shape)


@operation("permute")
def permute(context: Context, x: tv.TracedValue, dims: Sequence[int]) -> tv.TracedValue:
    return replace(x, axes=tuple(x.axes[d] for d in dims))


@operation("transpose", "transpose_", "swapaxes", "swapdims")
def transpose(context: Context, x: tv.TracedValue, a: int, b: int) -> tv.TracedValue:
    axes = list(x.axes)
    axes[a], axes[b] = axes[b], axes[a]
    return replace(x, axes=tuple(axes))


@operation("t", "numpy_T", "mT", "matrix_H", "adjoint", "t_")
def transposed(context: Context, x: tv.TracedValue) -> tv.TracedValue:
    return x if len(x.axes) < 2 else replace(x, axes=(*x.axes[:-2], x.axes[-1], x.axes[-2]))


@operation("movedim", "moveaxis")
def movedim(context: Context, x: tv.TracedValue, source: Any, target: Any) -> tv.TracedValue:
    sources = [source] if isinstance(source, int) else list(source)
    targets = [target] if isinstance(target, int) else list(target)
    rank = len(x.axes)
    order: list[int | None] = [None] * rank
    for s, t in zip(sources, targets, strict=True):
        order[t % rank] = s % rank
    rest = iter(n for n in range(rank) if n not in {s % rank for s in sources})
    return replace(x, axes=tuple(x.axes[next(rest) if n is None else n] for n in order))


@operation("expand", "expand_as", "broadcast_to", "repeat", "tile", "repeat_interleave")
def expand(context: Context, x: tv.TracedValue, *args: Any, **_: Any) -> tv.TracedValue:
    name, shape = context.called, context.shape()
    axes = ((),) * (len(shape) - len(x.axes)) + x.axes
    made: list[tv.Axis] = []
    for axis, size in zip(axes, shape, strict=True):
        have = tv.size_of(axis)
        if context.sizes.equal(have, size):
            made.append(axis)
        elif name not in ("repeat", "tile", "repeat_interleave"):
            if axis:
                context.sizes.unify(have, size)
            made.append(axis or (tv.Atom.new(size),))
        elif (times := context.sizes.quotient(size, have)) is None:
            raise unread("repeats that differ between elements are not supported")
        else:
            new = (tv.Atom.new(times),)
            made.append((*axis, *new) if name == "repeat_interleave" else (*new, *axis))
    return replace(x, axes=tuple(made))


# -------------------------------------------------------------------- parts of an axis


def with_runs_named(context: Context, x: tv.TracedValue, dim: int) -> tv.TracedValue:
    """Name x if a cumulative reduction in it ends at the index of the axis, or a quotient sizes it.

    Parts are then read of the name. A shifted end would be no position of the summed axis, and
    i*(size(k)//3) + j + 1 would have a factor that is the size of no index.
    """
    own = set(map(tv.Position, x.axes[dim]))
    for j in (j for j in tv.walk(x.node) if isinstance(j, tv.Joined)):
        inner = zip(j.items[1:], j.sizes[1:], strict=True)
        if any(item in own and sympy.fraction(size)[1] != 1 for item, size in inner):
            return context.named(x, "parts")
    for r in (r for r in tv.walk(x.node) if isinstance(r, tv.TracedReduce)):
        for c in tv.walk(r):
            if isinstance(c, tv.TracedApply) and c.name in RELATIONS:
                read = {p.atom for p in tv.walk(c) if isinstance(p, tv.Position)}
                if not read.isdisjoint(r.atoms) and not read.isdisjoint(x.axes[dim]):
                    return context.named(x, REDUCTIONS[r.kind].stem)
    return x


def moved(position: tv.TracedNode, by: Any) -> tv.TracedNode:
    by = sympy.sympify(by)
    if by == 0:
        return position
    if by.could_extract_minus_sign():
        return position - tv.TracedNumber(-by)
    return position + tv.TracedNumber(by)


@operation("select")
def select(context: Context, x: tv.TracedValue, dim: int, index: Any) -> tv.TracedValue:
    dim = x.place_of(dim)
    axis = x.axes[dim]
    node = x.node
    size = tv.size_of(axis)
    index = context.sizes.of(index)
    if context.sizes.hint(index) < 0:
        index = size + index
    if len(axis) == 1 and any(
        isinstance(j, tv.Joined) and tv.Position(axis[0]) in j.items for j in tv.walk(node)
    ):
        # A position with a constant part reads an equation of its own.
        x = context.named(x, "parts")
        axis, node = x.axes[dim], x.node
    if len(axis) > 1:
        x, atom = context.single(x, dim)
        axis, node = (atom,), x.node
    if axis:
        node = _chosen(context, tv.substituted(node, {axis[0]: tv.TracedNumber(index)}))
    return replace(x.without_axis(dim), node=node)


def _chosen(context: Context, node: tv.TracedNode) -> tv.TracedNode:
    """Return what a choice by position is at a known one, as an element of a stack, if short."""
    if not isinstance(node, tv.TracedRead):
        return node
    e = next((e for e in context.equations if e.name == node.name), None)
    axes = [axis for axis in e.axes if axis] if e is not None else []
    if e is None or not _is_choice(e.body) or any(len(axis) > 1 for axis in axes):
        return node
    at = {axis[0]: p for axis, p in zip(axes, node.positions, strict=True)}
    made = tv.substituted(e.body, at)
    return node if _is_choice(made) or not is_short(made) else made


def _is_choice(node: tv.TracedNode) -> bool:
    return isinstance(node, tv.TracedApply) and node.name == "where"


@operation("unbind")
def unbind(context: Context, x: tv.TracedValue, dim: int = 0) -> list[tv.TracedValue]:
    return [select(context, x, dim, n) for n in range(len(context.node.meta["val"]))]


@operation("cat", "concat", "concatenate")
def cat(context: Context, tensors: Sequence[tv.TracedValue], dim: int = 0) -> tv.TracedValue:
    tensors = [t for t in tensors if t.axes]
    dim = tensors[0].place_of(dim)
    kind, tensors = tv.joint_kind(tensors), _of_one_kind(tensors)
    tensors = [t for t in tensors if t.shape[dim] != 0] or tensors[:1]
    if len(tensors) == 1:
        return replace(tensors[0], kind=kind)
    lengths = [t.shape[dim] for t in tensors]
    if all(context.sizes.equal(n, lengths[0]) for n in lengths):
        if lengths[0] == 1:
            return _stacked(context, [t.without_axis(dim) for t in tensors], dim)
        made = _stacked(context, tensors, dim)
        which, axis, *rest = made.axes[dim:]
        return replace(made, axes=(*made.axes[:dim], (*which, *axis), *rest))
    if not all(t.axes[dim] for t in tensors) or any(leaves_out(t.node) for t in tensors):
        return _concatenated_by_choice(context, tensors, dim)
    total = tv.Atom.new(sum(lengths))
    singles = []
    for t in tensors:
        t, atom = context.single(t, dim)
        if not _is_read_alone(context, t.node, atom):
            # The axis of a named part implies its size.
            t, atom = context.single(context.again_named(as_number(t), "part"), dim)
        singles.append(as_number(t).without_axis(dim).at({atom: tv.Position(total)}))
    values = context.aligned(*singles)
    axes = context.axes_of(values)
    body = tv.TracedApply("concat", (tv.Position(total), *(v.node for v in values)))
    made = tv.TracedValue((*axes[:dim], (total,), *axes[dim:]), body, tv.joint_kind(values))
    made = context.named_variable(made, "joined")
    return as_truth(made) if kind == "bool" else made


def _is_read_alone(context: Context, node: tv.TracedNode, atom: tv.Atom) -> bool:
    """True if an undivided axis of the index's size is read at the bare index.

    No read may be at a sum with the index, which would imply another size.
    """
    axes = {name: value.axes for name, value in context.inputs.items()}
    axes |= {e.name: e.axes for e in context.equations}
    found = False
    for x in tv.walk(node):
        if not isinstance(x, tv.TracedRead):
            continue
        for p, axis in zip(x.positions, filter(None, axes.get(x.name, ())), strict=False):
            if p == tv.Position(atom):
                found |= len(axis) == 1 and context.sizes.equal(axis[0].size, atom.size)
            elif isinstance(p, tv.TracedApply) and tv.Position(atom) in tv.walk(p):
                return False
    return found


def _concatenated_by_choice(
    context: Context, tensors: Sequence[tv.TracedValue], dim: int
) -> tv.TracedValue:
    """Concatenate tensors, some with one position: where(u < 1, a, b[u-1])."""
    total = tv.Atom.new(sum(t.shape[dim] for t in tensors))
    first, singles, ends = sympy.Integer(0), [], []
    for t in tensors:
        length = t.shape[dim]
        if t.axes[dim]:
            t, atom = context.single(with_runs_named(context, t, dim), dim)
            t = t.at({atom: moved(tv.Position(total), -first)})
        singles.append(t.without_axis(dim))
        first = first + length
        ends.append(first)
    values = context.aligned(*singles)
    axes = context.axes_of(values)
    *before, node = (v.node for v in values)
    for own, end in reversed(list(zip(before, ends, strict=False))):
        node = tv.apply("where", tv.Position(total) < end, own, node)
    node = context.outward(node)
    made = tv.TracedValue((*axes[:dim], (total,), *axes[dim:]), node, tv.joint_kind(values))
    return context.named_variable(made, "joined")


@operation("stack")
def stack(context: Context, tensors: Sequence[tv.TracedValue], dim: int = 0) -> tv.TracedValue:
    return _stacked(context, _of_one_kind(tensors), dim % (len(tensors[0].axes) + 1))


def _of_one_kind(tensors: Sequence[tv.TracedValue]) -> list[tv.TracedValue]:
    """Return the tensors, with bools as numbers unless all are bools."""
    return [t if tv.joint_kind(tensors) == "bool" else as_number(t) for t in tensors]


def _stacked(context: Context, tensors: Sequence[tv.TracedValue], dim: int) -> tv.TracedValue:
    """Return the n-th tensor at position n of a new axis, as nested choices."""
    values, axis = context.aligned(*tensors), tv.new_axis(len(tensors))
    *first, node = (v.node for v in values)
    for n, own in reversed(list(enumerate(first))):
        node = tv.apply("where", tv.apply("==", tv.joined(axis), n), own, node)
    axes = context.axes_of(values)
    return tv.TracedValue(
        (*axes[:dim], axis, *axes[dim:]), context.outward(node), tv.joint_kind(values)
    )


@operation("flip")
def flip(context: Context, x: tv.TracedValue, dims: Sequence[int]) -> tv.TracedValue:
    for d in dims:
        d = x.place_of(d)
        if not x.axes[d]:
            continue
        x, atom = context.single(x, d)
        x = x.at({atom: tv.TracedNumber(atom.size - 1) - tv.Position(atom)})
    return x


# -------------------------------------------------------------------- composite axes


def separated_axes(
    equations: Sequence[TracedEquation], outputs: Collection[str]
) -> list[TracedEquation]:
    """Return the equations, with h[n,t] for h[(n t)] where every read of h has these parts."""
    parts = {e.name: _composites(e) for e in equations if e.name not in outputs}
    nodes = (x for e in equations for x in tv.walk(e.body))
    for x in (x for x in nodes if isinstance(x, tv.TracedRead)):
        own = parts.get(x.name, {})
        for n, p in enumerate(x.positions):
            if n in own and not (isinstance(p, tv.Joined) and [*p.sizes] == own[n]):
                del own[n]

    def apart(x: tv.TracedNode) -> tv.TracedNode:
        if not isinstance(x, tv.TracedRead) or not parts.get(x.name):
            return x
        split = parts[x.name]
        every = (p.parts() if n in split else (p,) for n, p in enumerate(x.positions))
        return tv.TracedRead(x.name, tuple(chain.from_iterable(every)))

    made = []
    for e in equations:
        axes = e.axes
        if split := parts.get(e.name):
            kept = enumerate(filter(None, axes))
            axes = tuple(own for n, x in kept for own in ([(a,) for a in x] if n in split else [x]))
        made.append(replace(e, axes=axes, body=tv.rewritten(e.body, apart)))
    return made


def _composites(e: TracedEquation) -> dict[int, list[sympy.Expr]]:
    """Return the sizes of the parts of each composite axis."""
    axes = enumerate(filter(None, e.axes))
    return {n: [a.size for a in axis] for n, axis in axes if len(axis) > 1}
