"""Cases at constant positions: one value for each position.

delta(t, 0)*a + delta(t, 1)*b  =  a and b stacked along t
delta(t, 0)*delta(u, 1)*a + delta(t, 2)*delta(u, 0)*b  =  a block of a, b and zeros, padded

The block is the bounding box of the positions. It is padded if an axis has, or may have, more
positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

from derive.algebra.affine import Polynomial
from derive.algebra.expr import (
    Delta,
    Expr,
    Index,
    Num,
    factors_of,
    indices_of,
    num,
    product_of,
    sum_of,
)
from derive.algebra.substitution import substitute
from derive.calculus.equality_rules import range_of
from derive.lowering.ground.context import Scope
from derive.lowering.ground.value import ZERO, Added, Indices, Value
from derive.lowering.ground.windows import padded_along
from derive.notation.operation import Kind
from derive.program.torch_ir import Binary, Code, Dim, FunctionCall, MethodCall, Tuple, literal

_SPARSEST = 4
"""A block has at most this many positions per case."""

Cases = dict[tuple[int, ...], list[Expr]]
"""The values by position, in the order of the axes."""


def stacked(scope: Scope, addends: Sequence[Expr], order: Indices) -> Added | None:
    """delta(t, 0) a + delta(t, 1) b = stack(a, b)[t]."""
    found: dict[tuple[Index, ...], tuple[Cases, list[Expr]]] = {}
    for e in addends:
        axes, at, content = _stacked_case(scope, e, order)
        if axes:
            cases, terms = found.setdefault(axes, ({}, []))
            cases.setdefault(at, []).append(content)
            terms.append(e)
    for axes, (cases, terms) in found.items():
        value = _block(scope, axes, cases, order)
        if value is not None:
            return value, [e for e in addends if e not in terms]
    return None


def _block(scope: Scope, axes: tuple[Index, ...], cases: Cases, order: Indices) -> Value | None:
    """Return the cases as one tensor, unless they are too sparse."""
    spans = [(min(along), max(along)) for along in zip(*cases, strict=True)]
    lengths = [last - first + 1 for first, last in spans]
    sizes = [scope.frame.bounds.size(i.extent).number for i in axes]
    is_whole = all(n == last + 1 for n, (_, last) in zip(sizes, spans, strict=True))
    cells = prod(lengths)
    is_full = cells == len(cases) and is_whole and all(first == 0 for first, _ in spans)
    if not is_full and (len(cases) < 2 or cells > _SPARSEST * len(cases)):
        return None
    around = [i for i in order if i not in axes]
    every = product(*(range(first, last + 1) for first, last in spans))
    held = [scope.lower(sum_of(cases[at]), around) if at in cases else ZERO for at in every]
    kind: Kind = "int" if all(value.kind == "int" for value in held) else "float"
    if kind == "float":
        held = [scope.as_float(value) for value in held]
    codes = [scope.frame.expand(value, around, scope.like).code for value in held]
    n = list(order).index(axes[0])
    if tuple(order[n : n + len(axes)]) != axes:
        n = len(around)
    layout = (*around[:n], *axes, *around[n:])
    place = scope.frame.position((*around[:n], axes[0], *around[n:]), n)
    name = "rt.stack" if n == len(around) else "torch.stack"
    code: Code = FunctionCall(name, (Tuple(tuple(codes)), place))
    if len(axes) > 1:
        at_end = scope.frame.position((*around[:n], axes[-1], *around[n:]), n)
        code = MethodCall(code, "unflatten", (at_end, Tuple(tuple(map(literal, lengths)))))
    value = Value(code, layout, kind)
    amounts = {}
    for m, (i, size, (first, last)) in enumerate(zip(axes, sizes, spans, strict=True)):
        after = Binary("-", Dim(i.extent), literal(last + 1))
        behind = after if size is None else literal(int(size) - last - 1)
        if first or behind is not literal(0):
            amounts[n + m] = literal(first), behind
    return padded_along(scope, value, amounts)


def _stacked_case(
    scope: Scope, e: Expr, order: Indices
) -> tuple[tuple[Index, ...], tuple[int, ...], Expr]:
    """Return (axes, positions, f) if e = delta(axes, positions)*f; no axes otherwise.

    An f that has a value on the axis alone is no case at a position that may not be on it.
    """
    deltas = [a for a in factors_of(e) if isinstance(a, Delta)]
    at = {
        d.axis: int(d.position.value)
        for d in deltas
        if isinstance(d.axis, Index) and isinstance(d.position, Num) and not d.axis.group
    }
    if len(at) < len(deltas):
        return (), (), e
    content = [a for a in factors_of(e) if a not in deltas]
    bounds = scope.frame.bounds
    for i in at.keys() & indices_of(content):
        if range_of(bounds, i, Polynomial.of(at[i])):
            return (), (), e
    axes = tuple(i for i in order if i in at)
    there: dict[Index, Expr] = {i: num(n) for i, n in at.items()}
    rest = [substitute(a, there) for a in content]
    return axes, tuple(at[i] for i in axes), product_of(rest)
