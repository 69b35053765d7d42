"""The order of bound indices in a layout, and renamings that keep them apart."""

from __future__ import annotations

from derive.algebra.expr import Expr, Index, accesses, free_indices, walk
from derive.calculus.lets import layout
from derive.calculus.softmax import NormalizedExp
from derive.lowering.ground.value import Indices


def with_binders(around: Indices, binders: Indices, body: Expr) -> tuple[Index, ...]:
    """Return ``around`` with the binders inserted as in the largest access of the body.

    A binder in no access belongs to a stack, which reduces fastest over its first axis. The binder
    of a window comes last, as an axis of its own. If a tensor computes the position, the read has
    the axes of that tensor in their order.
    """
    result = list(around)
    natural = layout(body)
    known = [i for i in natural if i in binders]
    read = [p for a in accesses(body) for p in a.positions if not isinstance(p, Index)]
    positions = [p for p in read if not any(accesses(p))]
    within = {b for p in positions for b in free_indices(p) & set(known) if free_indices(p) != {b}}
    known.sort(key=lambda i: i in within)
    held = frozenset[Index]().union(*map(free_indices, accesses(body)))
    for b in [*known, *(i for i in binders if i not in known)]:
        at = len(result) if b in held else 0
        if b in natural and b in held and b not in within:
            n = natural.index(b)
            before = [i for i in natural[:n] if i in result]
            after = [i for i in natural[n + 1 :] if i in result]
            if before:
                at = result.index(before[-1]) + 1
            elif after:
                at = result.index(after[0])
        result.insert(at, b)
    return tuple(result)


def binders_for_axis(
    axis: Index, order: Indices, binders: Indices, body: Expr
) -> tuple[Index, ...]:
    """Return ``order`` without ``axis``, with the binders whose values are scattered along it.

    Binders that share no access with another index replace the axis at its position.
    """
    around = [i for i in order if i is not axis]
    beside = [free_indices(a) for a in accesses(body) if not free_indices(a).isdisjoint(around)]
    if axis not in order or any(b in own for own in beside for b in binders):
        return with_binders(around, binders, body)
    return tuple(j for i in order for j in (binders if i is axis else (i,)))


def binders_behind(around: Indices, binders: Indices, body: Expr) -> tuple[Index, ...]:
    """Return ``around`` with each binder after every index that precedes it in an access.

    If several tensors are mapped and no one has all axes, this permutes none of them.
    """
    if any(free_indices(a).issuperset(layout(body)) for a in accesses(body)):
        return with_binders(around, binders, body)
    result = list(around)
    for b in binders:
        read = [a.positions for a in accesses(body) if b in a.positions]
        before = {i for positions in read for i in positions[: positions.index(b)]}
        places = [n for n, i in enumerate(result, 1) if i in before]
        result.insert(max(places, default=0) if read else len(result), b)
    return tuple(result)


def common_axis_order(e: Expr) -> tuple[Index, ...]:
    """Return the axes of e in the order of each of its accesses, where these agree.

    The position at which a softmax is read stands for the index that it normalizes over.
    """
    axes = layout(e)
    at = {n.index: n.position for n in walk(e) if isinstance(n, NormalizedExp)}
    read = ([at.get(i, i) for i in a.positions if isinstance(i, Index)] for a in accesses(e))
    orders = [[i for i in own if i in axes] for own in read]
    behind = {i: {j for own in orders if i in own for j in own[: own.index(i)]} for i in axes}
    result: list[Index] = []
    while left := [i for i in axes if i not in result]:
        result.append(next((i for i in left if behind[i] <= {*result}), left[0]))
    return tuple(result)


def renaming(old: Indices, new: Indices) -> dict[Index, Expr]:
    return dict(zip(old, new, strict=True))


def keeps(inner: Indices, binders: Indices, used: Indices, order: Indices) -> bool:
    """True if the reduction with keepdim fits ``order`` without a further view."""

    def gaps(whole: Indices, extra: Indices) -> list[int]:
        counts = [0]
        for i in whole:
            if i in extra:
                counts[-1] += 1
            else:
                counts.append(0)
        return counts

    unused = [i for i in order if i not in used]
    if any(i.group for i in unused) or any(i.group for i in binders):
        return False
    have, want = gaps(inner, list(binders)), gaps(order, unused)
    if len(have) != len(want) or not any(want[1:]):
        return False
    return have[1:] == want[1:] and have[0] <= want[0]
