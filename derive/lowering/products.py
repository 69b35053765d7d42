"""Products and quotients: numbers first, then small tensors; brackets become masks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from derive.algebra.expr import (
    Add,
    And,
    Delta,
    Expr,
    Index,
    Iverson,
    Mul,
    Num,
    Pow,
    Reduce,
    Size,
    Where,
    free_indices,
)
from derive.algebra.substitution import substitute
from derive.errors import LoweringError
from derive.lowering.binders import apart, renaming
from derive.lowering.code import (
    Binary,
    Code,
    Conditional,
    Function,
    Literal,
    Method,
    Unary,
    literal,
)
from derive.lowering.guarded import complement, is_zero_outside, protected
from derive.lowering.nothing import never_zero
from derive.lowering.pieces import cut_in_pieces, zero_outside
from derive.lowering.scatter import scatter
from derive.lowering.scope import Scope, number, whole
from derive.lowering.sums import lower_sum
from derive.lowering.value import Value, broadcast
from derive.notation.operation import Kind

__all__ = ["chain", "lower_product"]


def lower_product(scope: Scope, args: Sequence[Expr], order: Sequence[Index]) -> Value:
    """a * b * ... / c; [condition] factors mask the product, deltas place it."""
    if any(isinstance(a, Delta) for a in args):
        return scatter(scope, Mul(tuple(args)), order, None)[0]
    cut = cut_in_pieces(scope, (Mul(tuple(args)),), order)
    if cut is not None:
        return cut[0]
    args = zero_outside(scope, args) or args
    chosen = _scaled(scope, args, order)
    if chosen is not None:
        return chosen
    masks = [a for a in args if isinstance(a, Iverson)]
    if masks:
        condition = conjunction(masks)
        args = tuple(a if a in masks else protected(scope, a, condition) for a in args)
        if is_zero_outside(args, condition):
            masks = []
    args, mean = _take_mean(args)
    coef = Fraction(1)
    above: list[Value] = []
    below: list[Value] = []
    for a in args:
        if isinstance(a, Iverson):
            continue
        if isinstance(a, Num):
            coef *= a.value
        elif isinstance(a, Pow) and isinstance(a.exponent, Num):
            value, divides = _power(scope, a.base, a.exponent.value, order)
            (below if divides else above).append(value)
        elif isinstance(a, Pow):
            raise LoweringError(f"a power with the exponent {a.exponent!r}")
        elif a is mean:
            assert isinstance(a, Reduce)
            own = apart(a.indices, order)
            renamed = substitute(a.body, renaming(a.indices, own))
            above.append(lower_sum(scope, own, renamed, order, "mean"))
        else:
            above.append(scope.lower(a, order))
    if not above and not below and masks and coef.denominator == 1:
        return _bracket_product(scope, masks, coef, order)
    result = _quotient(scope, coef, above, below, order)
    if not masks:
        return result
    test = scope.condition(conjunction(masks), order)
    zero = Value(literal(0), kind="int", scalar=True)
    return scope.where(test, result, zero, order)


def _scaled(scope: Scope, args: Sequence[Expr], order: Sequence[Index]) -> Value | None:
    """x*([c] + s*[not c]) as ``torch.where(c, x, s*x)``: numbers make no tensor of their own."""
    for a in args:
        pair = complement(a.args) if isinstance(a, Add) else None
        if pair is None or pair[3] or free_indices(a) != free_indices(pair[0]):
            continue
        condition, then, other, _ = pair
        rest = tuple(x for x in args if x is not a)
        tensors = [x for x in rest if free_indices(x)]
        if not tensors or free_indices(then) or free_indices(other):
            continue
        if not any(free_indices(condition) <= free_indices(x) for x in tensors):
            continue
        branches = (_times(rest, x) for x in (then, other))
        return scope.lower(Where(condition, *branches), order)
    return None


def _times(args: tuple[Expr, ...], e: Expr) -> Expr:
    whole = args if isinstance(e, Num) and e.value == 1 else (e, *args)
    return whole[0] if len(whole) == 1 else Mul(whole)


def _bracket_product(
    scope: Scope, masks: Sequence[Iverson], coef: Fraction, order: Sequence[Index]
) -> Value:
    """coef * [condition], a number."""
    test = scope.condition(conjunction(masks), order)
    if test.scalar:
        code: Code = Conditional(test.code, number(coef).code, literal(0))
        return Value(code, kind="int", scalar=True)
    value = scope.as_float(test) if coef != 1 else test
    if coef == 1:
        return replace(value, kind="bool")
    return _quotient(scope, coef, [value], [], order)


def conjunction(masks: Sequence[Iverson]) -> Expr:
    """The condition that a product of brackets is 1."""
    conditions = tuple(m.condition for m in masks)
    return conditions[0] if len(conditions) == 1 else And(conditions)


def _quotient(
    scope: Scope,
    coef: Fraction,
    above: Sequence[Value],
    below: Sequence[Value],
    order: Sequence[Index],
) -> Value:
    """coef * above... / below..., numbers first, then small tensors."""
    exact = coef.denominator == 1 and not below
    kind: Kind = "int" if exact and all(v.kind != "float" for v in above) else "float"
    if kind == "float":
        above, below = [scope.as_float(v) for v in above], [scope.as_float(v) for v in below]
    else:
        above = [replace(scope.as_float(v), kind="int") if v.kind == "bool" else v for v in above]
    top, bottom = coef.numerator, coef.denominator
    factors: list[Value] = []
    if bottom in (2, 4, 8, 16):
        factors.append(Value(literal(abs(top) / bottom), scalar=True))
        bottom = 1
    elif abs(top) != 1:
        factors.append(Value(whole(abs(top)), kind="int", scalar=True))
    factors += [v for v in above if v.scalar]
    tensors = [v for v in above if not v.scalar]
    factors += sorted(tensors, key=lambda v: len(v.indices))
    if not factors:
        factors = [Value(literal(1), kind="int", scalar=True)]
    divisors = [Value(whole(bottom), kind="int", scalar=True)] if bottom != 1 else []
    divisors += [v for v in below if v.scalar] + [v for v in below if not v.scalar]
    first = factors[0]
    if top < 0:
        negative = Unary("-", first.code)
        first = replace(first, code=negative)
    factors[0] = first
    if not divisors:
        return replace(chain(scope, "*", factors, order), kind=kind)
    # Small factors meet the divisors before the largest tensors: one pass over those less.
    divisor = chain(scope, "*", divisors, order)
    largest = max(len(v.indices) for v in factors)
    small = [v for v in factors if len(v.indices) < largest]
    large = [v for v in factors if len(v.indices) == largest]
    if small and len(divisor.indices) < largest:
        result = chain(scope, "*", [_over(scope, small, divisor, order), *large], order)
    else:
        result = _over(scope, factors, divisor, order)
    return replace(result, kind=kind)


def _over(scope: Scope, factors: Sequence[Value], divisor: Value, order: Sequence[Index]) -> Value:
    """The quotient of a product."""
    above = chain(scope, "*", factors, order)
    if above.scalar and divisor.scalar:
        divisor = replace(divisor, code=never_zero(scope.frame, divisor.code))
    return chain(scope, "/", [above, divisor], order)


def chain(scope: Scope, op: str, values: Sequence[Value], order: Sequence[Index]) -> Value:
    result = scope.frame.fit(values[0], order)
    for value in values[1:]:
        value = scope.frame.fit(value, order)
        both = result.scalar and value.scalar
        axes = broadcast(result.axes, value.axes)
        result = Value(Binary(op, result.code, value.code), axes, result.kind, both)
    return result


def _power(
    scope: Scope, base: Expr, exponent: Fraction, order: Sequence[Index]
) -> tuple[Value, bool]:
    """base ** |exponent|, and whether it divides."""
    value = scope.lower(base, order)
    divides = exponent < 0
    size = abs(exponent)
    if divides and isinstance(base, Num) and base.value == 0:
        # Python has no quotient by 0.
        return Value(Literal("math.inf"), scalar=True), False
    if divides or exponent.denominator != 1:
        value = scope.as_float(value)
    if size == 1:
        return value, divides
    if value.scalar:
        power = number(size).code
        if size.denominator == 1:
            return replace(value, code=Binary("**", value.code, power)), divides
        if isinstance(base, Num) and base.value < 0:
            return replace(value, code=Literal("math.nan")), divides
        if size == Fraction(1, 2):
            return replace(value, code=Function("math.sqrt", (value.code,))), divides
        # Python's own power of a negative number would be complex.
        return replace(value, code=Function("math.pow", (value.code, power))), divides
    if size == 2:
        return replace(value, code=Method(value.code, "square")), divides
    if size == Fraction(1, 2) and divides:
        return replace(value, code=Method(value.code, "rsqrt")), False
    if size == Fraction(1, 2):
        return replace(value, code=Method(value.code, "sqrt")), False
    signed = literal(float(exponent)) if exponent.denominator != 1 else literal(int(exponent))
    return replace(value, code=Binary("**", value.code, signed)), False


def _take_mean(args: Sequence[Expr]) -> tuple[tuple[Expr, ...], Expr | None]:
    """Sum_k f * 1/size(k) among the factors: the sum is a mean, the size is used up."""
    for a in args:
        if not (isinstance(a, Reduce) and a.kind == "sum"):
            continue
        inside = a.body.args if isinstance(a.body, Mul) else (a.body,)
        if len(inside) > 1 or isinstance(inside[0], Delta | Iverson):
            continue
        many = Counter(i.extent for i in a.indices)
        sizes: list[Expr] = [Pow(Size(e), Num(Fraction(-n))) for e, n in many.items()]
        if all(s in args for s in sizes):
            return tuple(x for x in args if x not in sizes), a
    return tuple(args), None
