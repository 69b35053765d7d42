"""Products and quotients: numbers first, then small tensors; brackets become masks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from math import prod

from derive.algebra.expr import (
    Add,
    Delta,
    Expr,
    Iverson,
    Mul,
    Num,
    Pow,
    Reduce,
    Size,
    Where,
    factors_of,
    free_indices,
    is_number,
    product_of,
    sum_of,
)
from derive.algebra.logic import conjunction
from derive.algebra.substitution import rename_apart, substitute
from derive.errors import LoweringError
from derive.lowering.ground.axis_order import renaming
from derive.lowering.ground.context import Scope, fraction_value, whole
from derive.lowering.ground.guard_lowering import is_zero_outside, under_condition
from derive.lowering.ground.numbers import math_call, quotient_of_numbers
from derive.lowering.ground.pattern import first_match
from derive.lowering.ground.summation import Summation, masked_triangle
from derive.lowering.ground.value import Frame, Indices, Value, broadcast
from derive.lowering.nodes.access import lower_placed
from derive.lowering.nodes.sums import lower_mean
from derive.lowering.patterns import PRODUCTS
from derive.lowering.patterns.scatter_elements import as_summation, is_placed
from derive.notation.operation import Kind
from derive.program.torch_ir import Binary, Code, Conditional, Literal, Unary, literal

_LONGEST = 10**6
"""The largest divisor that is written as an integer; beyond it, the coefficient is a float."""

_DIGITS = 20
"""A denominator up to _LONGEST that divides 10**_DIGITS has no prime factors but 2 and 5."""

_LONGEST_OF_DECIMAL = 100
"""The largest divisor that is written for a finite decimal: 1/25, but 0.044715."""


def lower_product(scope: Scope, args: Sequence[Expr], order: Indices) -> Value:
    """Lower a * b * ... / c; [condition] factors mask the product, deltas scatter it."""
    args = tuple(args)
    if any(isinstance(a, Delta) for a in args):
        return lower_placed(scope, as_summation(Mul(args), order))[0]
    made = first_match(PRODUCTS, scope, args, order)
    if made is not None:
        return made
    into = _distribute_over_deltas(args, order)
    if into is not None:
        return scope.lower(into, order)
    placed = as_summation(Mul(args), order)
    if _is_spread(placed):
        return lower_placed(scope, placed)[0]
    masks = [a for a in args if isinstance(a, Iverson)]
    rest = [a for a in args if not isinstance(a, Iverson)]
    if not masks:
        return _unmasked(scope, rest, order)
    condition = conjunction([m.condition for m in masks])
    rest = [under_condition(a, condition) for a in rest]
    coef = prod((a.value for a in rest if isinstance(a, Num)), start=Fraction(1))
    if all(isinstance(a, Num) for a in rest) and coef.denominator == 1:
        return _bracket_product(scope, condition, coef, order)
    value = _unmasked(scope, rest, order)
    if is_zero_outside(rest, condition):
        return value
    return masked_triangle(scope, condition, value, order)


def _is_spread(s: Summation) -> bool:
    """True if what is scattered lacks a summed index, so that factors are best applied before."""
    rest = [f for f in s.factors if not isinstance(f, Delta)]
    spread = any(all(i not in free_indices(f) for f in rest) for i in s.binders)
    return spread and len(rest) < len(s.factors)


def _distribute_over_deltas(args: Sequence[Expr], order: Indices) -> Expr | None:
    """Rewrite f*(c*x + a + delta*b) as (f*c)*x + f*a + delta*f*b, if all but x lack an axis.

    This saves a pass over the large tensors. Without x, masks are distributed too: the base of the
    scatter is an expanded tensor that is copied anyway, and a masked one is as fast to copy.
    """
    sums = [a for a in args if isinstance(a, Add)]
    addends = _addends(sums[0]) if len(sums) == 1 else []
    if not any(map(is_placed, addends)):
        return None
    others = [a for a in args if a is not sums[0]]
    plain = [a for a in addends if not is_placed(a)]
    small = [f for f in others if not isinstance(f, Iverson)]
    if not _lacks_axis([*small, *plain], order):
        masks = [f for f in others if isinstance(f, Iverson)]
        pays = bool(small) and _lacks_axis(small, order)
        if not pays or not all(_has_small(a, order) for a in plain):
            return None
        whole = sum_of([product_of([*small, *factors_of(a)]) for a in addends])
        return product_of([*masks, whole])
    return sum_of([_choice_by_numbers(product_of([*others, *factors_of(a)])) for a in addends])


def _addends(e: Add) -> list[Expr]:
    """Return the addends; a nested sum with a numeric factor is expanded."""
    found = []
    for a in e.args:
        match a:
            case Mul((Num() as n, Add() as inner)):
                found += [product_of([n, *factors_of(x)]) for x in _addends(inner)]
            case _:
                found.append(a)
    return found


def _lacks_axis(factors: Sequence[Expr], order: Indices) -> bool:
    """True if the product of these factors lacks an axis of the order."""
    return bool(frozenset(order).difference(*map(free_indices, factors)))


def _has_small(e: Expr, order: Indices) -> bool:
    """True if e, or a factor of e that is not a number, lacks an axis."""
    factors = [f for f in factors_of(e) if not isinstance(f, Num)]
    return _lacks_axis([e], order) or any(_lacks_axis([f], order) for f in factors)


def _choice_by_numbers(e: Expr) -> Expr:
    """Rewrite [c]*f as f if c else 0 for conditions on numbers, unless f has a delta."""
    asked = [f for f in factors_of(e) if isinstance(f, Iverson) and is_number(f)]
    if not asked or is_placed(e):
        return e
    rest = product_of([f for f in factors_of(e) if f not in asked])
    return Where(conjunction([f.condition for f in asked]), rest, Num(Fraction(0)))


def _unmasked(scope: Scope, args: Sequence[Expr], order: Indices) -> Value:
    """Return the product of factors without brackets."""
    args, at = _take_mean(args, scope.frame)
    coef = Fraction(1)
    above: list[Value] = []
    below: list[Value] = []
    for n, a in enumerate(args):
        if isinstance(a, Num):
            coef *= a.value
        elif isinstance(a, Pow) and isinstance(a.exponent, Num):
            value, divides = _lower_power(scope, a.base, a.exponent.value, order)
            (below if divides else above).append(value)
        elif isinstance(a, Pow):
            raise LoweringError(f"no torch code for a power with the exponent {a.exponent!r}")
        elif n == at:
            assert isinstance(a, Reduce)
            own = rename_apart(a.indices, order)
            renamed = substitute(a.body, renaming(a.indices, own))
            above.append(lower_mean(scope, Summation(own, factors_of(renamed), tuple(order))))
        else:
            above.append(scope.lower(a, order))
    return _scaled_quotient(scope, coef, above, below, order)


def _bracket_product(scope: Scope, condition: Expr, coef: Fraction, order: Indices) -> Value:
    """Return coef * [condition] for an integer coef."""
    test = scope.condition(condition, order)
    if test.scalar:
        code: Code = Conditional(test.code, fraction_value(coef).code, literal(0))
        return Value(code, kind="int", scalar=True)
    if coef == 1:
        return replace(test, kind="bool")
    return _scaled_quotient(scope, coef, [scope.as_float(test)], [], order)


def _scaled_quotient(
    scope: Scope, coef: Fraction, above: Sequence[Value], below: Sequence[Value], order: Indices
) -> Value:
    """Return coef * above... / below..., numbers first, then small tensors."""
    exact = coef.denominator == 1 and not below
    kind: Kind = "int" if exact and all(v.kind != "float" for v in above) else "float"
    bottom = coef.denominator if _divides(coef.denominator) else 1
    factors = _numerator_factors(scope, coef, bottom, above, kind)
    below = [scope.as_float(v) for v in below]
    divisors = [Value(whole(bottom), kind="int", scalar=True)] if bottom != 1 else []
    divisors += [v for v in below if v.scalar] + [v for v in below if not v.scalar]
    if not divisors:
        return replace(chain(scope, "*", factors, order), kind=kind)
    # Divide the small factors before they meet the largest tensors: this saves a pass over those.
    divisor = chain(scope, "*", divisors, order)
    largest = max(len(v.indices) for v in factors)
    small = [v for v in factors if len(v.indices) < largest]
    if small and len(divisor.indices) < largest:
        large = [v for v in factors if len(v.indices) == largest]
        result = chain(scope, "*", [_divide_product(scope, small, divisor, order), *large], order)
    else:
        result = _divide_product(scope, factors, divisor, order)
    return replace(result, kind=kind)


def _divides(denominator: int) -> bool:
    """True if the coefficient is written with a divisor, and not as a float."""
    is_decimal = 10**_DIGITS % denominator == 0
    longest = _LONGEST_OF_DECIMAL if is_decimal else _LONGEST
    return denominator not in (2, 4, 8, 16) and denominator <= longest


def _numerator_factors(
    scope: Scope, coef: Fraction, bottom: int, above: Sequence[Value], kind: Kind
) -> list[Value]:
    """Return the numerator, numbers first, then small tensors; the first factor has the sign."""
    above = [scope.as_float(v) if kind == "float" else scope.as_int(v) for v in above]
    factors = [*_numerator(coef, bottom), *(v for v in above if v.scalar)]
    factors += sorted((v for v in above if not v.scalar), key=lambda v: len(v.indices))
    first, *rest = factors or [Value(literal(1), kind="int", scalar=True)]
    return [replace(first, code=Unary("-", first.code)) if coef < 0 else first, *rest]


def _numerator(coef: Fraction, bottom: int) -> list[Value]:
    """Return the absolute coefficient times the divisor, omitted if it is 1."""
    if bottom != coef.denominator:
        return [Value(literal(abs(coef.numerator) / coef.denominator), scalar=True)]
    size = abs(coef.numerator)
    return [] if size == 1 else [Value(whole(size), kind="int", scalar=True)]


def _divide_product(
    scope: Scope, factors: Sequence[Value], divisor: Value, order: Indices
) -> Value:
    above = chain(scope, "*", factors, order)
    if above.scalar and divisor.scalar:
        return replace(above, code=quotient_of_numbers(scope.frame, above.code, divisor.code))
    return chain(scope, "/", [above, divisor], order)


def chain(scope: Scope, op: str, values: Sequence[Value], order: Indices) -> Value:
    result = scope.frame.fit(values[0], order)
    for value in values[1:]:
        value = scope.frame.fit(value, order)
        both = result.scalar and value.scalar
        axes = broadcast(result.axes, value.axes)
        result = Value(Binary(op, result.code, value.code), axes, result.kind, both)
    return result


def _lower_power(
    scope: Scope, base: Expr, exponent: Fraction, order: Indices
) -> tuple[Value, bool]:
    """Return base ** |exponent|, and whether it is a divisor."""
    value = scope.lower(base, order)
    divides = exponent < 0
    size = abs(exponent)
    if divides and isinstance(base, Num) and base.value == 0:
        # Python raises an exception on division by 0.
        return Value(Literal("math.inf"), scalar=True), False
    if divides or exponent.denominator != 1:
        value = scope.as_float(value)
    if size == 1:
        return value, divides
    if value.scalar:
        power = fraction_value(size).code
        if size.denominator == 1:
            return replace(value, code=Binary("**", value.code, power)), divides
        if isinstance(base, Num) and base.value < 0:
            return replace(value, code=Literal("math.nan")), divides
        if size == Fraction(1, 2):
            return replace(value, code=math_call("sqrt", value.code)), divides
        # A fractional power of a negative Python number would be complex.
        return replace(value, code=math_call("pow", value.code, power)), divides
    if size == 2:
        return value.call("square"), divides
    if size == Fraction(1, 2):
        return value.call("rsqrt" if divides else "sqrt"), False
    signed = literal(float(exponent)) if exponent.denominator != 1 else literal(int(exponent))
    return replace(value, code=Binary("**", value.code, signed)), False


def _take_mean(args: Sequence[Expr], frame: Frame) -> tuple[tuple[Expr, ...], int | None]:
    """Find a mean, Sum_k f * 1/size(k): return the other factors, and the sum's position.

    The position identifies the sum, as an equal sum may occur twice and only one of them is the
    mean.
    """
    for a in args:
        if not (isinstance(a, Reduce) and a.kind == "sum"):
            continue
        inside = factors_of(a.body)
        if any(isinstance(f, Delta | Iverson) for f in inside):
            continue
        if len(inside) > 1 and not _is_mean_of_product(inside, a, frame):
            continue
        many = Counter(i.extent for i in a.indices)
        sizes: list[Expr] = [Pow(Size(e), Num(Fraction(-n))) for e, n in many.items()]
        if all(s in args for s in sizes):
            left = list(args)
            for s in sizes:
                left.remove(s)
            return tuple(left), next(n for n, f in enumerate(left) if f is a)
    return tuple(args), None


def _is_mean_of_product(factors: Sequence[Expr], whole: Reduce, frame: Frame) -> bool:
    """True if the product is no larger than a factor, and no matrix product is faster."""
    large = [f for f in factors if free_indices(f) >= free_indices(whole.body)]
    grouped = any(i.group for i in whole.indices)
    preferred = frame.prefers_reductions or (grouped and frame.prefers_means)
    return len(large) == len(factors) or (preferred and bool(large))
