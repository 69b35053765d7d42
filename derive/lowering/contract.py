"""Sum_k a*b*... as matrix products, reductions of elementwise products, or einsum.

Operands are joined in pairs: the pair with the fewest joint indices first, then the one with
the smallest result. Indices that stand in one operand alone are summed before it is joined.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from derive.algebra.expr import Index
from derive.lowering.code import Binary, Code, Function, Literal
from derive.lowering.value import Frame, NeedsFlatGroups, Value, broadcast

__all__ = ["contract", "times"]

_LETTERS = "ijklmnopqrstuvwxyzabcdefgh"


def times(frame: Frame, a: Value, b: Value, order: Sequence[Index]) -> Value:
    """a * b elementwise, axes in ``order``."""
    a, b = frame.fit(a, order), frame.fit(b, order)
    kind = a.kind if a.kind == b.kind and a.kind != "bool" else "float"
    return Value(Binary("*", a.code, b.code), broadcast(a.axes, b.axes), kind)


def contract(
    frame: Frame, operands: Sequence[Value], binders: Sequence[Index], order: Sequence[Index]
) -> Value:
    """Sum over binders of the product of the operands.

    ``order`` lists all free and bound indices: the layout of elementwise intermediates and,
    without the binders, of the result.
    """
    values = [frame.squeeze(v, ()) for v in operands]
    rank = {i: n for n, i in enumerate(order)}
    while len(values) > 1:
        a, b = min(
            combinations(range(len(values)), 2),
            key=lambda pair: _price(values, pair, binders),
        )
        others = [v for n, v in enumerate(values) if n not in (a, b)]
        kept = {i for v in others for i in v.indices}
        now = [i for i in binders if i not in kept]
        joined = _join(frame, values[a], values[b], now, order)
        values = [*others[:a], joined, *others[a:]]
    (value,) = values
    left = [i for i in binders if i in value.axes]
    return _sum_out(frame, value, left, rank)


def _price(
    values: Sequence[Value], pair: tuple[int, int], binders: Sequence[Index]
) -> tuple[int, int, tuple[int, int]]:
    a, b = (frozenset(values[n].indices) for n in pair)
    kept = {i for n, v in enumerate(values) if n not in pair for i in v.indices}
    result = {i for i in a | b if i not in binders or i in kept}
    return len(a | b), len(result), pair


def _sum_out(frame: Frame, value: Value, binders: Sequence[Index], rank: dict[Index, int]) -> Value:
    which = [n for n, i in enumerate(value.axes) if i in binders]
    return frame.reduce(value, "sum", which, False, value.kind)


def _join(
    frame: Frame, a: Value, b: Value, binders: Sequence[Index], order: Sequence[Index]
) -> Value:
    """Sum over binders of a * b."""
    rank = {i: n for n, i in enumerate(order)}
    in_a, in_b = frozenset(a.indices), frozenset(b.indices)
    a = _sum_out(frame, a, [i for i in binders if i in in_a and i not in in_b], rank)
    b = _sum_out(frame, b, [i for i in binders if i in in_b and i not in in_a], rank)
    in_a, in_b = frozenset(a.indices), frozenset(b.indices)
    shared = [i for i in binders if i in in_a and i in in_b]
    layout = [i for i in order if i in in_a | in_b]
    if not shared:
        return times(frame, a, b, layout)
    product = _matmul(frame, a, b, shared, layout)
    if product is not None:
        return product
    if in_a <= in_b or in_b <= in_a:
        whole = times(frame, a, b, layout)
        return _sum_out(frame, whole, shared, rank)
    return _einsum(frame, a, b, shared, layout)


def _matmul(
    frame: Frame, a: Value, b: Value, shared: Sequence[Index], layout: Sequence[Index]
) -> Value | None:
    """a @ b where one index is summed and every other shared index is a batch of both."""
    if len(shared) != 1 or shared[0].group:
        return None
    (k,) = shared
    both = frozenset(a.indices) & frozenset(b.indices)
    batch = [i for i in layout if i in both and i is not k]
    left = [i for i in layout if i in a.indices and i not in both]
    right = [i for i in layout if i in b.indices and i not in both]
    if right and (not left or layout.index(right[-1]) < layout.index(left[-1])):
        a, b, left, right = b, a, right, left
    if not left and not right:
        return None
    result = [i for i in layout if i is not k]
    if batch:
        if len(left) != 1 or len(right) != 1 or [*batch, *left, *right] != result:
            return None
        sides = [*batch, *left, k], [*batch, k, *right]
    else:
        if len(right) > 1 or any(i.group for i in right) or (not left and not right):
            return None
        if not right and len(left) > 1 and any(i.group for i in left):
            return None
        if [*left, *right] != result:
            return None
        sides = [*left, k], [k, *right]
    x = frame.permute(a, sides[0])
    y = frame.permute(b, sides[1])
    return Value(Binary("@", x.code, y.code), tuple(result))


def _einsum(
    frame: Frame, a: Value, b: Value, shared: Sequence[Index], layout: Sequence[Index]
) -> Value:
    groups = [i for i in layout if i.group]
    if len(groups) > 1 or any(i.group for i in shared):
        raise NeedsFlatGroups("einsum over groups")
    letters = iter(_LETTERS)
    names = {i: "..." if i.group else next(letters) for i in layout}
    result = [i for i in layout if i not in shared]
    sides = ["".join(names[i] for i in v.indices) for v in (a, b)]
    target = "".join(names[i] for i in result)
    equation = Literal(f'"{sides[0]},{sides[1]}->{target}"')
    code: Code = Function("torch.einsum", (equation, a.code, b.code))
    return Value(code, tuple(result))
