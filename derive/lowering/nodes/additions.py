"""Sums of terms: patterns of brackets and deltas first, then signs and order."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from derive.algebra.expr import Expr, Mul, Num, product_of, sum_of
from derive.lowering.ground.context import Scope, common_kind
from derive.lowering.ground.pattern import first_match
from derive.lowering.ground.value import Indices, Value, broadcast
from derive.lowering.nodes.access import lower_placed
from derive.lowering.patterns import ADDED, ADDED_PLACES
from derive.lowering.patterns.fused import added_product, biased, is_scaled_product
from derive.lowering.patterns.scatter_elements import as_summation, at_the_same_places, is_placed
from derive.notation.operation import Kind
from derive.program.torch_ir import Binary, Code, Unary

_MOST = 48
"""The greatest number of addends in one chain; each addend nests the code one level deeper."""


def lower_addition(scope: Scope, args: Sequence[Expr], order: Indices) -> Value:
    """Lower a + b - c ...; patterns may take several addends together."""
    values: list[tuple[Value, int]] = []
    left = list(args)
    while left:
        placed = [a for a in left if is_placed(a)]
        found = first_match(ADDED_PLACES if placed else ADDED, scope, left, order)
        if found is None and placed:
            found = _with_placed(scope, left, placed, order), []
        if found is None:
            break
        value, left = found
        values.append((value, 1))
    if len(values) == 1 and not left:
        return values[0][0]
    products = set()
    for a in left:
        sign, positive = _split_sign(a)
        value = scope.lower(positive, order)
        values.append((value, sign))
        if is_scaled_product(positive, order):
            products.add(value.code)
    return _signed_sum(scope, values, order, products)


def _signed_sum(
    scope: Scope, values: list[tuple[Value, int]], order: Indices, products: Collection[Code] = ()
) -> Value:
    """Return the signed sum of values; ``products`` are scaled matrix products."""
    if len(values) > _MOST:
        groups = [values[n : n + _MOST] for n in range(0, len(values), _MOST)]
        sums = [(_signed_sum(scope, group, order, products), 1) for group in groups]
        return _signed_sum(scope, sums, order)
    kind: Kind = "int" if common_kind([v for v, _ in values]) == "int" else "float"
    values = _with_biases(scope, values)
    values = _addition_order(scope, values, kind, products)
    result = scope.frame.fit(values[0][0], order)
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


def _with_biases(scope: Scope, values: list[tuple[Value, int]]) -> list[tuple[Value, int]]:
    """Return the values with biases merged into convolutions.

    A bias is an addend that has only the channels as its indices.
    """
    for n, (value, sign) in enumerate(values):
        for m, (other, its) in enumerate(values):
            made = biased(scope, value, other) if sign == its == 1 and m != n else None
            if made is not None:
                left = [entry for k, entry in enumerate(values) if k not in (m, n)]
                return _with_biases(scope, [(made, 1), *left])
    return values


def _addition_order(
    scope: Scope, values: list[tuple[Value, int]], kind: Kind, products: Collection[Code]
) -> list[tuple[Value, int]]:
    """Return the signed values in the order of addition: one kind, the first one positive."""
    of_kind = scope.as_float if kind == "float" else scope.as_int
    values = [(of_kind(v), sign) for v, sign in values]
    if all(sign < 0 for _, sign in values):
        first, _ = values[0]
        values[0] = (replace(first, code=Unary("-", first.code)), 1)
    # Add a number after a difference of tensors: a - b + eps, where a may be near b.
    differs = len({sign for v, sign in values if not v.scalar}) == 2
    values.sort(key=lambda entry: (differs and entry[0].scalar, entry[1] < 0))
    values = _bias_last(values)
    if values[0][0].code in products and len(values) > 1 and values[1][1] > 0:
        values[:2] = reversed(values[:2])
    return values


def _bias_last(values: list[tuple[Value, int]]) -> list[tuple[Value, int]]:
    """Return the values with a matrix product before tensors broadcast to it: a @ W + b."""
    least = len(values[0][0].indices)
    for n, (value, sign) in enumerate(values):
        product = isinstance(value.code, Binary) and value.code.op == "@"
        if product and sign > 0 and not values[0][0].scalar and len(value.indices) > least:
            return [values[n], *values[:n], *values[n + 1 :]]
    return values


def _with_placed(
    scope: Scope, args: Sequence[Expr], placed: Sequence[Expr], order: Indices
) -> Value:
    """Add the plain terms, then scatter each placed term into the result instead of into zeros."""
    plain = [a for a in args if a not in placed]
    args = [*plain, *at_the_same_places(placed, order)]
    result: Value | None = None
    if plain:
        result = scope.as_float(scope.lower(sum_of(plain), order))
        result = scope.frame.expand(result, order, scope.like)
    for e in args:
        if e in plain:
            continue
        whole = result is not None and result.axes == tuple(order)
        base = result.code if result is not None and whole else None
        value, into_base = lower_placed(scope, as_summation(e, order), base)
        value = scope.frame.fit(value, order)
        if result is not None and not into_base:
            code = Binary("+", result.code, value.code)
            value = Value(code, broadcast(result.axes, value.axes))
        result = scope.as_float(value)
    assert result is not None
    return result


def _split_sign(e: Expr) -> tuple[int, Expr]:
    """Return the sign of an addend, and the addend without it."""
    if isinstance(e, Num) and e.value < 0:
        return -1, Num(-e.value)
    if isinstance(e, Mul) and isinstance(e.args[0], Num) and e.args[0].value < 0:
        coef, rest = -e.args[0].value, e.args[1:]
        return -1, product_of(rest) if coef == 1 else Mul((Num(coef), *rest))
    return 1, e
