"""Sums of terms: signs, pairs of complementary brackets, scatters into a base."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from derive.algebra.expr import Add, Expr, Index, Mul, Num
from derive.algebra.poly import negate
from derive.lowering.code import Binary, Code, Method, Name, Unary
from derive.lowering.fused import added_product, is_scaled_product
from derive.lowering.guarded import complement, protected
from derive.lowering.pieces import cut_in_pieces
from derive.lowering.scatter import is_scattered, scatter
from derive.lowering.scope import Scope, common_kind
from derive.lowering.stacks import stacked
from derive.lowering.value import Value, broadcast

__all__ = ["lower_addition"]

_MOST = 48
"""More addends than this are added in groups: each is a level of the code that adds them."""


def lower_addition(scope: Scope, args: Sequence[Expr], order: Sequence[Index]) -> Value:
    """a + b - c ...; [c]*a + [not c]*b is one ``torch.where``, a delta adds into the rest."""
    plain: list[Expr] = []
    scattered: list[Expr] = []
    for a in args:
        (scattered if is_scattered(a) else plain).append(a)
    if scattered:
        cases = stacked(scope, args, order)
        if cases is None:
            return _add_scattered(scope, plain, scattered, order)
        stack, left = cases
        if not left:
            return stack
        beside = scope.lower(left[0] if len(left) == 1 else Add(tuple(left)), order)
        return _total(scope, [(stack, 1), (beside, 1)], order)
    values: list[tuple[Value, int]] = []
    while plain and (cut := cut_in_pieces(scope, plain, order)) is not None:
        value, plain = cut
        values.append((value, 1))
    if len(values) == 1 and not plain:
        return values[0][0]
    paired = complement(plain)
    if paired is not None:
        condition, then, other, rest = paired
        value = scope.where(
            scope.condition(condition, order),
            scope.lower(protected(scope, then, condition), order),
            scope.lower(protected(scope, other, negate(condition)), order),
            order,
        )
        if not rest and not values:
            return value
        values.append((value, 1))
        plain = rest
    products = set()
    for a in plain:
        sign, positive = _signed(a)
        value = scope.lower(positive, order)
        values.append((value, sign))
        if is_scaled_product(positive, order):
            products.add(value.code)
    return _total(scope, values, order, products)


def _total(
    scope: Scope,
    values: list[tuple[Value, int]],
    order: Sequence[Index],
    products: Collection[Code] = (),
) -> Value:
    """The sum of values with their signs; ``products`` are scaled matrix products."""
    if len(values) > _MOST:
        groups = [values[n : n + _MOST] for n in range(0, len(values), _MOST)]
        sums = [(_total(scope, group, order, products), 1) for group in groups]
        return _total(scope, sums, order)
    kind = common_kind([v for v, _ in values])
    if kind in ("float", "bool"):
        kind = "float"
        values = [(scope.as_float(v), sign) for v, sign in values]
    else:
        values = [(_as_int(v), sign) for v, sign in values]
    if all(sign < 0 for _, sign in values):
        first, sign = values[0]
        values[0] = (replace(first, code=Unary("-", first.code)), 1)
    # A number waits for a difference of tensors: a - b + eps, where a may be near b.
    differs = len({sign for v, sign in values if not v.scalar}) == 2
    values.sort(key=lambda entry: (differs and entry[0].scalar, entry[1] < 0))
    values = _bias_last(values)
    if values[0][0].code in products and len(values) > 1 and values[1][1] > 0:
        values[:2] = reversed(values[:2])
    result, _ = values[0]
    result = scope.frame.fit(result, order)
    for value, sign in values[1:]:
        fused = added_product(result, value, sign) if value.code in products else None
        if fused is not None:
            result = fused
            continue
        value = scope.frame.fit(value, order)
        code = Binary("+" if sign > 0 else "-", result.code, value.code)
        both = result.scalar and value.scalar
        result = Value(code, broadcast(result.axes, value.axes), kind, both)
    return result


def _as_int(value: Value) -> Value:
    """A truth value as a number: torch subtracts none from a number, nor the reverse."""
    if value.kind != "bool" or value.scalar:
        return value
    code = Method(value.code, "to", (Name("torch.int64"),))
    return replace(value, code=code, kind="int")


def _bias_last(values: list[tuple[Value, int]]) -> list[tuple[Value, int]]:
    """a @ W + b: a matrix product before tensors that are spread over it."""
    least = len(values[0][0].indices)
    for n, (value, sign) in enumerate(values):
        product = isinstance(value.code, Binary) and value.code.op == "@"
        if product and sign > 0 and not values[0][0].scalar and len(value.indices) > least:
            return [values[n], *values[:n], *values[n + 1 :]]
    return values


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
        result = scope.as_float(value)
    assert result is not None
    return result


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
