"""Pairs of complementary brackets.

[c]*a + [not c]*b    =  torch.where(c, a, b)
x*([c] + s*[not c])  =  torch.where(c, x, s*x)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations

from derive.algebra.expr import (
    Add,
    Call,
    Expr,
    Iverson,
    Not,
    Num,
    Rel,
    Where,
    factors_of,
    free_indices,
    indices_of,
    is_number,
    num,
    product_of,
    walk,
)
from derive.algebra.logic import negate
from derive.algebra.poly import base_and_power, raised
from derive.lowering.ground.context import Scope
from derive.lowering.ground.guard_lowering import under_condition
from derive.lowering.ground.value import Added, Indices, Value
from derive.program.torch_ir import Code, FunctionCall, MethodCall, Unary


def added_branches(scope: Scope, addends: Sequence[Expr], order: Indices) -> Added | None:
    """[c] a + [not c] b = where(c, a, b)."""
    for pair, (condition, then, other) in complements(addends):
        test = scope.condition(condition, order)
        a = scope.lower(under_condition(then, condition), order)
        b = scope.lower(under_condition(other, negate(condition)), order)
        return scope.where(test, a, b, order), [x for x in addends if x not in pair]
    return None


def scaled_by_branches(scope: Scope, factors: Sequence[Expr], order: Indices) -> Value | None:
    """x ([c] + s [not c]) = where(c, x, s x).

    There is no tensor for the numbers.
    """
    for a in factors:
        pairs = complements(a.args) if isinstance(a, Add) and len(a.args) == 2 else ()
        for _, (condition, *branches) in pairs:
            rest = tuple(x for x in factors if x is not a)
            free = free_indices(condition)
            covered = any(free_indices(x) and free <= free_indices(x) for x in rest)
            if free == free_indices(a) and covered and not indices_of(branches):
                scaled = (product_of(rest if b is num(1) else (b, *rest)) for b in branches)
                return scope.lower(Where(condition, *scaled), order)
    return None


def complements(
    addends: Sequence[Expr],
) -> Iterator[tuple[tuple[Expr, Expr], tuple[Expr, Expr, Expr]]]:
    """Yield the first pair [c]*a, [not c]*b of addends, with (c, a, b); nothing for two numbers."""
    for pair in combinations(addends, 2):
        brackets = [[f for f in factors_of(e) if isinstance(f, Iverson)] for e in pair]
        if [len(found) for found in brackets] != [1, 1]:
            continue
        condition = brackets[0][0].condition
        if negate(condition) is not brackets[1][0].condition:
            continue
        rest = ([f for f in factors_of(e) if not isinstance(f, Iverson)] for e in pair)
        then, other = map(product_of, rest)
        if isinstance(then, Num) and isinstance(other, Num):
            return
        unlike = isinstance(condition, Rel) and condition.op == "!=" and isinstance(then, Num)
        if isinstance(condition, Not) or unlike:
            condition, then, other = negate(condition), other, then
        yield pair, (condition, then, other)
        return


# --------------------------------------------------------------------
# Choices between a tensor and its bounds: one pass without branches.
#
#     where(|x| <= d, s*x, s*d*sign(x))        s*x.clamp(-d, d)       0 <= d, s a number
#     where(x <= a, a, where(x >= b, b, x))    hardtanh(x, a, b)      a <= b
#     where(x <= t, v, x)                      threshold(x, t, v)
#     where(x >= t, v, x)                      -threshold(-x, -t, -v)
#
# A strict or non-strict comparison gives the same value, but another derivative at the bound: clamp
# has the derivative of x there, hardtanh and threshold have 0. A nan in x stays nan. If the
# parameter
# d is negative, the first form is s*d*sign(x) everywhere. The same branch is taken for d = 0 if s
# differs there.

_HARDTANH = "torch.ops.aten.hardtanh"
_Powers = dict[Expr, Fraction]
_Choice = tuple[Expr, Expr, Expr]


def added_clamp(scope: Scope, addends: Sequence[Expr], order: Indices) -> Added | None:
    """[|x| <= d] x + [not |x| <= d] d sign(x) = clamp(x, -d, d)."""
    for pair, choice in complements(addends):
        for found in (_clamp_symmetric, _clamp_between, _beyond):
            value = found(scope, choice, order)
            if value is not None:
                return value, [a for a in addends if a not in pair]
    return None


def _clamp_symmetric(scope: Scope, choice: _Choice, order: Indices) -> Value | None:
    """where(|x| <= d, s*x, s*d*sign(x))."""
    match choice:
        case Rel("<=" | "<" as op, Call("abs", (x,)), d), then, other if is_number(d):
            level = _float_tensor(scope, x, order)
            positive = Rel("<", num(0), d)
            inside, outside = _choice_powers(then, positive), _choice_powers(other, positive)
            scale = _times_power(inside, x, -1)
            wanted = _times_power(_times_power(scale, d), Call("sign", (x,)))
            if level is None or wanted != outside or not all(map(is_number, scale)):
                return None
            low, high = (scope.lower(side, order).code for side in (-d, d))
            clamp: Code = MethodCall(level.code, "clamp", (low, high))
            if op == "<":
                clamp = FunctionCall(_HARDTANH, (level.code, low, high))
            held = scope.held(replace(level, code=clamp))
            factors = (raised(base, n) for base, n in scale.items())
            value = scope.lower(product_of((*factors, held)), order)
            if isinstance(d, Num):
                return value if d.value >= 0 else None
            asked = any(e is positive for e in (*walk(then), *walk(other)))
            test = positive if asked else Rel("<=", num(0), d)
            beside = scope.lower(under_condition(other, negate(choice[0])), order)
            return scope.where(scope.condition(test, order), value, beside, order)
    return None


def _clamp_between(scope: Scope, choice: _Choice, order: Indices) -> Value | None:
    """where(x <= a, a, where(x >= b, b, x)), or with the upper bound first."""
    outer = _bound_side(choice)
    if outer is None or not isinstance(choice[2], Add) or len(choice[2].args) != 2:
        return None
    for _, inner in complements(choice[2].args):
        x, below = outer
        if _bound_side(inner) == (x, not below) and inner[2] is x:
            low, high = (choice[1], inner[1]) if below else (inner[1], choice[1])
            level = _float_tensor(scope, x, order)
            if level is None or not (isinstance(low, Num) and isinstance(high, Num)):
                return None
            if low.value <= high.value:
                ends = (scope.lower(side, order).code for side in (low, high))
                return replace(level, code=FunctionCall(_HARDTANH, (level.code, *ends)))
    return None


def _bound_side(choice: _Choice) -> tuple[Expr, bool] | None:
    """Return x of where(x <= t, t, ..) or where(x >= t, t, ..), and whether t is a lower bound."""
    match choice:
        case Rel("<=", x, t), then, _ if then is t and is_number(t):
            return x, True
        case Rel("<=", t, x), then, _ if then is t and is_number(t):
            return x, False
    return None


def _beyond(scope: Scope, choice: _Choice, order: Indices) -> Value | None:
    """where(x <= t, v, x) or where(x >= t, v, x)."""
    match choice:
        case Rel("<=", x, t), v, other if other is x and is_number(t) and is_number(v):
            return _threshold(scope, (x, t, v), order)
        case Rel("<=", t, x), v, other if other is x and is_number(t) and is_number(v):
            mirrored = _threshold(scope, (-x, -t, -v), order)
            return mirrored and replace(mirrored, code=Unary("-", mirrored.code))
    return None


def _threshold(scope: Scope, args: Sequence[Expr], order: Indices) -> Value | None:
    level = _float_tensor(scope, args[0], order)
    if level is None:
        return None
    numbers = (scope.lower(number, order).code for number in args[1:])
    return replace(level, code=FunctionCall("torch.threshold", (level.code, *numbers)))


def _float_tensor(scope: Scope, x: Expr, order: Indices) -> Value | None:
    value = scope.frame.fit(scope.lower(x, order), order)
    return None if value.scalar or value.kind != "float" else value


def _choice_powers(e: Expr, positive: Expr) -> _Powers:
    """Return the factors of e with their powers; a choice by ``positive`` is its first branch."""
    powers: _Powers = {}
    for f in factors_of(e):
        if isinstance(f, Add) and len(f.args) == 2:
            for _, (condition, then, _) in complements(f.args):
                f = then if condition is positive else f
        for part in factors_of(f):
            base, power = base_and_power(part)
            powers = _times_power(powers, base, power)
    return powers


def _times_power(powers: _Powers, base: Expr, power: Fraction | int = 1) -> _Powers:
    """Return the powers times one more factor; numbers are merged, and 1 is dropped."""
    made = dict(powers)
    if isinstance(base, Num) and abs(power) == 1:
        known = next((b for b in made if isinstance(b, Num)), num(1))
        made.pop(known, None)
        scale = known.value * (base.value if power == 1 else 1 / base.value)
        return made if scale == 1 else {num(scale): Fraction(1), **made}
    made[base] = made.get(base, Fraction(0)) + power
    return {b: n for b, n in made.items() if n}
