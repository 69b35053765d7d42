"""Sums of terms: signs, pairs of complementary brackets, scatters into a base."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from derive.algebra.expr import Add, Expr, Index, Iverson, Mul, Not, Num, Rel
from derive.algebra.poly import negate
from derive.lowering.code import Binary, Unary
from derive.lowering.pieces import cut_in_pieces
from derive.lowering.products import protected
from derive.lowering.scatter import is_scattered, scatter
from derive.lowering.scope import Scope, common_kind
from derive.lowering.value import Value, broadcast

__all__ = ["lower_addition"]


def lower_addition(scope: Scope, args: Sequence[Expr], order: Sequence[Index]) -> Value:
    """a + b - c ...; [c]*a + [not c]*b is one ``torch.where``, a delta adds into the rest."""
    plain: list[Expr] = []
    scattered: list[Expr] = []
    for a in args:
        (scattered if is_scattered(a) else plain).append(a)
    if scattered:
        return _add_scattered(scope, plain, scattered, order)
    values: list[tuple[Value, int]] = []
    while plain and (cut := cut_in_pieces(scope, plain, order)) is not None:
        value, plain = cut
        values.append((value, 1))
    if len(values) == 1 and not plain:
        return values[0][0]
    paired = _complement(plain)
    if paired is not None:
        condition, then, other, rest = paired
        value = scope.where(
            scope.condition(condition, order),
            scope.lower(protected(then, condition), order),
            scope.lower(protected(other, negate(condition)), order),
            order,
        )
        if not rest and not values:
            return value
        values.append((value, 1))
        plain = rest
    for a in plain:
        sign, positive = _signed(a)
        values.append((scope.lower(positive, order), sign))
    return _total(scope, values, order)


def _total(scope: Scope, values: list[tuple[Value, int]], order: Sequence[Index]) -> Value:
    """The sum of values with their signs."""
    kind = common_kind([v for v, _ in values])
    if kind in ("float", "bool"):
        kind = "float"
        values = [(scope.as_float(v), sign) for v, sign in values]
    if all(sign < 0 for _, sign in values):
        first, sign = values[0]
        values[0] = (replace(first, code=Unary("-", first.code)), 1)
    values.sort(key=lambda entry: entry[1] < 0)
    values = _bias_last(values)
    result, _ = values[0]
    result = scope.frame.fit(result, order)
    for value, sign in values[1:]:
        value = scope.frame.fit(value, order)
        code = Binary("+" if sign > 0 else "-", result.code, value.code)
        both = result.scalar and value.scalar
        result = Value(code, broadcast(result.axes, value.axes), kind, both)
    return result


def _bias_last(values: list[tuple[Value, int]]) -> list[tuple[Value, int]]:
    """a @ W + b: a matrix product before tensors that are spread over it."""
    least = len(values[0][0].indices)
    for n, (value, sign) in enumerate(values):
        product = isinstance(value.code, Binary) and value.code.op == "@"
        if product and sign > 0 and not values[0][0].scalar and len(value.indices) > least:
            return [values[n], *values[:n], *values[n + 1 :]]
    return values


def _complement(args: Sequence[Expr]) -> tuple[Expr, Expr, Expr, list[Expr]] | None:
    """[c]*a + [not c]*b among the addends: (c, a, b, the rest)."""
    for n, a in enumerate(args):
        for m, b in enumerate(args):
            masks_a, masks_b = masks_of(a), masks_of(b)
            if n < m and len(masks_a) == len(masks_b) == 1:
                if negate(masks_a[0].condition) is masks_b[0].condition:
                    then, other = _unmasked(a), _unmasked(b)
                    if isinstance(then, Num) and isinstance(other, Num):
                        return None
                    condition = masks_a[0].condition
                    rest = [x for k, x in enumerate(args) if k not in (n, m)]
                    if isinstance(condition, Not) or (
                        isinstance(condition, Rel)
                        and condition.op == "!="
                        and isinstance(then, Num)
                    ):
                        return negate(condition), other, then, rest
                    return condition, then, other, rest
    return None


def _add_scattered(
    scope: Scope, plain: Sequence[Expr], scattered: Sequence[Expr], order: Sequence[Index]
) -> Value:
    """The plain addends, and each scattered one added into them in place of a new tensor."""
    result: Value | None = None
    if plain:
        whole = plain[0] if len(plain) == 1 else Add(tuple(plain))
        result = scope.as_float(scope.lower(whole, order))
        result = scope.frame.expand(result, order, scope.like)
    for e in scattered:
        whole_axes = result is not None and result.axes == tuple(order)
        base = result.code if result is not None and whole_axes else None
        value, into_base = scatter(scope, e, order, base)
        value = scope.frame.fit(value, order)
        if result is not None and not into_base:
            code = Binary("+", result.code, value.code)
            value = Value(code, broadcast(result.axes, value.axes))
        result = value
    assert result is not None
    return result


def masks_of(e: Expr) -> list[Iverson]:
    args = e.args if isinstance(e, Mul) else (e,)
    return [a for a in args if isinstance(a, Iverson)]


def _unmasked(e: Expr) -> Expr:
    args = e.args if isinstance(e, Mul) else (e,)
    rest = tuple(a for a in args if not isinstance(a, Iverson))
    if not rest:
        return Num(Fraction(1))
    return rest[0] if len(rest) == 1 else Mul(rest)


def _signed(e: Expr) -> tuple[int, Expr]:
    """The sign of an addend and the addend without it."""
    if isinstance(e, Num) and e.value < 0:
        return -1, Num(-e.value)
    if isinstance(e, Mul) and isinstance(e.args[0], Num) and e.args[0].value < 0:
        coef = -e.args[0].value
        rest = e.args[1:]
        if coef != 1:
            return -1, Mul((Num(coef), *rest))
        return -1, rest[0] if len(rest) == 1 else Mul(rest)
    return 1, e
