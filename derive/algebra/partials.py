"""Partial derivatives of functions, by the conventions of torch.autograd.

At each kink, tie and singular point they are what torch has there.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from derive.algebra.expr import (
    Access,
    And,
    Call,
    Const,
    Expr,
    Iverson,
    Mul,
    Not,
    Num,
    Or,
    Pow,
    Rel,
    num,
)
from derive.algebra.poly import Poly, as_atom

Partial = Callable[..., Expr]


def relation(op: str, left: Expr, right: Expr | int) -> Expr:
    return Rel(op, left, num(right) if isinstance(right, int) else right)


def bracket(op: str, left: Expr, right: Expr | int) -> Expr:
    return Iverson(relation(op, left, right))


def zero(*_: Expr) -> Expr:
    return num(0)


def one(*_: Expr) -> Expr:
    return num(1)


def remainder_y(x: Expr, y: Expr, _: Expr) -> Expr:
    """-floor(x/y), as torch.remainder."""
    return Mul((num(-1), Call("floor", (Mul((x, Pow(y, num(-1)))),))))


def fmod_y(x: Expr, y: Expr, _: Expr) -> Expr:
    """-trunc(x/y), as torch.fmod."""
    return Mul((num(-1), Call("trunc", (Mul((x, Pow(y, num(-1)))),))))


def larger(a: Expr, b: Expr) -> Expr:
    """d max(a, b)/da = [a > b] + [a == b]/2, as torch.maximum: a tie is shared evenly."""
    return bracket(">", a, b) + Fraction(1, 2) * bracket("==", a, b)


def smaller(a: Expr, b: Expr) -> Expr:
    """d min(a, b)/da = [a < b] + [a == b]/2, as torch.minimum: a tie is shared evenly."""
    return bracket("<", a, b) + Fraction(1, 2) * bracket("==", a, b)


def clamp_x(x: Expr, lo: Expr, hi: Expr, _: Expr) -> Expr:
    """[lo <= x and x <= hi], as torch.clamp: on a bound the gradient goes to x."""
    return Iverson(And((relation("<=", lo, x), relation("<=", x, hi))))


def clamp_lo(x: Expr, lo: Expr, hi: Expr, _: Expr) -> Expr:
    """[x < lo and lo < hi], as torch.clamp with tensor bounds."""
    return Iverson(And((relation("<", x, lo), relation("<", lo, hi))))


def clamp_hi(x: Expr, lo: Expr, hi: Expr, _: Expr) -> Expr:
    """[x > hi or lo > hi], as torch.clamp with tensor bounds: hi wins where they cross."""
    return Iverson(Or((relation(">", x, hi), relation(">", lo, hi))))


def off_origin(numerator: Expr, y: Expr, x: Expr) -> Expr:
    """numerator/(x^2 + y^2), and 0 at the origin."""
    square = x**2 + y**2
    return Mul((bracket("!=", square, 0), numerator, Pow(square, num(-1))))


def atan2_y(y: Expr, x: Expr, _: Expr) -> Expr:
    """x/(x^2 + y^2), as torch.atan2: 0 at the origin."""
    return off_origin(x, y, x)


def atan2_x(y: Expr, x: Expr, _: Expr) -> Expr:
    """-y/(x^2 + y^2), as torch.atan2: 0 at the origin."""
    return off_origin(-y, y, x)


def both(first: Callable[[Expr, Expr], Expr]) -> tuple[Partial, Partial]:
    """Both partials of a function that is symmetric in its two arguments."""
    return (lambda a, b, _: first(a, b)), (lambda a, b, _: first(b, a))


def logaddexp_slope(a: Expr, b: Expr) -> Expr:
    """exp(a)/(exp(a) + exp(b)), as torch.logaddexp: nan where both are the same infinity."""
    return Call("sigmoid", (a - b,))


def relu_slope(x: Expr, value: Expr) -> Expr:
    """[x > 0], or [relu(x) > 0] if x is computed, so that only the value need be saved."""
    read = isinstance(as_atom(x) if isinstance(x, Poly) else x, Access)
    return Iverson(Not(relation("<=", x if read else value, 0)))


def over_hypot(x: Expr, _: Expr, value: Expr) -> Expr:
    """x/hypot(x, y), as torch.hypot: nan at the origin."""
    return Mul((x, Pow(value, num(-1))))


def exp2_slope(x: Expr, y: Expr) -> Expr:
    """2^x log 2."""
    return Mul((Call("log", (num(2),)), y))


def digamma_slope(x: Expr, y: Expr) -> Expr:
    """polygamma(1, x)."""
    return Call("polygamma", (num(1), x))


def erfinv_slope(x: Expr, y: Expr) -> Expr:
    """sqrt(pi)/2 exp(y^2)."""
    root = Pow(Const("pi"), num(Fraction(1, 2)))
    return Mul((num(Fraction(1, 2)), root, Call("exp", (y**2,))))


def logarithm_of(base: int) -> Partial:
    """1/(x log base)."""
    return lambda x, y: Mul((Pow(x, num(-1)), Pow(Call("log", (num(base),)), num(-1))))


def pow_base(x: Expr, y: Expr, _: Expr) -> Expr:
    """y x^(y - 1), as torch.pow: 0 where y is 0, whatever x is."""
    return Mul((bracket("!=", y, 0), y, Call("pow", (x, y - 1))))


def pow_exponent(x: Expr, y: Expr, value: Expr) -> Expr:
    """x^y log x, as torch.pow: 0 where x is 0 and y >= 0."""
    singular = And((relation("==", x, 0), relation(">=", y, 0)))
    return Mul((Iverson(Not(singular)), value, Call("log", (x,))))


def polygamma_x(n: Expr, x: Expr, _: Expr) -> Expr:
    """polygamma(n + 1, x), as torch.polygamma."""
    following = num(n.value + 1) if isinstance(n, Num) else n + 1
    return Call("polygamma", (following, x))
