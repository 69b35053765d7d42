"""Rewrite gradients for display: names of powers, merged quotients, and simplified sums."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import permutations, product
from math import prod

from derive.algebra import expr as ex
from derive.algebra.affine import Polynomial, form
from derive.algebra.poly import base_and_power, raised
from derive.algebra.substitution import rename_apart, replace_inside_out, substitute
from derive.show.identities import beside_deltas, nonzero
from derive.show.legible import legible, map_legible

# ------------------------------------------------------------------------------------------- powers
# Express powers in gradients by the name of an equation that computes a power.
#
#     y = b**(1/p)            b**(1/p - 1)*a**(p - 1)     (a/y)**(p - 1)
#     y = x*b**(-p)           x*b**(-p - 1)               y/b
#
# for positive parameters: if b is 0, both sides of the second are infinite.


@dataclass(frozen=True)
class Power:
    """An equation name = scale*beside*base**exponent, or 0 if ``asked`` is 0."""

    name: ex.Access
    base: ex.Expr
    exponent: Polynomial
    scale: Fraction
    beside: tuple[ex.Expr, ...]
    asked: ex.Expr | None


def power_of(name: ex.Access, body: ex.Expr) -> Power | None:
    """Return the equation as a power with a symbolic exponent, or None."""
    asked, e = None, legible(body)
    match e:
        case ex.Where(ex.Rel("==", x, zero), nothing, value) if zero is nothing is ex.num(0):
            asked, e = x, value
    powers = list(_symbolic(ex.factors_of(e)))
    if len(powers) != 1:
        return None
    ((whole, base, exponent),) = powers
    scale, rest = _split_numbers([f for f in ex.factors_of(e) if f is not whole])
    beside = tuple(map(_power_normal_form, rest))
    return Power(name, _power_normal_form(base), form(exponent), scale, beside, asked)


def _split_numbers(factors: Sequence[ex.Expr]) -> tuple[Fraction, list[ex.Expr]]:
    """Return (product of the numbers, other factors)."""
    numbers = [f.value for f in factors if isinstance(f, ex.Num)]
    return prod(numbers, start=Fraction(1)), [f for f in factors if not isinstance(f, ex.Num)]


def in_names(e: ex.Expr, powers: Sequence[Power]) -> ex.Expr:
    """Replace powers in e by the names of these equations; return e if none matches."""

    def visit(part: ex.Expr) -> ex.Expr:
        for p in powers:
            if isinstance(part, ex.Mul):
                part = _power_by_name(part, p) or part
        return part

    return map_legible(e, visit) if powers else e


def _symbolic(factors: Sequence[ex.Expr]) -> Iterator[tuple[ex.Expr, ex.Expr, ex.Expr]]:
    """Yield (factor, base, exponent) for each power with a symbolic exponent."""
    for f in factors:
        if isinstance(f, ex.Pow) and not isinstance(f.exponent, ex.Num):
            yield f, f.base, f.exponent
        elif isinstance(f, ex.Call) and f.function == "pow":
            base, exponent = f.args
            yield f, base, exponent


def _matching_bases(given: Power, base: ex.Expr) -> Iterator[Power]:
    """Yield the equation at the indices where its base equals ``base``."""
    free = sorted(ex.free_indices(base), key=ex.sort_key)
    axes = [i for i in given.name.positions if isinstance(i, ex.Index)]
    alike = ([k for k in free if (k.extent, k.group) == (i.extent, i.group)] for i in axes)
    for at in product(*alike):
        names: dict[ex.Index, ex.Expr] = dict(zip(axes, at, strict=True))
        whole = _power_normal_form(base)
        if _power_normal_form(substitute(given.base, names)) is whole:
            beside = tuple(_power_normal_form(substitute(f, names)) for f in given.beside)
            asked = given.asked and substitute(given.asked, names)
            name = substitute(given.name, names)
            yield replace(given, name=name, base=whole, beside=beside, asked=asked)


def _power_by_name(e: ex.Mul, given: Power) -> ex.Expr | None:
    for _, base, _ in _symbolic(e.args):
        for p in _matching_bases(given, base):
            made = _with_name(e, p)
            if made is not None:
                return made
    return None


def _with_name(e: ex.Mul, p: Power) -> ex.Expr | None:
    if p.asked is not None and ex.Iverson(ex.Rel("!=", p.asked, ex.num(0))) not in e.args:
        return None
    found = list(_symbolic(e.args))
    for whole, base, exponent in found:
        if _power_normal_form(base) is not p.base:
            continue
        rest = [f for f in e.args if f is not whole]
        more = (form(exponent) - p.exponent).number
        if more is None or more.denominator != 1:
            continue
        scale, others = _split_numbers(rest)
        left = _factors_minus(others, p.beside) if more and p.exponent.sign == -1 else None
        if left is not None:
            number = [ex.Num(scale / p.scale)] if scale != p.scale else []
            return ex.product_of([*number, *left, p.name, ex.Pow(base, ex.Num(more))])
        root = _reciprocal_parameter(p.exponent)
        if root is not None and not p.beside and p.scale == 1 and more == -1:
            turned = form(root) - Polynomial.of(1)
            for other, a, n in found:
                if other is not whole and form(n) == turned:
                    quotient = ex.Pow(ex.Mul((a, ex.Pow(p.name, ex.num(-1)))), n)
                    # The equation divides by p, so p is nonzero wherever it has a value.
                    kept = [f for f in rest if nonzero(f) is not root]
                    return ex.product_of([quotient if f is other else f for f in kept])
    return None


def _reciprocal_parameter(exponent: Polynomial) -> ex.Param | None:
    """Return p if the exponent is 1/p, else None."""
    match list(exponent.terms.items()):
        case [((ex.Pow(ex.Param() as p, ex.Num() as n),), value)] if n is ex.num(-1) and value == 1:
            return p
    return None


def _factors_minus(factors: Sequence[ex.Expr], gone: Sequence[ex.Expr]) -> list[ex.Expr] | None:
    """Return the factors minus ``gone``, or None if one of these is missing."""
    left = list(factors)
    for g in gone:
        same = next((f for f in left if _power_normal_form(f) is g), None)
        if same is None:
            return None
        left.remove(same)
    return left


def _power_normal_form(e: ex.Expr) -> ex.Expr:
    """Return a normal form of e: sorted operands, one form of powers, numbered bound indices."""

    def visit(part: ex.Expr) -> ex.Expr:
        if isinstance(part, ex.Add | ex.Mul):
            return type(part)(tuple(sorted(part.args, key=ex.sort_key)))
        if isinstance(part, ex.Reduce):
            names = {i: ex.Index(f"_{n}", i.extent, i.group) for n, i in enumerate(part.indices)}
            body = _power_normal_form(substitute(part.body, {**names}))
            return ex.Reduce(part.kind, tuple(names.values()), body, part.condition)
        return ex.Pow(*part.args) if isinstance(part, ex.Call) and part.function == "pow" else part

    return replace_inside_out(e, visit)


# ------------------------------------------------------------------------------------------- bounds
# Merge quotients by x and by max(x, e), where a bracket selects between the two.
#
# a/max(x, e) + [x ≥ e]*b/x       (a + [x ≥ e]*b)/max(x, e)


def bounded(e: ex.Expr) -> ex.Expr:
    """Merge quotients by x and by max(x, e) into one; return e if nothing changed."""
    if not any(isinstance(part, ex.Call) and part.function == "clamp" for part in ex.walk(e)):
        return e
    return map_legible(e, _merge_bounded_quotients)


def _merge_bounded_quotients(e: ex.Expr) -> ex.Expr:
    if not isinstance(e, ex.Add):
        return e
    terms = [_exponents_by_base(a) for a in e.args]
    changed = False
    for bound in dict.fromkeys(b for t in terms for b, n in t.items() if n < 0):
        if not isinstance(bound, ex.Call) or bound.function != "max":
            continue
        x, least = bound.args
        for t in terms:
            if ex.Iverson(ex.Rel(">=", x, least)) in t and x in t:
                t[bound] = t.get(bound, Fraction(0)) + t.pop(x)
                changed = True
    return _factor_exponents(terms) if changed else e


def _exponents_by_base(e: ex.Expr) -> dict[ex.Expr, Fraction]:
    """Return base -> exponent of a product; a number is a base of its own."""
    found: dict[ex.Expr, Fraction] = {}
    for base, n in map(base_and_power, ex.factors_of(e)):
        found[base] = found.get(base, Fraction(0)) + n
    return found


def _factor_exponents(terms: Sequence[dict[ex.Expr, Fraction]]) -> ex.Expr:
    """Return the sum of the terms with their common factors pulled out."""
    outside: dict[ex.Expr, Fraction] = {}
    for base, n in terms[0].items():
        every = [t.get(base, Fraction(0)) for t in terms]
        if isinstance(base, ex.Num | ex.Iverson) or not (max(every) < 0 or min(every) > 0):
            continue
        outside[base] = max(every) if n < 0 else min(every)
    left = ({b: n - outside.get(b, 0) for b, n in t.items()} for t in terms)
    summed = ex.Add(tuple(ex.product_of(_factors_of_powers(t)) for t in left))
    return ex.product_of([*_factors_of_powers(outside), summed])


def _factors_of_powers(powers: dict[ex.Expr, Fraction]) -> list[ex.Expr]:
    return [raised(base, n) for base, n in powers.items() if n]


# --------------------------------------------------------------------------------------------- sums
# Simplify sums for display: gathers, means, and common factors.
#
#     sum[v]([s == v]*x[v])               x[s]                (0 where s is no v)
#     a*sum[k](w*x) + sum[k](w*y)         sum[k](w*(a*x + y))
#     1/size(k)*sum[k](x)                 mean[k](x)          (nan where k has no values)
#
# The code keeps the left sides, so no difference with more axes than its operands is formed.


def with_means(e: ex.Expr) -> ex.Expr:
    """Replace sums over k divided by size(k) by means; nan where k has no values."""
    return replace_inside_out(e, _sum_as_mean)


def _sum_as_mean(e: ex.Expr) -> ex.Expr:
    for total in ex.factors_of(e) if isinstance(e, ex.Mul) else ():
        if isinstance(total, ex.Reduce) and total.kind == "sum" and total.condition is None:
            left = list(ex.factors_of(e))
            below = [ex.Pow(ex.Size(i.extent), ex.num(-1)) for i in total.indices]
            if all(below.count(b) <= left.count(b) for b in below):
                for b in below:
                    left.remove(b)
                left[left.index(total)] = ex.Reduce("mean", total.indices, total.body)
                return _sum_as_mean(ex.product_of(left))
    return e


# Gathers


def gathered(e: ex.Expr, integers: Collection[str]) -> ex.Expr:
    """Replace a sum over v with a factor [s = v], s an integer tensor, by its term at v = s."""
    reads: set[ex.Expr] = set()

    def visit(part: ex.Expr) -> ex.Expr:
        if isinstance(part, ex.Mul) and not reads.isdisjoint(part.args):
            # A product prints its sums last; the gathered factors now go first.
            args = sorted(part.args, key=lambda a: (not isinstance(a, ex.Num), a not in reads))
            return ex.product_of([f for a in args for f in ex.factors_of(a)])
        found = _gather_reduce(part, integers)
        if found is not part and not isinstance(found, ex.Reduce):
            reads.add(found)
        return found

    return replace_inside_out(e, visit)


def _gather_reduce(e: ex.Expr, integers: Collection[str]) -> ex.Expr:
    if not isinstance(e, ex.Reduce) or e.kind != "sum" or e.condition is not None:
        return e
    for bracket in ex.factors_of(e.body):
        for v, s in _named_positions(bracket, e.indices):
            if s.tensor not in integers:
                continue
            rest = ex.product_of([a for a in ex.factors_of(e.body) if a is not bracket])
            # A tensor that is read at v implies that s is a valid v.
            if any(isinstance(a, ex.Access) and v in a.positions for a in ex.factors_of(rest)):
                body, left = substitute(rest, {v: s}), tuple(i for i in e.indices if i is not v)
                return _gather_reduce(ex.Reduce("sum", left, body), integers) if left else body
    return e


def _named_positions(
    bracket: ex.Expr, indices: Sequence[ex.Index]
) -> Iterator[tuple[ex.Index, ex.Access]]:
    """Yield (v, s) if the bracket is [s = v] for an index v and a tensor s."""
    c = bracket.condition if isinstance(bracket, ex.Iverson) else None
    if isinstance(c, ex.Rel) and c.op == "==":
        for v, s in ((c.left, c.right), (c.right, c.left)):
            if v in indices and isinstance(s, ex.Access) and v not in ex.free_indices(s):
                assert isinstance(v, ex.Index)
                yield v, s


# What sums share


@dataclass(frozen=True)
class _Sum:
    """A product of outside factors and a sum, or mean, of inside factors."""

    kind: str
    indices: tuple[ex.Index, ...]
    outside: list[ex.Expr]
    inside: list[ex.Expr]


def merged(e: ex.Expr) -> ex.Expr:
    """Merge sums that share factors, where the remainders are short."""
    read = replace_inside_out(e, _read_beside_deltas)
    found = replace_inside_out(read, _merge_sum_pair)
    return e if found is read else found


def _read_beside_deltas(e: ex.Expr) -> ex.Expr:
    return ex.product_of(beside_deltas(e.args)) if isinstance(e, ex.Mul) else e


def _merge_sum_pair(e: ex.Expr) -> ex.Expr:
    if not isinstance(e, ex.Add):
        return e
    sums = {n: s for n, a in enumerate(e.args) if (s := _as_sum(a)) is not None}
    for one, two in permutations(sums, 2):
        whole = _one_sum(sums[one], sums[two]) if one < two else None
        if whole is not None:
            rest = [a for n, a in enumerate(e.args) if n not in (one, two)]
            return _merge_sum_pair(ex.sum_of([*rest, whole]))
    return _number_apart(e)


def _number_apart(e: ex.Add) -> ex.Expr:
    """Factor out a common number: 4*a - 4*b is 4*(a - b)."""
    numbers = [a.args[0] if isinstance(a, ex.Mul) else a for a in e.args]
    sizes = {abs(n.value) if isinstance(n, ex.Num) else Fraction(1) for n in numbers}
    size = sizes.pop()
    if sizes or size == 1:
        return e
    signs = (ex.Num(n.value / size) for n in numbers if isinstance(n, ex.Num))
    rest = (ex.factors_of(a)[1:] for a in e.args)
    signed = ([n, *f] if n.value < 0 else f for n, f in zip(signs, rest, strict=True))
    return ex.Mul((ex.Num(size), ex.Add(tuple(map(ex.product_of, signed)))))


def _as_sum(e: ex.Expr) -> _Sum | None:
    found = [a for a in ex.factors_of(e) if isinstance(a, ex.Reduce)]
    if len(found) != 1 or found[0].kind not in ("sum", "mean") or found[0].condition is not None:
        return None
    outside = [a for a in ex.factors_of(e) if a is not found[0]]
    return _Sum(found[0].kind, found[0].indices, outside, list(ex.factors_of(found[0].body)))


def _one_sum(a: _Sum, b: _Sum) -> ex.Expr | None:
    """Return a + b as one sum, or None."""
    if a.kind != b.kind or len(a.indices) != len(b.indices):
        return None
    # Factors outside a sum may use the letters that are bound in it.
    indices = rename_apart(a.indices, [*ex.indices_of((*a.outside, *b.outside)), *b.indices])
    first = _renamed_summand(a, indices)
    for order in permutations(indices):
        second = _renamed_summand(b, order)
        shared = _common(first, second)
        one = _remaining_summand(a, first, shared, b.outside)
        other = _remaining_summand(b, second, shared, a.outside)
        if frozenset(indices) <= ex.indices_of(shared) and one is not None and other is not None:
            inside = ex.product_of([*shared, ex.Add((one, other))])
            outside = _common(a.outside, b.outside)
            return ex.product_of([*outside, ex.Reduce(a.kind, indices, inside)])
    return None


def _renamed_summand(s: _Sum, indices: Sequence[ex.Index]) -> list[ex.Expr]:
    """Return the inside factors with these indices, or [] if extents differ."""
    pairs = dict(zip(s.indices, indices, strict=True))
    alike = all((i.extent, i.group) == (j.extent, j.group) for i, j in pairs.items())
    return [substitute(x, {**pairs}) for x in s.inside] if alike else []


def _common(a: Sequence[ex.Expr], b: Sequence[ex.Expr]) -> list[ex.Expr]:
    left, found = list(b), []
    for x in a:
        if x in left:
            left.remove(x)
            found.append(x)
    return found


def _list_difference(a: Sequence[ex.Expr], gone: Sequence[ex.Expr]) -> list[ex.Expr]:
    left = list(a)
    for x in gone:
        left.remove(x)
    return left


def _remaining_summand(
    s: _Sum, inside: list[ex.Expr], shared: list[ex.Expr], other: list[ex.Expr]
) -> ex.Expr | None:
    """Return the remaining factors to move inside the sum.

    None if a tensor from outside would multiply inside factors.
    """
    outer = _list_difference(s.outside, _common(s.outside, other))
    inner = _list_difference(inside, shared)
    if inner and any(isinstance(p, ex.Access) and p.positions for x in outer for p in ex.walk(x)):
        return None
    return ex.product_of([*outer, *inner])
