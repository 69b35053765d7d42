"""Normalize conditions, cases and sums of an expression for display, for real numbers.

    not (0 < x)              x ≤ 0
    lo ≤ x and x ≤ hi        lo ≤ x ≤ hi        (the chain is the printer's)
    where(c, a, a)           a
    -x > 0                   x < 0
    a - t - (t + b)          a - 2*t - b
    x[guarded p]             x[p]
    p*[p != 0]               p
    0*x + y                  y
    s*s                      s**2
    [x < b]*[x >= a]         [a ≤ x < b]
    [size(k) > 0]*x[0]       x[0]        (if k has no values, there is no x[0])

The engine keeps ``not (a < b)`` apart from ``b <= a``, which differ for a nan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import permutations

from derive.algebra.expr import (
    Access,
    Add,
    And,
    Call,
    Const,
    Expr,
    Guard,
    Index,
    Iverson,
    Mul,
    Not,
    Num,
    Pow,
    Rel,
    Size,
    Where,
    num,
    product_of,
    sum_of,
    walk,
)
from derive.algebra.substitution import replace, replace_inside_out
from derive.show.cases import DENIED, MIRRORED, by_cases
from derive.show.identities import (
    AxisFunction,
    beside_deltas,
    limited,
    nonzero,
    one_sided,
    share,
    with_roots,
)


def legible(e: Expr) -> Expr:
    """Return the tree e in its display form."""
    return replace_inside_out(replace(e, _without_nonempty_brackets), _legible)


def map_legible(e: Expr, f: Callable[[Expr], Expr]) -> Expr:
    """Apply f to each part of the legible form of e; return e if f changes nothing.

    The maximum or minimum of two, a form for display only, becomes a clamp again.
    """
    read = legible(e)
    found = replace_inside_out(read, f)
    if found is read or any(isinstance(part, AxisFunction) for part in walk(found)):
        return e
    return replace_inside_out(found, _extremum_as_clamp)


def _extremum_as_clamp(e: Expr) -> Expr:
    if isinstance(e, Call) and e.function in ("max", "min"):
        x, bound = e.args
        low, high = (bound, Const("inf")) if e.function == "max" else (-Const("inf"), bound)
        return Call("clamp", (x, low, high))
    return e


def value_of(e: Expr) -> Expr:
    """Replace x + detach(y - x) by y: the value is the same, the derivative is not."""

    def visit(part: Expr) -> Expr:
        still = part.args if isinstance(part, Add) else ()
        for detached in still:
            if isinstance(detached, Call) and detached.function == "detach":
                others = (*(a for a in still if a is not detached), *detached.args)
                summed = _merge_like_terms(Add(others))
                if len(list(_signed_terms(summed, Fraction(1)))) < len(still):
                    return summed
        return part

    return replace_inside_out(e, visit)


def _without_nonempty_brackets(e: Expr) -> Expr | None:
    """Drop the brackets of a product that only state that an axis it reads is nonempty."""
    if not isinstance(e, Mul):
        return None
    kept = [a for a in e.args if not _states_nonempty(a, e)]
    if len(kept) == len(e.args):
        return None
    made = [replace(a, _without_nonempty_brackets) for a in kept]
    return made[0] if len(made) == 1 else Mul(tuple(made))


def _states_nonempty(bracket: Expr, e: Mul) -> bool:
    """True if it states that an axis is nonempty and guards a cofactor."""
    c = bracket.condition if isinstance(bracket, Iverson) else None
    if not isinstance(c, Rel) or (c.op, c.left) not in (("<", num(0)), ("<=", num(1))):
        return False
    return isinstance(c.right, Size) and any(_reads_where(a, c) for a in e.args if a is not bracket)


def _reads_where(e: Expr, condition: Expr) -> bool:
    """True if e, or each of its terms, has a position guarded by the condition."""
    if isinstance(e, Add):
        return all(_reads_where(a, condition) for a in e.args)
    guards = (p.condition for p in walk(e) if isinstance(p, Guard))
    return any(condition in walk(guard) for guard in guards)


def _legible(e: Expr) -> Expr:
    """Return a node in display form; its parts are in that form already."""
    if isinstance(e, Guard):
        return e.position
    if isinstance(e, Not) and isinstance(e.arg, Rel):
        return _oriented(Rel(DENIED[e.arg.op], e.arg.left, e.arg.right))
    if isinstance(e, Rel):
        return _oriented(e)
    if isinstance(e, Add):
        if num(0) in e.args:
            return _legible(sum_of([a for a in e.args if a is not num(0)]))
        collected = _merge_like_terms(_distribute_minus(e))
        return by_cases(collected.args) if isinstance(collected, Add) else collected
    if isinstance(e, Mul):
        if num(0) in e.args:
            return num(0)
        args = with_roots(beside_deltas(share(_flat_product(e))))
        made = _in_powers(product_of(args))
        return _in_chains(_without_zeros(made)) if isinstance(made, Mul) else made
    if isinstance(e, Where):
        return e.then if e.then is e.other else limited(e)
    if isinstance(e, Call):
        return product_of(share((one_sided(e),)))
    return e


def _flat_product(e: Mul) -> tuple[Expr, ...]:
    return tuple(a for part in e.args for a in (part.args if isinstance(part, Mul) else (part,)))


def _in_powers(e: Expr) -> Expr:
    """Merge equal bases: s*s*t is s**2*t, and s*t/s is t."""
    if not isinstance(e, Mul):
        return e
    args = e.args
    numbers = tuple(a for a in args if isinstance(a, Num))
    powers: dict[Expr, Fraction] = {}
    for a in args:
        base, power = a, Fraction(1)
        if isinstance(a, Num):
            continue
        if isinstance(a, Pow) and isinstance(a.exponent, Num):
            base, power = a.base, a.exponent.value
        powers[base] = powers.get(base, Fraction(0)) + power
    if len(powers) + len(numbers) == len(args):
        return e
    left = (b if n == 1 else Pow(b, Num(n)) for b, n in powers.items() if n)
    return product_of([*numbers, *left])


def _distribute_minus(e: Add) -> Add:
    """Distribute a minus: a - (b + c) is a - b - c."""
    terms: list[Expr] = []
    for a in e.args:
        match a:
            case Mul((sign, Add() as inside)) if sign is num(-1):
                signed = list(_signed_terms(inside, Fraction(-1)))
                opened = all(n < 0 for n, _ in signed)
                terms += (_times_number(n, rest) for n, rest in signed) if opened else [a]
            case _:
                terms.append(a)
    return Add(tuple(terms)) if len(terms) > len(e.args) else e


def _merge_like_terms(e: Add) -> Expr:
    """Merge like terms, a - t - t is a - 2*t; return e if there are none."""
    terms = list(_signed_terms(e, Fraction(1)))
    sums: dict[Expr, Fraction] = {}
    for coefficient, rest in terms:
        sums[rest] = sums.get(rest, Fraction(0)) + coefficient
    if len(sums) == len(terms):
        return e
    kept = [_times_number(n, rest) for rest, n in sums.items() if n]
    return kept[0] if len(kept) == 1 else Add(tuple(kept)) if kept else num(0)


def _signed_terms(e: Expr, sign: Fraction) -> Iterator[tuple[Fraction, Expr]]:
    """Yield (coefficient, rest) of each term of nested sums; rest is 1 for a number."""
    if isinstance(e, Add):
        for a in e.args:
            yield from _signed_terms(a, sign)
    elif isinstance(e, Num):
        yield sign * e.value, num(1)
    elif isinstance(e, Mul) and isinstance(e.args[0], Num):
        rest = e.args[1:]
        inner = rest[0] if len(rest) == 1 else Mul(rest)
        if isinstance(inner, Add):
            yield from _signed_terms(inner, sign * e.args[0].value)
        else:
            yield sign * e.args[0].value, inner
    else:
        yield sign, e


def _times_number(n: Fraction, e: Expr) -> Expr:
    if e is num(1):
        return Num(n)
    if n == 1:
        return e
    return Mul((Num(n), *(e.args if isinstance(e, Mul) else (e,))))


def _in_chains(e: Expr) -> Expr:
    """Merge two bounds: [x < b]*[x >= a] is [x >= a and x < b], printed as a <= x < b."""
    if not isinstance(e, Mul):
        return e
    args = list(e.args)
    for low, high in permutations([a for a in e.args if isinstance(a, Iverson)], 2):
        if low in args and high in args and _meet(low.condition, high.condition):
            args[args.index(low)] = Iverson(And((low.condition, high.condition)))
            args.remove(high)
    return args[0] if len(args) == 1 else Mul(tuple(args))


def _meet(low: Expr, high: Expr) -> bool:
    """True if they bound the same expression from below and from above."""
    if not isinstance(low, Rel) or not isinstance(high, Rel):
        return False
    return low.left is high.left and low.op in (">", ">=") and high.op in ("<", "<=")


def _without_zeros(e: Mul) -> Expr:
    """Drop a redundant bracket: p*[p != 0] is p."""
    return product_of([a for a in e.args if nonzero(a) is None or nonzero(a) not in e.args])


def _oriented(c: Rel) -> Rel:
    """Orient the comparison: the varying side goes left, and -x > 0 is x < 0."""
    if _weight(c.left) > _weight(c.right):
        c = Rel(MIRRORED[c.op], c.right, c.left)
    if c.right is num(0) and isinstance(c.left, Mul) and c.left.args[0] is num(-1):
        return Rel(MIRRORED[c.op], product_of(c.left.args[1:]), num(0))
    return c


def _weight(e: Expr) -> int:
    parts = list(walk(e))
    if any(isinstance(p, Access) for p in parts):
        return 0
    if any(isinstance(p, Index) for p in parts):
        return 1
    return 3 if isinstance(e, Num) else 2
