"""Rules that know the forward: sums with a known value, and the forward's own names.

    Sum_k S[.., k, ..] = 1, 0, ...   where the definition of S says so
    exp(A - lse)       = S           where S[..] = exp(A - lse) is in the spec

Both are found from the definitions; no operation is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from functools import cache
from itertools import permutations

from derive.algebra.expr import (
    Access,
    Call,
    Expr,
    Index,
    Iverson,
    Num,
    Pow,
    free_indices,
    substitute,
)
from derive.algebra.match import match
from derive.algebra.poly import (
    ONE,
    Poly,
    Term,
    add,
    as_atom,
    atom,
    base_and_power,
    constant,
    make_term,
    mul,
    poly,
    power,
    sum_over,
)
from derive.algebra.rules import Rule
from derive.algebra.simplify import simplify
from derive.calculus.lets import Let, Lets

__all__ = ["fold_rules", "inline"]

_MOST_ROUNDS = 6
"""How deep a definition is opened to find that its sum is constant."""


def fold_rules(lets: Lets) -> tuple[Rule, ...]:
    """The rules for these definitions; they see lets that are added later."""

    def normalised(t: Term) -> Poly | None:
        return _sum_of_normalised(lets, t)

    def known_sum(t: Term) -> Poly | None:
        return _known_sum(lets, sum_value, t)

    def fold(t: Term) -> Poly | None:
        return _fold(lets, t)

    def fold_sums(t: Term) -> Poly | None:
        return _fold_sums(lets, t)

    @cache
    def sum_value(name: str, axis: int) -> Poly | None:
        return _constant_sum(lets, normalised_rule, lets[name], axis)

    normalised_rule = Rule(
        "normalised exponential",
        "Σₖ exp(f − logsumexpₖ f) = 1",
        "the number of summed indices",
        normalised,
    )
    return (
        normalised_rule,
        Rule("known sum", "Σₖ v(k) is constant by v's definition", "summed indices", known_sum),
        Rule("fold", "a defining expression is its name", "the number of factors", fold),
        Rule("fold sum", "a defining sum is its name", "the number of terms inside", fold_sums),
    )


def _uses(t: Term, index: Index) -> list[Expr]:
    return [f for f in t.factors if index in free_indices(f)]


def _sum_of_normalised(lets: Lets, t: Term) -> Poly | None:
    for k in t.binders:
        uses = _uses(t, k)
        for f in uses:
            let_condition = _normalised_over(lets, f, k)
            if let_condition is None:
                continue
            if [u for u in uses if u is not f] == let_condition:
                rest = [x for x in t.factors if x not in uses]
                return poly([make_term(t.coef, [i for i in t.binders if i is not k], rest)])
    return None


def _normalised_over(lets: Lets, f: Expr, k: Index) -> list[Expr] | None:
    """Where f = exp(body - lse) with lse over k: the mask factors that must stand beside it."""
    if not (isinstance(f, Call) and f.function == "exp"):
        return None
    (u,) = f.args
    assert isinstance(u, Poly)
    for t in u.terms:
        if t.coef != -1 or len(t.factors) != 1 or not isinstance(t.factors[0], Access):
            continue
        lse = t.factors[0]
        let = lets.get(lse.tensor)
        if let is None or let.kind != "logsumexp" or len(let.binders) != 1:
            continue
        mapping: dict[Index, Expr] = dict(zip(let.formals, lse.positions, strict=True))
        mapping[let.binders[0]] = k
        if k in free_indices(lse) or let.binders[0].extent != k.extent:
            continue
        if substitute(let.body, mapping) is not add(u, atom(lse)):
            continue
        if let.condition is None:
            return []
        return [Iverson(substitute(let.condition, mapping))]
    return None


def _known_sum(lets: Lets, value: object, t: Term) -> Poly | None:
    assert callable(value)
    for k in t.binders:
        uses = _uses(t, k)
        if len(uses) != 1 or not isinstance(uses[0], Access):
            continue
        (f,) = uses
        assert isinstance(f, Access)
        let = lets.get(f.tensor)
        if let is None or let.kind != "sum" or let.dtype != "float":
            continue
        where = [n for n, p in enumerate(f.positions) if k in free_indices(p)]
        if len(where) != 1 or f.positions[where[0]] is not k:
            continue
        total = value(let.name, where[0])
        if total is not None:
            rest = poly(
                [make_term(t.coef, [i for i in t.binders if i is not k], _drop(t.factors, f))]
            )
            return mul(total, rest)
    return None


def _drop(factors: tuple[Expr, ...], f: Expr) -> tuple[Expr, ...]:
    return tuple(x for x in factors if x is not f)


def _constant_sum(lets: Lets, rule: Rule, let: Let, axis: int) -> Poly | None:
    """Sum over one axis of a let, where it is a number (with sizes) by the definitions."""
    k = let.formals[axis]
    total = sum_over(let.body, [k])
    for _ in range(_MOST_ROUNDS):
        total = simplify(total, [rule], [])
        if not any(isinstance(x, Access) for x in _inside(total)):
            return total if not free_indices(total) else None
        opened = _open(lets, total)
        if opened is total or len(opened.terms) > 24:
            return None
        total = opened
    return None


def _inside(p: Poly) -> Iterator[Expr]:
    for t in p.terms:
        for f in t.factors:
            yield from _all(f)


def _all(e: Expr) -> Iterator[Expr]:
    yield e
    for part in e.parts():
        yield from _all(part)


def _open(lets: Lets, p: Poly) -> Poly:
    """p with the names that stand as factors replaced by their definitions."""
    names = {
        base.tensor
        for t in p.terms
        for f in t.factors
        if isinstance(base := base_and_power(f)[0], Access)
        and (let := lets.get(base.tensor)) is not None
        and let.kind == "sum"
    }
    for name in sorted(names):
        p = inline(p, lets[name])
    return p


def inline(p: Poly, let: Let) -> Poly:
    """p with every factor that is let[...] replaced by its body."""
    parts = []
    for t in p.terms:
        product = poly([Term(t.coef, (), ())])
        hit = False
        for f in t.factors:
            base, exponent = base_and_power(f)
            if isinstance(base, Access) and base.tensor == let.name:
                product = mul(product, power(let.body_at(base.positions), exponent))
                hit = True
            else:
                product = mul(product, atom(f))
        parts.append(sum_over(product, t.binders) if hit else poly([t]))
    return add(constant(0), *parts)


def _fold_sums(lets: Lets, t: Term) -> Poly | None:
    """A sum inside a function or a power that is the definition of a name becomes the name."""
    sums = [
        let
        for let in lets
        if not let.internal
        and let.kind == "sum"
        and let.dtype == "float"
        and len(let.body.terms) > 1
        and not _counts(let.body)
    ]

    def named(e: Expr) -> Expr:
        if isinstance(e, Poly) and len(e.terms) > 1:
            for let in sums:
                for binding in match(let.body, e, frozenset(let.formals), {}):
                    if all(i in binding for i in let.formals):
                        return atom(Access(let.name, tuple(binding[i] for i in let.formals)))
        return e

    factors = [_with_sums_named(f, named) for f in t.factors]
    if all(a is b for a, b in zip(factors, t.factors, strict=True)):
        return None
    return add(constant(0), poly([make_term(t.coef, t.binders, factors)]))


def _counts(e: Expr) -> bool:
    """Whether an index stands in e as a number: what equals it is no position then."""
    if isinstance(e, Index):
        return True
    if isinstance(e, Access):
        return any(_counts(p) for p in e.positions if not isinstance(p, Index))
    if isinstance(e, Term):
        return any(_counts(f) for f in e.factors)
    return any(_counts(part) for part in e.parts())


def _with_sums_named(f: Expr, named: Callable[[Expr], Expr]) -> Expr:
    base, exponent = base_and_power(f)
    if isinstance(base, Call):
        args = tuple(named(a) for a in base.args)
        if args != base.args:
            return _factor(Call(base.function, args), exponent)
    elif isinstance(base, Poly):
        new = named(base)
        if new is not base:
            assert isinstance(new, Poly)
            return _factor(as_atom(new), exponent)
    return f


def _fold(lets: Lets, t: Term) -> Poly | None:
    for let in lets:
        if let.internal or let.kind != "sum" or let.dtype != "float" or len(let.body.terms) != 1:
            continue
        (definition,) = let.body.terms
        if definition.binders or not _worth_folding(definition) or _counts(let.body):
            continue
        for rest, positions, exponent in _instances(let, definition, t):
            name = Access(let.name, positions)
            factors = (*rest, name if exponent == 1 else Pow(name, Num(exponent)))
            coef = t.coef / definition.coef if exponent == 1 else t.coef
            return poly([make_term(coef, t.binders, factors)])
    return None


def _worth_folding(t: Term) -> bool:
    """Whether the definition is more than one access."""
    return len(t.factors) > 1 or any(isinstance(f, Call | Pow) for f in t.factors)


def _instances(
    let: Let, definition: Term, t: Term
) -> Iterator[tuple[list[Expr], tuple[Expr, ...], Fraction]]:
    """(what is left of t, the positions of the let, its power) for each instance in t."""
    formals = frozenset(let.formals)
    if len(definition.factors) == 1 and definition.coef == 1:
        yield from _single_instances(let, definition.factors[0], t, formals)
        return
    wanted = [base_and_power(f) for f in definition.factors]
    have = list(t.factors)
    if len(have) < len(wanted) or len(have) > 8:
        return
    for chosen in permutations(range(len(have)), len(wanted)):
        bindings: list[Mapping[Index, Expr]] = [{}]
        quotient = list(have)
        for (base, exponent), n in zip(wanted, chosen, strict=True):
            other, power_ = base_and_power(have[n])
            if exponent * power_ <= 0 or abs(power_) < abs(exponent):
                bindings = []
                break
            bindings = [m for b in bindings for m in match(base, other, formals, b)]
            left = power_ - exponent
            quotient[n] = ONE if left == 0 else _factor(other, left)
        for binding in bindings:
            if all(i in binding for i in let.formals):
                rest = [f for f in quotient if f is not ONE]
                yield rest, tuple(binding[i] for i in let.formals), Fraction(1)


def _factor(base: Expr, exponent: Fraction) -> Expr:
    return base if exponent == 1 else Pow(base, Num(exponent))


def _single_instances(
    let: Let, pattern: Expr, t: Term, formals: frozenset[Index]
) -> Iterator[tuple[list[Expr], tuple[Expr, ...], Fraction]]:
    """A lone f(x)^q also covers (f(x)^q)^n: x^(-3/2) = v^3 where v = x^(-1/2)."""
    base, exponent = base_and_power(pattern)
    for n, f in enumerate(t.factors):
        other, power_ = base_and_power(f)
        times = power_ / exponent
        if times.denominator != 1 or (times < 0 and exponent == 1):
            continue
        for binding in match(base, other, formals, {}):
            if all(i in binding for i in let.formals):
                rest = [*t.factors[:n], *t.factors[n + 1 :]]
                yield rest, tuple(binding[i] for i in let.formals), times
