"""Sum_k a*b*... as matrix products, reductions of elementwise products, or einsum.

Operands are joined in pairs: first the pair with the fewest joint indices, then the one with the
smallest result, then one whose product gets a mask. Indices of one operand alone are summed before
it is joined. Indices that are adjacent in every operand are merged into one index of a matrix
product. A mask is applied to the first product that has all of its indices, which are not summed
before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise

from derive.algebra.expr import Index
from derive.lowering.ground.value import Frame, Indices, Value, broadcast, place_number
from derive.lowering.ground.views import flattened, unflattened
from derive.program.torch_ir import Attribute, Binary, Code, Dim, FunctionCall, Name, Tuple, literal


def elementwise_product(frame: Frame, a: Value, b: Value, order: Indices) -> Value:
    """a * b elementwise, both of floating type, axes in ``order``."""
    a, b = frame.fit(a, order), frame.fit(b, order)
    return Value(Binary("*", a.code, b.code), broadcast(a.axes, b.axes))


@dataclass(frozen=True)
class Mask:
    """A factor with values 0 and 1, whose indices no single operand covers."""

    indices: frozenset[Index]
    applied: Callable[[Value], Value]
    """Maps a value that has these indices to the masked value."""


def contract(
    frame: Frame,
    operands: Sequence[Value],
    binders: Indices,
    order: Indices,
    masks: Sequence[Mask] = (),
) -> Value:
    """Sum over binders of the product of the operands and the masks.

    ``order`` lists all free and bound indices: the layout of elementwise intermediates and,
    without the binders, of the result.
    """
    values = [frame.squeeze(v) for v in operands]
    pending = list(masks)
    for joint in joins([v.indices for v in values], binders, [m.indices for m in masks]):
        a, b = joint.pair
        joined = _contract_operands(frame, values[a], values[b], joint.summed, order)
        for mask in [m for m in pending if m.indices <= joint.result]:
            pending.remove(mask)
            joined = mask.applied(joined)
        values = [v for n, v in enumerate(values) if n not in (a, b)]
        values.insert(a, joined)
    (value,) = values
    return _sum_out(frame, value, binders)


@dataclass(frozen=True)
class JoinedOperands:
    """A pair of operands to multiply."""

    pair: tuple[int, int]
    """Their positions; the product replaces the first, and the second is removed."""
    summed: tuple[Index, ...]
    indices: frozenset[Index]
    """The indices of both: its number of multiplications is the product of their sizes."""
    result: frozenset[Index]


def joins(
    operands: Sequence[Iterable[Index]], binders: Indices, masks: Sequence[frozenset[Index]] = ()
) -> Iterator[JoinedOperands]:
    """Yield the pairs in the order in which operands with these indices are joined."""
    sets, pending = [frozenset(o) for o in operands], list(masks)
    while len(sets) > 1:
        pairs = combinations(range(len(sets)), 2)
        joined = (_join_pair(sets, p, binders, pending) for p in pairs)
        joint = min(joined, key=lambda j: (len(j.indices), len(j.result), _masked(j, pending)))
        yield joint
        a, b = joint.pair
        sets[a] = joint.result
        del sets[b]
        pending = [m for m in pending if not m <= joint.result]


def _masked(joint: JoinedOperands, masks: Sequence[frozenset[Index]]) -> tuple[bool, int, int]:
    """A sort key: pairs whose product gets a mask first, as its indices may be summed then."""
    return not any(m <= joint.result for m in masks), *joint.pair


def _join_pair(
    sets: Sequence[frozenset[Index]],
    pair: tuple[int, int],
    binders: Indices,
    masks: Sequence[frozenset[Index]],
) -> JoinedOperands:
    indices = frozenset[Index]().union(*(sets[n] for n in pair))
    kept = frozenset[Index]().union(*(s for n, s in enumerate(sets) if n not in pair), *masks)
    summed = tuple(i for i in binders if i not in kept)
    return JoinedOperands(pair, summed, indices, indices.difference(summed))


def _sum_out(frame: Frame, value: Value, binders: Indices) -> Value:
    which = [n for n, i in enumerate(value.axes) if i in binders]
    return frame.reduce(value, "sum", which, False, value.kind)


def _contract_operands(frame: Frame, a: Value, b: Value, binders: Indices, order: Indices) -> Value:
    """Sum over binders of a * b."""
    in_a, in_b = frozenset(a.indices), frozenset(b.indices)
    a = _sum_out(frame, a, [i for i in binders if i not in in_b])
    b = _sum_out(frame, b, [i for i in binders if i not in in_a])
    in_a, in_b = frozenset(a.indices), frozenset(b.indices)
    shared = [i for i in binders if i in in_a and i in in_b]
    layout = [i for i in order if i in in_a | in_b]
    if not shared:
        return elementwise_product(frame, a, b, layout)
    if frame.prefers_reductions and _is_weighted_sum(a, b):
        return _sum_out(frame, elementwise_product(frame, a, b, layout), shared)
    product = _matmul(frame, a, b, shared, layout)
    product = product or _group_product(frame, a, b, shared, layout)
    if product is None or not _is_direct(product, a, b):
        product = _matmul_merged_runs(frame, a, b, shared, layout) or product
    if product is not None:
        return product
    if in_a <= in_b or in_b <= in_a:
        return _sum_out(frame, elementwise_product(frame, a, b, layout), shared)
    return _tensordot(frame, a, b, shared, layout) or _einsum(frame, a, b, shared, layout)


def _is_weighted_sum(a: Value, b: Value) -> bool:
    """True if one operand has all indices of the other, and they are not two tensors with names."""
    in_a, in_b = frozenset(a.indices), frozenset(b.indices)
    named = isinstance(a.code, Name) and isinstance(b.code, Name)
    return (in_a <= in_b or in_b <= in_a) and not named


def _matmul(frame: Frame, a: Value, b: Value, shared: Indices, layout: Indices) -> Value | None:
    """Return a @ b if one index is summed and every other shared index is a batch of both."""
    if len(shared) != 1 or shared[0].group:
        return None
    (k,) = shared
    both = frozenset(a.indices) & frozenset(b.indices)
    batch = [i for i in layout if i in both and i is not k]
    left = [i for i in layout if i in a.indices and i not in both]
    right = [i for i in layout if i in b.indices and i not in both]
    if right and (not left or layout.index(right[-1]) < layout.index(left[-1])):
        a, b, left, right = b, a, right, left
    result = [i for i in layout if i is not k]
    if not _is_matmul(batch, left, right) or [*batch, *left, *right] != result:
        return None
    sides = [*batch, *left, k], [*batch, k, *right]
    x, y = frame.permute(a, sides[0]), frame.permute(b, sides[1])
    return Value(Binary("@", x.code, y.code), tuple(result))


def _group_product(
    frame: Frame, a: Value, b: Value, shared: Indices, layout: Indices
) -> Value | None:
    """Return the product of a tensor that has a group with one of which all axes are summed."""
    small, large = (a, b) if frozenset(a.indices) <= frozenset(shared) else (b, a)
    own, axes = small.axes, large.axes
    rest = [i for i in axes if i not in shared]
    grouped = any(i.group for i in layout)
    if not grouped or set(own) != set(shared) or rest != [i for i in layout if i not in shared]:
        return None
    if axes[: len(own)] == own:
        sides, dims = (small, large), frame.rank(small)
    elif axes[-len(own) :] == own:
        sides, dims = (large, small), frame.rank(small)
    elif len(own) == 1 and not shared[0].group:
        place = frame.position(axes, axes.index(own[0]))
        sides, dims = (large, small), Tuple((Tuple((place,)), Tuple((literal(0),))))
    else:
        return None
    code = FunctionCall("torch.tensordot", (*(x.code for x in sides), dims))
    return Value(code, tuple(rest))


def _is_matmul(batch: Indices, left: Indices, right: Indices) -> bool:
    """True if @ multiplies operands with these axes besides the summed one."""
    if batch:
        return len(left) == len(right) == 1
    if right:
        return len(right) == 1 and not right[0].group
    return len(left) == 1 or (bool(left) and not any(i.group for i in left))


def _is_direct(product: Value, a: Value, b: Value) -> bool:
    """True if both sides are the operands themselves or their last two axes transposed."""
    if not isinstance(product.code, Binary):
        return True
    direct = {a.code, b.code, Attribute(a.code, "mT"), Attribute(b.code, "mT")}
    return {product.code.left, product.code.right} <= direct


def _matmul_merged_runs(
    frame: Frame, a: Value, b: Value, shared: Indices, layout: Indices
) -> Value | None:
    """Return a @ b with as few runs of adjacent indices merged into one axis as necessary.

    A matrix-vector product is not merged over several summed axes. It accumulates sequentially and
    loses precision with the length; a sum is pairwise.
    """
    runs = _adjacent_runs((a.indices, b.indices, [i for i in layout if i not in shared]), shared)
    if set(a.indices) <= set(shared) or set(b.indices) <= set(shared):
        runs = [run for run in runs if run[0] not in shared]
    found: Value | None = None
    for count in range(1, len(runs) + 1):
        for chosen in combinations(runs, count):
            x, y, around, within = a, b, layout, shared
            for run in chosen:
                x, y = _merge_run(frame, x, run), _merge_run(frame, y, run)
                around, within = _with_run_index(around, run), _with_run_index(within, run)
            product = _matmul(frame, x, y, within, around)
            if product is not None:
                direct = _is_direct(product, x, y)
                found = _split_runs(frame, product, chosen) if direct or found is None else found
                if direct:
                    return found
    return found


def _run_index(run: Indices) -> Index:
    """Return the merged index of a run."""
    return Index(" ".join(i.name for i in run), " ".join(i.extent for i in run))


def _split_runs(frame: Frame, value: Value, runs: Sequence[tuple[Index, ...]]) -> Value:
    """Return the value with each merged index split into its run."""
    parts = {_run_index(run): run for run in runs}
    code, axes = value.code, list(value.indices)
    for n, i in reversed(list(enumerate(value.indices))):
        if i in parts:
            at = place_number(frame, value.axes, n)
            code = unflattened(code, at, Tuple(tuple(Dim(x.extent) for x in parts[i])))
            axes[n : n + 1] = parts[i]
    return replace(value, code=code, axes=tuple(axes))


def _adjacent_runs(sides: Sequence[Indices], shared: Indices) -> list[tuple[Index, ...]]:
    """Return the longest runs of indices that are adjacent in every side that has one of them.

    A group is in no run, as it may have no axes.
    """

    def follows(i: Index, j: Index) -> bool:
        if i.group or j.group or (i in shared) != (j in shared):
            return False
        found = [side for side in sides if i in side or j in side]
        return all((i, j) in pairwise(side) for side in found)

    runs: list[tuple[Index, ...]] = []
    seen: set[Index] = set()
    for side in sides:
        run: tuple[Index, ...] = ()
        for i in side:
            if i in seen:
                continue
            seen.add(i)
            if run and follows(run[-1], i):
                run = (*run, i)
            else:
                runs.append(run)
                run = (i,)
        runs.append(run)
    return [run for run in runs if len(run) > 1]


def _merge_run(frame: Frame, value: Value, run: tuple[Index, ...]) -> Value:
    if run[0] not in value.axes:
        return value
    n = value.axes.index(run[0])
    axes = (*value.axes[:n], _run_index(run), *value.axes[n + len(run) :])
    ends = (place_number(frame, value.axes, m) for m in (n, n + len(run) - 1))
    return replace(value, code=flattened(value.code, *ends), axes=axes)


def _with_run_index(indices: Indices, run: tuple[Index, ...]) -> list[Index]:
    """Return the indices with the run replaced by its merged index."""
    return [_run_index(run) if i is run[0] else i for i in indices if i is run[0] or i not in run]


def _tensordot(frame: Frame, a: Value, b: Value, shared: Indices, layout: Indices) -> Value | None:
    """Return the product over a group, of tensors that have no other axis in common."""
    rest = [[i for i in x.axes if i not in shared] for x in (a, b)]
    result = [i for i in layout if i not in shared]
    if result != [*rest[0], *rest[1]]:
        a, b, rest = b, a, rest[::-1]
    if not any(i.group for i in shared) or result != [*rest[0], *rest[1]]:
        return None
    places = ([x.axes.index(i) for i in shared] for x in (a, b))
    dims = Tuple(tuple(frame.positions(x.axes, n) for x, n in zip((a, b), places, strict=True)))
    return Value(FunctionCall("torch.tensordot", (a.code, b.code, dims)), tuple(result))


def _einsum(frame: Frame, a: Value, b: Value, shared: Indices, layout: Indices) -> Value:
    result = [i for i in layout if i not in shared]
    equation = frame.einsum_equation([a.indices, b.indices, result], layout)
    code: Code = FunctionCall("torch.einsum", (equation, a.code, b.code))
    return Value(code, tuple(result))
