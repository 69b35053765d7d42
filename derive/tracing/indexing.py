"""Indexing by integer tensors, and tensors of positions and numbers: arange, full, eye."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any

import sympy
from torch.utils._pytree import tree_leaves

from derive.tracing.context import (
    OPERATIONS,
    Context,
    Length,
    is_of_each_element,
    operation,
    symbol_of,
)
from derive.tracing.elementwise import as_number, as_truth
from derive.tracing.refusals import many, unread
from derive.tracing.segments import match_positions, parts_at
from derive.tracing.values import (
    Atom,
    Axis,
    Position,
    TracedApply,
    TracedNode,
    TracedNumber,
    TracedParameter,
    TracedRead,
    TracedReduce,
    TracedValue,
    apply,
    joined,
    kind_of,
    lifted_mask,
    new_axis,
    substituted,
    under_mask,
    walk,
    with_first_joined,
    with_outer_mask,
)

# ------------------------------------------------------------------------------------------- ragged
# Axes of the elements that a mask selects, and of others concatenated to them.
#
#     edges = edges[:, edges[0] != edges[1]]
#     edges = torch.cat([edges, loops], 1)
#     out.index_add(0, edges[1], x[edges[0]])
#
# is a sum over the edges where the mask holds, plus one over the loops. A value along such an axis
# is kept as consecutive pieces. Each piece has all its elements, and its mask. A sum or another
# reduction over the axis takes the mask as its condition.


@dataclass(frozen=True)
class Pieces:
    """Values that follow one another along an axis."""

    values: tuple[TracedValue, ...]


_CONTRACTIONS = frozenset("linear matmul mm bmm dot mv einsum outer".split())
_CARRIED = _CONTRACTIONS | frozenset(
    "index index_select gather embedding view reshape _unsafe_view unsqueeze squeeze expand "
    "expand_as select slice transpose permute t numpy_T mT movedim clone detach to _to_copy alias "
    "contiguous unbind flatten lift_fresh_copy type_as float double ones zeros full ones_like "
    "zeros_like full_like new_ones new_zeros new_full repeat cat stack dropout softmax _softmax "
    "log_softmax _log_softmax linalg_vector_norm var std layer_norm cosine_similarity diagonal "
    "eye triu tril".split()
)
"""Operations that map each element within one piece."""
_JOINS: dict[str, Any] = {
    **dict.fromkeys((*_CONTRACTIONS, "sum"), operator.add),
    "prod": operator.mul,
    "amax": partial(apply, "maximum"),
    "amin": partial(apply, "minimum"),
    "logsumexp": partial(apply, "logaddexp"),
}
"""How the results of the pieces are joined, where their axis is reduced."""
_WITHIN = frozenset(
    "mean max min any all argmax argmin cumsum cumprod logcumsumexp flip pad diff split chunk "
    "narrow".split()
) | {*_JOINS}
"""Operations along axes: that of a single piece, which refuse what its mask does not allow, or
others."""
_OF_PAIRS = {"triu": (0, 1), "tril": (0, -1), "diagonal": (0,), "eye": ()}
"""Operations that compare positions on two axes, with the offsets at which order alone decides."""
_MADE = frozenset(
    "ones zeros full eye ones_like zeros_like full_like new_ones new_zeros new_full".split()
)
_ADDED = ("index_add", "index_add_", "scatter_add", "scatter_add_")
_PUT = ("index_put", "index_put_")
_REDUCED = ("scatter_reduce", "scatter_reduce_", "index_reduce", "index_reduce_")


def first_piece(context: Context, x: TracedValue, dim: int, mask: TracedValue) -> Pieces:
    """Return x at the positions of one axis where a mask holds."""
    if bool(x.axes[dim]) != bool(mask.axes[0]) or not mask.axes[0]:
        raise many()
    mask = context.simple(mask)
    x = _under_mask_of_axis(context, x, dim, mask)
    record_pieces(context, dim, [(x.shape[dim], mask)])
    return Pieces((x,))


def _under_mask_of_axis(
    context: Context, x: TracedValue, dim: int, mask: TracedValue
) -> TracedValue:
    around = tuple(mask.axes[0] if n == dim else () for n in range(len(x.axes)))
    x, wide = context.aligned(x, replace(mask, axes=around))
    return replace(x, node=under_mask(wide.node, x.node))


def record_pieces(context: Context, dim: int, lengths: Sequence[Length]) -> None:
    """Record the pieces that the axis of a node's result consists of."""
    size = context.made.shape[dim]
    if hasattr(size, "node"):
        context.lengths[size.node.expr] = list(lengths)


def has_pieces(context: Context, node: Any, given: Sequence[Any]) -> bool:
    """True if an operation takes or makes pieces."""
    if any(isinstance(x, Pieces) for x in given):
        return True
    return context.called in (*_MADE, "expand") and bool(_dims(context, node))


def _dims(context: Context, node: Any) -> list[int]:
    """Return the axes of a node's result that consist of pieces."""
    return [n for n, size in enumerate(_shape(node)) if symbol_of(size) in context.lengths]


def _source_dims(context: Context, node: Any) -> list[int]:
    """Return the axes of a node's first argument that consist of pieces."""
    shape = node.args[0].meta["val"].shape
    return [n for n, size in enumerate(shape) if symbol_of(size) in context.lengths]


def _shape(node: Any) -> Sequence[Any]:
    """Return the shape of a node's result, or of the first one."""
    first = next(iter(tree_leaves(node.meta.get("val"))), None)
    shape: Sequence[Any] = getattr(first, "shape", ())
    return shape


def of_piece(x: Any, k: int) -> Any:
    """Return the k-th piece of a value, or of each value in a list; the piece, if it is one."""
    if isinstance(x, Pieces):
        return x.values[k if len(x.values) > 1 else 0]
    if isinstance(x, tuple | list):
        return type(x)(of_piece(e, k) for e in x)
    return x


def by_pieces(context: Context, f: Any, node: Any, args: Any, kwargs: Any) -> Any:
    """Apply an operation to each piece, or to all of them."""
    name = context.called
    dims = _dims(context, node)
    if name == "cat":
        along = (args[1] if len(args) > 1 else 0) % len(node.meta["val"].shape)
        if any(symbol_of(x.meta["val"].shape[along]) in context.lengths for x in node.args[0]):
            return _concatenated_pieces(context, node, args[0], along)
    parts = [x for x in tree_leaves([args, kwargs]) if isinstance(x, Pieces)]
    longer = [d for d in dims if len(context.lengths[symbol_of(_shape(node)[d])]) > 1]
    counts = {len(x.values) for x in parts} or {
        len(context.lengths[symbol_of(_shape(node)[d])]) for d in dims
    }
    count = max(counts, default=1)
    if counts - {1, count}:
        raise many()

    def of(k: int, *instead: Any) -> Any:
        own = of_piece(args, k)
        named_ = {key: of_piece(x, k) for key, x in kwargs.items()}
        own = (*instead, *own[len(instead) :])
        with context.in_piece(k):
            return f(context, *own, **named_)

    if (name in _MADE and not dims) or (name in _PUT and not isinstance(args[0], Pieces)):
        return of(0)
    if name in _ADDED:
        whole = args[0]
        for k in range(count):
            whole = of(k, whole)
        return whole
    if name in _REDUCED:
        return _reduced_pieces(context, f, count, args, kwargs)
    if name in _JOINS and not longer:
        # The axis of the pieces is reduced, if they are several.
        whole = reduce(partial(context.elementwise, _JOINS[name]), map(of, range(count)))
        return Pieces((with_outer_mask(whole),)) if dims else whole
    if name == "mean" and count > 1 and not dims:
        return _mean_of_pieces(context, count, *args, **kwargs)
    is_read = (
        name in (*_CARRIED, *_PUT) or is_of_each_element(f) or (name in _WITHIN and (dims or parts))
    )
    if (
        not is_read
        or (count > 1 and len(longer) != 1)
        or (name in _OF_PAIRS and not _is_of_order(context, node, *args[1:], **kwargs))
    ):
        raise many()
    if isinstance(node.meta["val"], tuple | list):
        found = [*zip(*map(of, range(count)), strict=True)]
        if not dims:
            return [own[0] for own in found]
        return [None if None in own else Pieces(tuple(map(with_outer_mask, own))) for own in found]
    values = [_piece_of_result(context, node, of(k), k) for k in range(count)]
    is_whole = count == 1 and not dims and lifted_mask(values[0])[0] is None
    return values[0] if is_whole else Pieces(tuple(map(with_outer_mask, values)))


def _piece_of_result(context: Context, node: Any, value: Any, k: int) -> TracedValue:
    """Return the k-th piece of a result; a new tensor is under the masks of its axes."""
    if isinstance(value, Pieces):
        if k:
            raise many()
        return value.values[0]
    if lifted_mask(value)[0] is None:
        for dim in _dims(context, node):
            lengths = context.lengths[symbol_of(node.meta["val"].shape[dim])]
            mask = lengths[k if len(lengths) > 1 else 0][1]
            value = value if mask is None else _under_mask_of_axis(context, value, dim, mask)
    made: TracedValue = value
    return made


def _is_of_order(
    context: Context, node: Any, offset: int = 0, dim1: int = 0, dim2: int = 1, **_: Any
) -> bool:
    """True if the order of rows and columns that are selected alike decides, which a mask keeps."""
    name = context.called
    shape = _shape(node) if name == "eye" else node.args[0].meta["val"].shape
    rows, columns = (
        symbol_of(shape[d]) for d in ((-2, -1) if name in ("triu", "tril") else (dim1, dim2))
    )
    if rows not in context.lengths and columns not in context.lengths:
        return True
    return rows == columns and (name == "eye" or offset in _OF_PAIRS[name])


def _concatenated_pieces(context: Context, node: Any, tensors: Sequence[Any], dim: int) -> Pieces:
    values: list[TracedValue] = []
    lengths: list[Length] = []
    for x, source in zip(tensors, node.args[0], strict=True):
        if (own := context.lengths.get(symbol_of(source.meta["val"].shape[dim]))) is not None:
            values += x.values
            lengths += own
        else:
            values.append(of_piece(x, 0))
            lengths.append((values[-1].shape[dim], None))
    record_pieces(context, dim, lengths)
    return Pieces(tuple(values))


def _mean_of_pieces(
    context: Context, count: int, x: Pieces, *args: Any, **kwargs: Any
) -> TracedValue:
    """Return the sum of all pieces by the number of their elements."""
    total, sums = OPERATIONS["sum"], []
    ones = (replace(v, node=under_mask(lifted_mask(v)[0], TracedNumber(1))) for v in x.values)
    for own in (x, Pieces(tuple(ones))):
        parts = (total(context, of_piece(own, k), *args, **kwargs) for k in range(count))
        sums.append(reduce(partial(context.elementwise, operator.add), parts))
    made: TracedValue = context.elementwise(operator.truediv, *sums)
    return made


def _reduced_pieces(context: Context, f: Any, count: int, args: Any, kwargs: Any) -> TracedValue:
    """Reduce the values of all pieces at each position; positions without values keep theirs."""
    x, dim, index, source, kind, *rest = args
    include = rest[0] if rest else kwargs.get("include_self", True)
    if kind not in ("amax", "amin", "sum", "prod"):
        raise many()
    met: TracedValue | None = None
    for k in range(count):
        i, s = of_piece(index, k), of_piece(source, k)
        x = context.simple(x)
        if include:
            x = f(context, x, dim, i, s, kind, True)
            continue
        here = match_positions(context, x, dim, i, s)
        any_here = context.simple(replace(here.put(here.any()), kind="bool"))
        alone = f(context, x, dim, i, s, kind, False)
        if met is None:
            x, met = alone, any_here
            continue
        both = f(context, x, dim, i, s, kind, True)
        x = context.elementwise(partial(apply, "where"), met, both, alone, kind=x.kind)
        met = context.elementwise(operator.or_, met, any_here, kind="bool")
    made: TracedValue = x
    return made


# ----------------------------------------------------------------------------------------- indexing


def _indexed_axis(context: Context, x: TracedValue, dim: int, index: TracedValue) -> TracedValue:
    """Return x with one axis replaced by the axes of an integer index."""
    if not x.axes[dim]:
        # An axis of size 1 has one element, whatever the index is.
        return replace(x, axes=(*x.axes[:dim], *index.fresh().axes, *x.axes[dim + 1 :]))
    x, index = _with_positions(context, x, dim, index)
    index = index.fresh()
    node = substituted(x.node, _positions_along(context, x.axes[dim], index))
    return TracedValue((*x.axes[:dim], *index.axes, *x.axes[dim + 1 :]), node, x.kind)


def _with_positions(
    context: Context, x: TracedValue, dim: int, index: TracedValue
) -> tuple[TracedValue, TracedValue]:
    """Return x with one index on an axis, or the parts that the positions have, and the index."""
    sizes = [a.size for a in x.axes[dim]]
    if parts_at(context, lifted_mask(index)[1].node, sizes) is not None:
        return x, index
    return context.with_one_index(x, dim), _named_index(context, index)


def _positions_along(context: Context, axis: Axis, index: TracedValue) -> dict[Atom, TracedNode]:
    mask, plain = lifted_mask(index)
    parts = parts_at(context, plain.node, [a.size for a in axis])
    if parts is None:
        return {a: _axis_position(context, index.node, a) for a in axis}
    return {a: under_mask(mask, p) for a, p in zip(axis, parts, strict=True)}


@operation("embedding")
def embedding(
    context: Context, weight: TracedValue, index: TracedValue, padding: Any = -1, *_: Any
) -> TracedValue:
    x = weight.fresh()
    if padding != -1:
        # No gradient reaches the row of the padding.
        held = TracedApply("detach", (x.node,))
        test = apply("==", joined(x.axes[0]), padding)
        x = replace(x, node=apply("where", test, held, x.node))
    return _indexed_axis(context, x, 0, index)


@operation("index_select")
def index_select(context: Context, x: TracedValue, dim: int, index: TracedValue) -> TracedValue:
    return _indexed_axis(context, x.fresh(), x.place_of(dim), index)


@operation("index")
def index(
    context: Context, x: TracedValue, indices: Sequence[TracedValue | None]
) -> TracedValue | Pieces:
    x = x.fresh()
    given = [(n, i) for n, i in enumerate(indices) if i is not None]
    if any(i.kind == "bool" for _, i in given):
        ((n, mask), *others) = given
        if others and not n and any(lifted_mask(i)[0] is not None for _, i in others):
            # x[m, i[m]]: the mask stands for the positions of what it selects.
            return index(context, x, [*_positions_where(context, mask), *indices[1:]])
        if others or (n and len(mask.axes) != 1):
            raise many()
        return first_piece(context, x, n, mask) if n else _selected(context, x, mask)
    if len(given) == 1:
        return _indexed_axis(context, x, *given[0])
    places = [n for n, _ in given]
    values = []
    for n, i in given:
        x, i = _with_positions(context, x, n, i)
        values.append(i)
    values = context.aligned(*values)
    axes, inner = context.axes_of(values), dict[Atom, TracedNode]()
    for (n, _), v in zip(given, values, strict=True):
        inner |= _positions_along(context, x.axes[n], v)
    node = substituted(x.node, inner)
    # With axes between the indices, their own axes come first.
    at = places[0] if places[-1] - places[0] < len(places) else 0
    rest = [axis for n, axis in enumerate(x.axes) if n not in places]
    return TracedValue((*rest[:at], *axes, *rest[at:]), node, x.kind)


@operation("masked_select")
def masked_select(context: Context, x: TracedValue, mask: TracedValue) -> Pieces:
    if len(mask.axes) != len(x.axes):
        raise many()
    return _selected(context, x.fresh(), mask)


def _selected(context: Context, x: TracedValue, mask: TracedValue) -> Pieces:
    """Return the elements of x where a mask of its first axes holds, and record their axis."""
    own, plain = lifted_mask(mask)
    if own is not None:
        # Of what another mask has selected: both hold.
        wide = replace(mask, axes=(*mask.axes, *((),) * (len(x.axes) - len(mask.axes))))
        if len({lifted_mask(v)[0] for v in context.aligned(x, wide)}) > 1:
            raise many()
        x, mask = lifted_mask(x)[1], replace(mask, node=apply("and", own, plain.node))
    along = with_first_joined(context.simple(mask), len(mask.axes))
    if along.axes[0]:
        record_pieces(context, 0, [(along.shape[0], along)])
    if (count := symbol_of(context.made.shape[0])) is None or context.sizes.are_known(count):
        raise many()
    return Pieces((context.masked(x, mask),))


@operation("nonzero_numpy")
def nonzero_numpy(context: Context, x: TracedValue) -> list[Pieces]:
    """Return the positions on each axis of the elements that are not 0."""
    return [Pieces((x,)) for x in _positions_where(context, _truth(context, x))]


def _positions_where(context: Context, mask: TracedValue) -> list[TracedValue]:
    """Return the positions on each axis of what a mask selects, under the mask."""
    found: list[TracedValue] = []
    for n in range(len(mask.axes)):
        axes = tuple(map(new_axis, mask.shape))
        place = TracedValue(axes, joined(axes[n]), "int")
        found += _selected(context, place, mask).values
    return found


@operation("nonzero", "argwhere")
def nonzero(context: Context, x: TracedValue) -> Pieces:
    """Return the positions of the elements that are not 0, a row each."""
    axes, row = tuple(map(new_axis, x.shape)), new_axis(len(x.axes))
    *first, node = map(joined, axes)
    for n, place in enumerate(first):
        node = apply("where", apply("==", joined(row), n), place, node)
    return _selected(context, TracedValue((*axes, row), node, "int"), _truth(context, x))


def _truth(context: Context, x: TracedValue) -> TracedValue:
    """Return a mask of the elements that are not 0, named: several selections are by it."""
    return context.simple(as_truth(x))


def _named_index(context: Context, index: TracedValue) -> TracedValue:
    """Return the index in a form that a position may have: a read, or a sum of positions."""
    if _is_plain_index(index):
        return index
    is_computed = any(
        isinstance(x, TracedRead | TracedReduce)
        or (isinstance(x, TracedApply) and x.name not in _OF_POSITIONS)
        for x in walk(index.node)
    )
    return context.named(index, "index") if is_computed else index


_OF_POSITIONS = ("+", "-", "*", "neg", "//")


def _is_plain_index(x: TracedValue) -> bool:
    return isinstance(lifted_mask(x)[1].node, TracedRead | Position)


def _axis_position(context: Context, node: TracedNode, atom: Atom) -> TracedNode:
    """Return a node as a position on an axis.

    A bare index would imply that the axis has its size. On a longer axis the position is index +
    start, with the parameter start = 0. A negative number counts from the end.
    """
    if isinstance(node, Position) and not context.sizes.equal(node.atom.size, atom.size):
        context.sizes.at_least(atom.size - node.atom.size)
        return node + TracedParameter(context.start())
    if isinstance(node, TracedNumber) and sympy.sympify(node.value).is_negative:
        return TracedNumber(atom.size + node.value)
    if (ends := _first_and_last(node)) is not None and not isinstance(node, Position):
        for room in (ends[0], atom.size - 1 - ends[1]):
            # Torch counts a position below 0 from the end.
            if context.sizes.hint(room) >= 0:
                context.sizes.at_least(room)
    return node


def _first_and_last(node: TracedNode) -> tuple[Any, Any] | None:
    """Return the least and the largest value of a sum of positions; None of anything else."""
    match node:
        case Position(atom):
            return sympy.Integer(0), atom.size - 1
        case TracedNumber(value) if sympy.sympify(value).is_integer:
            return (sympy.sympify(value),) * 2
        case TracedApply("+" | "-" | "neg" as name, args):
            made = [ends for ends in map(_first_and_last, args) if ends is not None]
            if len(made) == len(args):
                first, last = made[-1]
                low, high = (first, last) if name == "+" else (-last, -first)
                return (low, high) if name == "neg" else (made[0][0] + low, made[0][1] + high)
    return None


@operation("gather")
def gather(context: Context, x: TracedValue, dim: int, index: TracedValue, **_: Any) -> TracedValue:
    dim = x.place_of(dim)
    x, index = x.fresh(), index.fresh()
    atom = None
    if x.axes[dim]:
        x, atom = context.single(x, dim)
        index = _named_index(context, index).fresh()
    rest = x.with_axis(dim, ())
    for n, (a, b) in enumerate(zip(rest.axes, index.axes, strict=True)):
        if n != dim and bool(a) != bool(b):
            raise unread("a gather from a part of an axis is not supported")
    values = context.aligned(index, rest)
    node = values[1].node
    if atom is not None:
        node = substituted(node, {atom: _axis_position(context, values[0].node, atom)})
    return TracedValue(context.axes_of(values), node, x.kind)


# -------------------------------------------------------------------- positions and numbers


@operation("arange")
def arange(context: Context, *args: Any, **named: Any) -> TracedValue:
    plain = [a for a in args if not isinstance(a, str)]
    start, step = (plain[0] if len(plain) > 1 else 0), (plain[2] if len(plain) > 2 else 1)
    (size,) = context.shape()
    axis = new_axis(size)
    node = joined(axis)
    if step != 1 and axis:
        node = TracedNumber(step) * node
    if start != 0:
        node = node + start if axis else TracedNumber(start)
    return TracedValue((axis,), node, kind_of(context.node.meta["val"]))


@operation("linspace")
def linspace(context: Context, start: Any, end: Any, *_: Any, **__: Any) -> TracedValue:
    """Return start + n*(end - start)/(size - 1), or start for size 1."""
    (size,) = context.shape()
    if size == 1:
        return TracedValue(((),), TracedNumber(start))
    if any(isinstance(x, TracedValue) for x in (start, end)):
        raise unread("a linspace between tensors is not supported; use torch.lerp")
    atom = Atom.new(size)
    whole = all(float(x).is_integer() for x in (start, end))
    rise = int(end) - int(start) if whole else end - start
    start = int(start) if whole else start
    node: TracedNode = Position(atom)
    if rise != size - 1:
        node = node if rise == 1 else TracedNumber(rise) * node
        node = node / (size - 1)
    return TracedValue(((atom,),), node if start == 0 else node + start)


@operation(
    *("zeros", "zeros_like", "new_zeros", "ones", "ones_like", "new_ones", "full", "full_like"),
    *("new_full", "scalar_tensor", "empty_like_"),
)
def full(context: Context, *args: Any, **named: Any) -> TracedValue:
    name = context.called
    if "full" in name:
        value = args[1] if name == "full" or name == "full_like" else args[2]
    else:
        value = args[0] if name == "scalar_tensor" else 1 if "ones" in name else 0
    is_bool = kind_of(context.node.meta["val"]) == "bool"
    if isinstance(value, TracedValue) or (isinstance(value, sympy.Expr) and not is_bool):
        return _of_one_element(context, context.value(value).node)
    return _of_one_element(context, TracedNumber(bool(value) if is_bool else as_number(value)))


def _of_one_element(context: Context, node: TracedNode) -> TracedValue:
    """Return a new tensor like the current node's, all elements of which are the same."""
    axes = tuple(map(new_axis, context.shape()))
    return TracedValue(axes, node, kind_of(context.node.meta["val"]))


@operation("empty", "empty_like", "new_empty", "empty_permuted", "new_empty_strided")
def unset(context: Context, *_: Any, **__: Any) -> TracedValue:
    """Return uninitialized memory; an equation that reads it is an error."""
    return _of_one_element(context, apply("unset"))


@operation("tril", "triu", "tril_", "triu_")
def triangle(context: Context, x: TracedValue, diagonal: int = 0) -> TracedValue:
    x = context.with_one_index(x, len(x.axes) - 1, len(x.axes) - 2)
    row, column = map(joined, x.axes[-2:])
    lower = "tril" in str(context.node.target)
    edge = row + diagonal if diagonal else row
    test = apply("<=" if lower else ">=", column, edge)
    if x.kind == "bool":
        whole = isinstance(x.node, TracedNumber) and x.node.value is True
        return replace(x, node=test if whole else test & x.node)
    return replace(x, node=apply("where", test, x.node, 0))


@operation("eye")
def eye(context: Context, *_: Any, **__: Any) -> TracedValue:
    axes = tuple(map(new_axis, context.shape()))
    same = apply("==", *map(joined, axes))
    if kind_of(context.node.meta["val"]) == "bool":
        return TracedValue(axes, same, "bool")
    return TracedValue(axes, apply("where", same, 1, 0))


@operation("one_hot")
def one_hot(context: Context, x: TracedValue, num_classes: Any = -1) -> TracedValue:
    atom = Atom.new(context.shape()[-1])
    x = x if _is_plain_index(x) else context.named(x, "index")
    node = apply("where", apply("==", x.node, Position(atom)), 1, 0)
    return TracedValue((*x.axes, (atom,)), node, "int")
