"""Identities that shorten an expression for display, for real numbers.

    exp(f(k) - logsumexp[l](f(l)))      softmax[k](f(k))
    clamp(x, lo, inf)                   max(x, lo)
    [0 <= e < size(t)]*δ(t, e)          δ(t, e)         (t is a position of its axis)
    δ(t, e)*x[e]                        δ(t, e)*x[t]
    sqrt(2)*x/2                         x/sqrt(2)
    where(|x| > d, d*sign(x), x)        sign(x)*min(|x|, d)     (d of any sign)
    where(x > 0, 1, exp(x))             exp(min(x, 0))

The code keeps the left sides: a condition guards its cofactors, and a delta scatters along an axis.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from fractions import Fraction
from itertools import product

from derive.algebra import expr as ex
from derive.algebra.affine import Polynomial, form
from derive.algebra.factor import over_roots, roots_joined
from derive.algebra.logic import conditions_of, conjunction
from derive.algebra.poly import raised
from derive.algebra.substitution import replace, substitute


@ex.node
class AxisFunction(ex.Expr):
    """A function along some indices with one value per position: a softmax."""

    kind: str
    indices: tuple[ex.Index, ...]
    body: ex.Expr
    condition: ex.Expr | None = None


# A softmax


def share(args: Sequence[ex.Expr]) -> tuple[ex.Expr, ...]:
    """Replace exp(f - logsumexp f) by softmax f in the factors of a product.

    If the sum has a condition, the product must have the same condition as a bracket.
    """
    brackets = [a for a in args if isinstance(a, ex.Iverson)]
    for call in args:
        for made, condition in _softmax_matches(call):
            gone = [b for b in brackets if b.condition is condition]
            if condition is None or gone:
                return tuple(made if a is call else a for a in args if a not in gone)
    return tuple(args)


def _softmax_matches(call: ex.Expr) -> Iterator[tuple[AxisFunction, ex.Expr | None]]:
    """Yield (softmax, its condition) if the call is exp(f - logsumexp f)."""
    match call:
        case ex.Call("exp", (ex.Add(terms),)):
            pass
        case _:
            return
    for t in terms:
        sign, *rest = ex.factors_of(t)
        total = rest[0] if len(rest) == 1 and sign is ex.num(-1) else None
        if not isinstance(total, ex.Reduce) or total.kind != "logsumexp":
            continue
        f = ex.sum_of([a for a in terms if a is not t])
        outside = sorted(ex.free_indices(f) - ex.free_indices(total), key=lambda i: i.name)
        ranges = ((i.extent, i.group) for i in total.indices)
        fits = ([k for k in outside if (k.extent, k.group) == range_] for range_ in ranges)
        for along in product(*fits):
            here = dict(zip(total.indices, along, strict=True))
            if substitute(total.body, here) is f:
                condition = total.condition and substitute(total.condition, here)
                yield AxisFunction("softmax", along, f, condition), condition


# Functions


def one_sided(e: ex.Call) -> ex.Expr:
    """Return a clamp with one bound as a maximum or a minimum."""
    if e.function == "clamp":
        x, low, high = e.args
        if high is ex.Const("inf"):
            return ex.Call("max", (x, low))
        if low is -ex.Const("inf"):
            return ex.Call("min", (x, high))
    return e


def limited(e: ex.Expr) -> ex.Expr:
    """Return ``where`` between a value and its limit as min or max of the value."""
    match e:
        case ex.Where(ex.Rel(">" | ">=", ex.Call("abs", (x,)) as size, d), then, other) if (
            other is x
        ):
            sign = ex.Call("sign", (x,))
            if then in (ex.Mul((d, sign)), ex.Mul((sign, d))):
                return ex.Mul((sign, ex.Call("min", (size, d))))
        case ex.Where(ex.Rel(">" | ">=", x, zero), one, ex.Call("exp", (y,))) if x is y:
            if (zero, one) == (ex.num(0), ex.num(1)):
                return ex.Call("exp", (ex.Call("min", (x, ex.num(0))),))
    return e


def with_roots(args: Sequence[ex.Expr]) -> tuple[ex.Expr, ...]:
    """Merge the square roots of numbers in a product: √2·x/2 is x/√2."""
    coef, powers = Fraction(1), []
    for a in args:
        if isinstance(a, ex.Num):
            coef *= a.value
        else:
            powers.append(_constant_power(a))
    if not any(isinstance(base, ex.Num | ex.Const) for base, _ in powers):
        return tuple(args)
    coef, rest = over_roots(coef, powers)
    rest, roots = roots_joined(rest)
    numbers = (ex.Num(coef),) if coef != 1 else ()
    return (*numbers, *roots, *(raised(base, n) for base, n in rest))


def _constant_power(e: ex.Expr) -> tuple[ex.Expr, Fraction]:
    """Return (base, exponent); nested powers of a positive constant are merged."""
    if not isinstance(e, ex.Pow) or not isinstance(e.exponent, ex.Num):
        return e, Fraction(1)
    base, n = _constant_power(e.base)
    positive = isinstance(base, ex.Num | ex.Const) and base is not e.base
    return (base, n * e.exponent.value) if positive or n == 1 else (e.base, e.exponent.value)


# Numbers that are not zero


def nonzero(e: ex.Expr) -> ex.Expr | None:
    """Return p if e is [p != 0] or [-p != 0], else None."""
    c = e.condition if isinstance(e, ex.Iverson) else None
    if not isinstance(c, ex.Rel) or c.op != "!=" or ex.num(0) not in c.parts():
        return None
    other = c.left if c.right is ex.num(0) else c.right
    varying = [f for f in ex.factors_of(other) if not isinstance(f, ex.Num)]
    return varying[0] if len(varying) == 1 else other


def divisors(e: ex.Expr) -> Iterator[ex.Expr]:
    """Yield the unconditional divisors in e: where one is 0, e has no value."""
    guarded = isinstance(e, ex.Mul) and any(isinstance(a, ex.Iverson) for a in e.args)
    if guarded or isinstance(e, ex.Where | ex.Guard) or (isinstance(e, ex.Reduce) and e.condition):
        return
    if isinstance(e, ex.Pow) and isinstance(e.exponent, ex.Num) and e.exponent.value < 0:
        yield e.base
    for part in e.parts():
        yield from divisors(part)


def without_nonzero(e: ex.Expr, numbers: Collection[ex.Expr]) -> ex.Expr:
    """Drop the bracket [p != 0] from products for each p in ``numbers``."""

    def said(part: ex.Expr) -> ex.Expr | None:
        if not isinstance(part, ex.Mul):
            return None
        kept = [a for a in part.args if nonzero(a) not in numbers]
        return without_nonzero(ex.product_of(kept), numbers) if len(kept) < len(part.args) else None

    return replace(e, said)


# Deltas


def beside_deltas(args: Sequence[ex.Expr]) -> tuple[ex.Expr, ...]:
    """Drop factors implied by deltas, and read tensors at the axis of a delta."""
    for d in [a for a in args if isinstance(a, ex.Delta) and isinstance(a.axis, ex.Index)]:
        read = [a if a is d else _read_at(d, a) for a in args]
        args = [left for a in read for left in _not_implied(d, a)]
    return tuple(args)


def _read_at(d: ex.Delta, e: ex.Expr) -> ex.Expr:
    """Read tensors at the axis of the delta instead of at its position."""
    if isinstance(d.position, ex.Index | ex.Num):
        return e
    around = ex.free_indices(d)

    def read(part: ex.Expr) -> ex.Expr | None:
        if not around.isdisjoint(part.bound()):
            return part
        if isinstance(part, ex.Access) and d.position in part.positions:
            at = (d.axis if p is d.position else replace(p, read) for p in part.positions)
            return ex.Access(part.tensor, tuple(at))
        return None

    return replace(e, read)


def _not_implied(d: ex.Delta, e: ex.Expr) -> list[ex.Expr]:
    """Return [e] without the conditions that hold wherever the delta is nonzero."""
    if not isinstance(e, ex.Iverson):
        return [e]
    conditions = conditions_of(e.condition)
    left = [c for c in conditions if not _is_in_range(d, c)]
    if len(left) == len(conditions):
        return [e]
    return [ex.Iverson(conjunction(left))] if left else []


def _is_in_range(d: ex.Delta, c: ex.Expr) -> bool:
    """True if the condition bounds the position of the delta by 0 or by the size."""
    assert isinstance(d.axis, ex.Index)
    if not isinstance(c, ex.Rel) or d.axis.group or c.op in ("==", "!="):
        return False
    low, high = (c.left, c.right) if c.op in ("<", "<=") else (c.right, c.left)
    gap = form(high) - form(low) - Polynomial.of(1 if c.op in ("<", ">") else 0)
    position = form(d.position)
    last = Polynomial.of(ex.Size(d.axis.extent)) - Polynomial.of(1)
    # Positions are integers, so the gap minus a position is an integer too.
    more = ((gap - least).number for least in (position, last - position))
    return any(n is not None and n >= 0 for n in more)
