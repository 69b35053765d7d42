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
    sum[k]([k < n]*x[k])     sum[k | k < n](x[k])

The engine keeps ``not (a < b)`` apart from ``b <= a``, which differ for a nan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import combinations, permutations, product

from derive.algebra import expr as ex
from derive.algebra.affine import form, room
from derive.algebra.logic import conditions_of, conjunction
from derive.algebra.poly import base_and_power
from derive.algebra.substitution import replace, replace_inside_out
from derive.show.identities import (
    AxisFunction,
    beside_deltas,
    limited,
    nonzero,
    one_sided,
    share,
    with_roots,
)

# -------------------------------------------------------------------------------------------- cases
# Merge the terms of a sum that have brackets (indicator factors), for real numbers.
#
#     [a]*x + [b]*x/2             x*([a] + [b]/2)
#     [a < b]*x + [a = b]*x       [a ≤ b]*x
#     [c]*x + [not c]*x           x
#     [c]*x + [not c]*y           where(c, x, y)
#
# The code keeps the left sides where they differ for a nan.

_HOLDS_FOR = {"<": "<", "<=": "<=", ">": ">", ">=": "=>", "==": "=", "!=": "<>"}
"""Comparison to the cases (less, equal, greater) that satisfy it, in this order."""


def by_cases(args: Sequence[ex.Expr]) -> ex.Expr:
    """Return the sum with bracketed terms merged and common factors in front."""
    shared, left = _bracket_common_factors(args)
    whole = _cases(_merge_disjoint_terms(left))
    if not shared or whole is ex.num(1):
        return ex.product_of(shared) if shared else whole
    return ex.Mul((*shared, whole))


def _bracket_common_factors(args: Sequence[ex.Expr]) -> tuple[list[ex.Expr], list[ex.Expr]]:
    """Return (common factors, remaining terms) of a sum; no factors if a term has no bracket."""
    terms = [list(ex.factors_of(a)) for a in args]
    if len(terms) < 2 or not all(any(isinstance(f, ex.Iverson) for f in t) for t in terms):
        return [], list(args)
    shared = [f for f in terms[0] if not isinstance(f, ex.Num) and all(f in t for t in terms)]
    return shared, [ex.product_of([f for f in t if f not in shared]) for t in terms]


def _merge_disjoint_terms(args: list[ex.Expr]) -> list[ex.Expr]:
    """Return the addends, two with disjoint conditions and equal values merged into one."""
    guarded = [a for a in args if any(_bracket_cofactors(a))]
    for one, two in combinations(guarded, 2):
        for (c, then), (d, other) in product(_bracket_cofactors(one), _bracket_cofactors(two)):
            either = _exclusive_disjunction(c, d) if then is other else None
            if either is not None:
                whole = then if either is ex.And(()) else _times_bracket(either, then)
                left = [whole if a is one else a for a in args if a is not two]
                return _merge_disjoint_terms(left)
    return args


def _times_bracket(c: ex.Expr, e: ex.Expr) -> ex.Expr:
    factors = [] if e is ex.num(1) else list(ex.factors_of(e))
    factors.insert(isinstance(e, ex.Mul) and isinstance(e.args[0], ex.Num), ex.Iverson(c))
    return ex.product_of(factors)


def _exclusive_disjunction(c: ex.Expr, d: ex.Expr) -> ex.Expr | None:
    """Return the disjunction of two disjoint conditions; None if disjointness is not known."""
    if _denied(c) is d or _denied(d) is c or _are_apart(c, d):
        return ex.And(())
    if not isinstance(c, ex.Rel) or not isinstance(d, ex.Rel):
        return None
    op = d.op if (d.left, d.right) == (c.left, c.right) else ex.MIRRORED[d.op]
    if {d.left, d.right} != {c.left, c.right} or set(_HOLDS_FOR[op]) & set(_HOLDS_FOR[c.op]):
        return None
    whole = "".join(sorted(_HOLDS_FOR[op] + _HOLDS_FOR[c.op]))
    found = (o for o, holds in _HOLDS_FOR.items() if holds == whole)
    return next((ex.Rel(o, c.left, c.right) for o in found), ex.And(()))


def _are_apart(c: ex.Expr, d: ex.Expr) -> bool:
    """True if exactly one of two comparisons of positions holds: j ≤ i and j ≥ i + 1."""
    rooms = [form(r) for r in map(room, (c, d)) if r is not None]
    atoms = [part for r in rooms for key in r.terms for part in key]
    whole = all(r.is_whole for r in rooms) and all(isinstance(a, ex.Index | ex.Size) for a in atoms)
    return len(rooms) == 2 and whole and (rooms[0] + rooms[1]).number == -1


def _cases(args: Sequence[ex.Expr]) -> ex.Expr:
    """Return the sum with a pair of addends under c and not c as one ``where(c, x, y)``."""
    guarded = [a for a in args if any(_bracket_cofactors(a))]
    for one, two in permutations(guarded, 2):
        for (c, then), (d, other) in product(_bracket_cofactors(one), _bracket_cofactors(two)):
            if _denied(c) is not d or _is_denial(c):
                continue
            if isinstance(then, ex.Num) and isinstance(other, ex.Num):
                continue
            rest = [a for a in args if a is not one and a is not two]
            return ex.sum_of([limited(ex.Where(c, then, other)), *rest])
    return ex.sum_of(args)


def _bracket_cofactors(e: ex.Expr) -> list[tuple[ex.Expr, ex.Expr]]:
    """Return (condition, cofactor) for each bracket of a product."""
    args = ex.factors_of(e)
    return [
        (a.condition, ex.product_of([b for b in args if b is not a]))
        for a in args
        if isinstance(a, ex.Iverson)
    ]


def _denied(c: ex.Expr) -> ex.Expr:
    if isinstance(c, ex.Not):
        return c.arg
    return ex.Rel(ex.DENIED[c.op], c.left, c.right) if isinstance(c, ex.Rel) else ex.Not(c)


def _is_denial(c: ex.Expr) -> bool:
    """True if the negation of the condition is the case to name first."""
    return isinstance(c, ex.Not) or (isinstance(c, ex.Rel) and c.op in ("!=", "<", "<="))


# ------------------------------------------------------------------------------------------ legible


def legible(e: ex.Expr) -> ex.Expr:
    """Return the tree e in its display form."""
    return replace_inside_out(replace(e, _without_nonempty_brackets), _legible)


def displayed(e: ex.Expr) -> ex.Expr:
    """Return the tree e in its display form, with conditions of sums under them."""
    return replace_inside_out(legible(e), _over_range)


def map_legible(e: ex.Expr, f: Callable[[ex.Expr], ex.Expr]) -> ex.Expr:
    """Apply f to each part of the legible form of e; return e if f changes nothing.

    The maximum or minimum of two, a form for display only, becomes a clamp again.
    """
    read = legible(e)
    found = replace_inside_out(read, f)
    if found is read or any(isinstance(part, AxisFunction) for part in ex.walk(found)):
        return e
    return replace_inside_out(found, _extremum_as_clamp)


def _extremum_as_clamp(e: ex.Expr) -> ex.Expr:
    if isinstance(e, ex.Call) and e.function in ("max", "min"):
        x, bound = e.args
        low, high = (bound, ex.Const("inf")) if e.function == "max" else (-ex.Const("inf"), bound)
        return ex.Call("clamp", (x, low, high))
    return e


def value_of(e: ex.Expr) -> ex.Expr:
    """Replace x + detach(y - x) by y: the value is the same, the derivative is not."""

    def visit(part: ex.Expr) -> ex.Expr:
        still = part.args if isinstance(part, ex.Add) else ()
        for detached in still:
            if isinstance(detached, ex.Call) and detached.function == "detach":
                others = (*(a for a in still if a is not detached), *detached.args)
                summed = _merge_like_terms(ex.Add(others))
                if len(list(_signed_terms(summed, Fraction(1)))) < len(still):
                    return summed
        return part

    return replace_inside_out(e, visit)


def _without_nonempty_brackets(e: ex.Expr) -> ex.Expr | None:
    """Drop the brackets of a product that only state that an axis it reads is nonempty."""
    if not isinstance(e, ex.Mul):
        return None
    kept = [a for a in e.args if not _states_nonempty(a, e)]
    if len(kept) == len(e.args):
        return None
    return ex.product_of([replace(a, _without_nonempty_brackets) for a in kept])


def _states_nonempty(bracket: ex.Expr, e: ex.Mul) -> bool:
    """True if it states that an axis is nonempty and guards a cofactor."""
    c = bracket.condition if isinstance(bracket, ex.Iverson) else None
    if not isinstance(c, ex.Rel) or (c.op, c.left) not in (("<", ex.num(0)), ("<=", ex.num(1))):
        return False
    others = (a for a in e.args if a is not bracket)
    return isinstance(c.right, ex.Size) and any(_reads_where(a, c) for a in others)


def _reads_where(e: ex.Expr, condition: ex.Expr) -> bool:
    """True if e, or each of its terms, has a position guarded by the condition."""
    if isinstance(e, ex.Add):
        return all(_reads_where(a, condition) for a in e.args)
    guards = (p.condition for p in ex.walk(e) if isinstance(p, ex.Guard))
    return any(condition in ex.walk(guard) for guard in guards)


def _legible(e: ex.Expr) -> ex.Expr:
    """Return a node in display form; its parts are in that form already."""
    if isinstance(e, ex.Guard):
        return e.position
    if isinstance(e, ex.Not) and isinstance(e.arg, ex.Rel):
        return _oriented(ex.Rel(ex.DENIED[e.arg.op], e.arg.left, e.arg.right))
    if isinstance(e, ex.Rel):
        return _oriented(e)
    if isinstance(e, ex.Add):
        if ex.num(0) in e.args:
            return _legible(ex.sum_of([a for a in e.args if a is not ex.num(0)]))
        collected = _merge_like_terms(_distribute_minus(e))
        return by_cases(collected.args) if isinstance(collected, ex.Add) else collected
    if isinstance(e, ex.Mul):
        if ex.num(0) in e.args:
            return ex.num(0)
        args = with_roots(beside_deltas(share(tuple(ex.flat_operands(e, ex.Mul)))))
        made = _in_powers(ex.product_of(args))
        if not isinstance(made, ex.Mul):
            return made
        return _in_chains(_without_implied(_without_zeros(made)))
    if isinstance(e, ex.Where):
        return e.then if e.then is e.other else limited(e)
    if isinstance(e, ex.Call):
        return ex.product_of(share((one_sided(e),)))
    return e


def _over_range(e: ex.Expr) -> ex.Expr:
    """Move the brackets that choose among the summands under the sum, unless they are counted."""
    if not isinstance(e, ex.Reduce) or e.kind != "sum":
        return e
    factors, own = ex.factors_of(e.body), frozenset(e.indices)
    chosen = [f for f in factors if isinstance(f, ex.Iverson) and own & ex.free_indices(f)]
    left = [f for f in factors if f not in chosen]
    if not chosen or all(isinstance(f, ex.Num) for f in left):
        return e
    given = () if e.condition is None else conditions_of(e.condition)
    every = [*given, *(c for f in chosen for c in conditions_of(f.condition))]
    return ex.Reduce("sum", e.indices, ex.product_of(left), conjunction(every))


def _in_powers(e: ex.Expr) -> ex.Expr:
    """Merge equal bases: s*s*t is s**2*t, and s*t/s is t."""
    if not isinstance(e, ex.Mul):
        return e
    args = e.args
    numbers = tuple(a for a in args if isinstance(a, ex.Num))
    powers: dict[ex.Expr, Fraction] = {}
    for base, power in (base_and_power(a) for a in args if not isinstance(a, ex.Num)):
        powers[base] = powers.get(base, Fraction(0)) + power
    if len(powers) + len(numbers) == len(args):
        return e
    left = (b if n == 1 else ex.Pow(b, ex.Num(n)) for b, n in powers.items() if n)
    return ex.product_of([*numbers, *left])


def _distribute_minus(e: ex.Add) -> ex.Add:
    """Distribute a minus: a - (b + c) is a - b - c."""
    terms: list[ex.Expr] = []
    for a in e.args:
        match a:
            case ex.Mul((sign, ex.Add() as inside)) if sign is ex.num(-1):
                signed = list(_signed_terms(inside, Fraction(-1)))
                opened = all(n < 0 for n, _ in signed)
                terms += (_times_number(n, rest) for n, rest in signed) if opened else [a]
            case _:
                terms.append(a)
    return ex.Add(tuple(terms)) if len(terms) > len(e.args) else e


def _merge_like_terms(e: ex.Add) -> ex.Expr:
    """Merge like terms, a - t - t is a - 2*t; return e if there are none."""
    terms = list(_signed_terms(e, Fraction(1)))
    sums: dict[ex.Expr, Fraction] = {}
    for coefficient, rest in terms:
        sums[rest] = sums.get(rest, Fraction(0)) + coefficient
    if len(sums) == len(terms):
        return e
    return ex.sum_of([_times_number(n, rest) for rest, n in sums.items() if n])


def _signed_terms(e: ex.Expr, sign: Fraction) -> Iterator[tuple[Fraction, ex.Expr]]:
    """Yield (coefficient, rest) of each term of nested sums; rest is 1 for a number."""
    if isinstance(e, ex.Add):
        for a in e.args:
            yield from _signed_terms(a, sign)
    elif isinstance(e, ex.Num):
        yield sign * e.value, ex.num(1)
    elif isinstance(e, ex.Mul) and isinstance(e.args[0], ex.Num):
        inner = ex.product_of(e.args[1:])
        if isinstance(inner, ex.Add):
            yield from _signed_terms(inner, sign * e.args[0].value)
        else:
            yield sign * e.args[0].value, inner
    else:
        yield sign, e


def _times_number(n: Fraction, e: ex.Expr) -> ex.Expr:
    if e is ex.num(1):
        return ex.Num(n)
    if n == 1:
        return e
    return ex.Mul((ex.Num(n), *ex.factors_of(e)))


def _in_chains(e: ex.Expr) -> ex.Expr:
    """Merge two bounds: [x < b]*[x >= a] is [x >= a and x < b], printed as a <= x < b."""
    if not isinstance(e, ex.Mul):
        return e
    args = list(e.args)
    for low, high in permutations([a for a in e.args if isinstance(a, ex.Iverson)], 2):
        if low in args and high in args and is_interval(low.condition, high.condition):
            args[args.index(low)] = ex.Iverson(ex.And((low.condition, high.condition)))
            args.remove(high)
    return ex.product_of(args)


def is_interval(low: ex.Expr, high: ex.Expr) -> bool:
    """True if low is a < x or a ≤ x, and high is x < b or x ≤ b."""
    (_, middle, ascends), (other, _, rises) = ascending(low), ascending(high)
    return ascends and rises and middle is other and not isinstance(middle, ex.Num)


def ascending(c: ex.Expr) -> tuple[ex.Expr, ex.Expr, bool]:
    """Return both sides of a comparison, the lower one first; False if c is none of order."""
    if not isinstance(c, ex.Rel) or c.op in ("==", "!="):
        return c, c, False
    return (c.left, c.right, True) if c.op in ("<", "<=") else (c.right, c.left, True)


def _without_zeros(e: ex.Mul) -> ex.Expr:
    """Drop a redundant bracket: p*[p != 0] is p."""
    return ex.product_of([a for a in e.args if nonzero(a) is None or nonzero(a) not in e.args])


def _without_implied(e: ex.Expr) -> ex.Expr:
    """Drop a bracket that is part of another: [c and d]*[c] is [c and d]."""
    held = {b: {*conditions_of(b.condition)} for b in ex.factors_of(e) if isinstance(b, ex.Iverson)}
    implied = [b for b, own in held.items() if any(own < other for other in held.values())]
    return ex.product_of([f for f in ex.factors_of(e) if f not in implied]) if implied else e


def _oriented(c: ex.Rel) -> ex.Rel:
    """Orient the comparison: the varying side goes left, and -x > 0 is x < 0."""
    if _weight(c.left) > _weight(c.right):
        c = ex.Rel(ex.MIRRORED[c.op], c.right, c.left)
    if c.right is ex.num(0) and isinstance(c.left, ex.Mul) and c.left.args[0] is ex.num(-1):
        return ex.Rel(ex.MIRRORED[c.op], ex.product_of(c.left.args[1:]), ex.num(0))
    return c


def _weight(e: ex.Expr) -> int:
    parts = list(ex.walk(e))
    if any(isinstance(p, ex.Access) for p in parts):
        return 0
    if any(isinstance(p, ex.Index) for p in parts):
        return 1
    return 3 if isinstance(e, ex.Num) else 2
