"""Factor the flat form into the nested form that an expert would write.

    c*a*b + c*a*Sum_k d     ->  c*a*(b + Sum_k d)
    Sum_k a*x + Sum_k a*y   ->  Sum_k a*(x + y)

Each term is split into factors without bound indices and connected sums. Both are atoms of a
commutative polynomial, from which the most common factor is repeatedly pulled out. A factor that
only some terms guard stays under its guards, as it may be undefined elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, reduce
from itertools import combinations, product

from derive.algebra.expr import (
    Access,
    Add,
    Const,
    Delta,
    Expr,
    Index,
    Iverson,
    Mul,
    Num,
    Param,
    Pow,
    Reduce,
    Size,
    factors_of,
    free_indices,
    indices_of,
    num,
    product_of,
    sort_key,
    sum_of,
)
from derive.algebra.logic import negate
from derive.algebra.poly import (
    FactoredSum,
    Poly,
    Term,
    base_and_power,
    is_mask,
    make_term,
    poly,
    raised,
)
from derive.algebra.substitution import substitute


@dataclass(frozen=True)
class _Product:
    """coef * product of atom ** power; an atom may be a connected sum (a `Term`)."""

    coef: Fraction
    powers: tuple[tuple[Expr, Fraction], ...]

    def power(self, atom: Expr) -> Fraction:
        return next((p for a, p in self.powers if a is atom), Fraction(0))

    def divided(self, atom: Expr, power: Fraction) -> _Product:
        left = [(a, p - power if a is atom else p) for a, p in self.powers]
        return _Product(self.coef, tuple((a, p) for a, p in left if p))


@lru_cache(maxsize=4096)
def factor(e: Expr) -> Expr:
    """e in nested form, equal to it term by term; e may be flat anywhere inside."""
    if isinstance(e, Poly):
        return _nest_cases([_connected_sums(t) for t in e.terms])
    if isinstance(e, Term):
        return factor(poly([e]))
    if isinstance(e, FactoredSum):
        return factor(e.body)
    mapped: Expr = e.map(factor)
    return mapped


@lru_cache(maxsize=4096)
def _connected_sums(t: Term) -> _Product:
    """Split t into factors without bound indices and connected sums.

    An infinity stays with the brackets beside it: a sum may be empty, and 0*inf is nan.
    """
    if not t.binders:
        return _Product(t.coef, tuple(base_and_power(f) for f in t.factors))
    bound = frozenset(t.binders)
    masked = frozenset().union(*(free_indices(f) & bound for f in t.factors if is_mask(f)))
    outside: list[tuple[Expr, Fraction]] = []
    components: list[tuple[frozenset[Index], list[Expr]]] = []
    for f in t.factors:
        touched = masked if f is Const("inf") else free_indices(f) & bound
        if not touched:
            outside.append(base_and_power(f))
            continue
        members = [f]
        rest = []
        for indices, others in components:
            if indices & touched:
                touched |= indices
                members = others + members
            else:
                rest.append((indices, others))
        components = [*rest, (touched, members)]
    powers: dict[Expr, Fraction] = dict(outside)
    for indices, members in components:
        kept = [i for i in t.binders if i in indices]
        inner = make_term(Fraction(1), kept, members)
        powers[inner] = powers.get(inner, Fraction(0)) + 1
    return _Product(t.coef, tuple(powers.items()))


def _nest_cases(products: Sequence[_Product]) -> Expr:
    """Nest the cases of an axis, a[0] and a[1], separately, and factor within each case."""
    cases: dict[frozenset[Expr], list[_Product]] = {}
    for p in products:
        deltas = (a for a, _ in p.powers if isinstance(a, Delta))
        fixed = frozenset(d for d in deltas if isinstance(d.position, Num))
        cases.setdefault(fixed, []).append(p)
    ordered = sorted(cases, key=lambda deltas: sorted(map(sort_key, deltas)))
    nested = [_pull_factors(cases[deltas]) for deltas in ordered]
    return reduce(_flat_add, nested) if nested else num(0)


def _pull_factors(products: Sequence[_Product]) -> Expr:
    left = _Shared(products)
    pulled: list[tuple[_Product, list[_Product]]] = []
    while (common := left.most_common()) is not None:
        atom, power, chosen = common
        factor_ = _Product(Fraction(1), ((atom, power),))
        pulled.append((factor_, [p.divided(atom, power) for p in chosen]))
        left.remove(chosen)
    rest = left.products()
    if pulled and len(rest) > 1:
        pulled.append((_Product(Fraction(1), ()), rest))
        rest = []
    groups = _group_cofactors(pulled)
    sums = [_flat_mul(_nest_cases(outer), _nest_cases(inner)) for outer, inner in groups]
    nested = sums.pop() if sums and not rest else _nest_apart(rest)
    for e in reversed(sums):
        nested = _flat_add(e, nested)
    return nested


def _group_cofactors(
    pulled: Sequence[tuple[_Product, list[_Product]]],
) -> list[tuple[list[_Product], list[_Product]]]:
    """a*(x + y) + b*(2*x + 2*y) = (a + 2*b)*(x + y)."""
    groups: dict[tuple[frozenset[_Product], int], tuple[list[_Product], list[_Product]]] = {}
    for outer, inner in pulled:
        first = min(inner, key=lambda p: [(sort_key(a), n) for a, n in p.powers])
        alike = [_Product(p.coef / first.coef, p.powers) for p in inner]
        whole = frozenset(_Product(p.coef, tuple(sorted(p.powers, key=_by_atom))) for p in alike)
        # A scattered or masked term covers only a part of a product of sums.
        placed = any(isinstance(a, Delta | Iverson) for p in (outer, *inner) for a, _ in p.powers)
        if (whole, 0) in groups and not placed:
            groups[whole, 0][0].append(_Product(outer.coef * first.coef, outer.powers))
            continue
        apart = len(groups) if (whole, 0) in groups else 0
        groups[whole, apart] = ([_Product(outer.coef * first.coef, outer.powers)], alike)
    found = []
    for outers, alike in groups.values():
        if len(outers) == 1:
            # A coefficient common to all terms stays with the sum.
            (outer,) = outers
            alike = [_Product(p.coef * outer.coef, p.powers) for p in alike]
            outers = [_Product(Fraction(1), outer.powers)]
        found.append((outers, alike))
    return found


def _by_atom(entry: tuple[Expr, Fraction]) -> tuple[object, ...]:
    return (sort_key(entry[0]), entry[1])


def _nest_apart(products: Sequence[_Product]) -> Expr:
    """The sum of products that have no factor in common."""
    if not products:
        return num(0)
    if len(products) == 1:
        return _render(products[0])
    merged = _merge_sums(products)
    if merged is not None:
        return _nest_cases(merged)
    coefs = {abs(p.coef) for p in products}
    sign = Fraction(-1 if all(p.coef < 0 for p in products) else 1)
    content = sign * (coefs.pop() if len(coefs) == 1 else Fraction(1))
    parts = [_Product(p.coef / content, p.powers) for p in products]
    parts.sort(key=_order)
    whole = Add(tuple(_render(p) for p in parts))
    return whole if content == 1 else _flat_mul(Num(content), whole)


def _order(p: _Product) -> tuple[object, ...]:
    """A sort key: positive terms first, then terms without sums and with more indices."""
    sums = sum(1 for a, _ in p.powers if isinstance(a, Term))
    return (p.coef < 0, sums, [sort_key(a) for a, _ in p.powers])


class _Shared:
    """Products, and the factors that several of them share."""

    def __init__(self, products: Sequence[_Product]) -> None:
        self._products = dict(enumerate(products))
        self._having: dict[tuple[Expr, bool], dict[int, None]] = {}
        of_coef: dict[Fraction, list[_Product]] = {}
        for p in products:
            of_coef.setdefault(p.coef, []).append(p)
        for n, p in self._products.items():
            opposite = of_coef.get(-p.coef, ())
            for a, power in p.powers:
                if not any(_is_difference(p, a, other) for other in opposite):
                    self._having.setdefault((a, power > 0), {})[n] = None
        self._ranks: dict[tuple[Expr, bool], tuple[object, ...]] = {}
        for key in self._having:
            self._rank(key)

    def _rank(self, key: tuple[Expr, bool]) -> None:
        """Record the rank of a factor, if it may be pulled out of the products that have it."""
        a, _ = key
        self._ranks.pop(key, None)
        if len(self._having[key]) < 2:
            return
        having = [self._products[n] for n in self._having[key]]
        if _may_leave_guards(a, having) and not _is_absorbed(a, having):
            weight = len(free_indices(a))
            rank = (len(having), isinstance(a, Iverson | Delta), weight, isinstance(a, Term))
            first = next(iter(self._having[key]))
            self._ranks[key] = (*(-int(x) for x in rank), sort_key(a), first)

    def most_common(self) -> tuple[Expr, Fraction, list[_Product]] | None:
        """The factor that the most products share, its common power, and those products."""
        if not self._ranks:
            return None
        a, positive = best = min(self._ranks, key=self._ranks.__getitem__)
        chosen = [self._products[n] for n in self._having[best]]
        shared = min(abs(p.power(a)) for p in chosen) * (1 if positive else -1)
        return a, shared, chosen

    def remove(self, products: Sequence[_Product]) -> None:
        gone = {id(p) for p in products}
        changed: dict[tuple[Expr, bool], None] = {}
        for n in [n for n, p in self._products.items() if id(p) in gone]:
            for a, power in self._products.pop(n).powers:
                if self._having.get((a, power > 0), {}).pop(n, True) is None:
                    changed[(a, power > 0)] = None
        for key in changed:
            self._rank(key)

    def products(self) -> list[_Product]:
        """The remaining products."""
        return list(self._products.values())


def _is_difference(p: _Product, a: Expr, other: _Product) -> bool:
    """True if p + other is c*Sum_j K[i,j]*(a[i] - a[j]), whose digits another sum would lose.

    The coefficient of ``other`` is that of p with the opposite sign.
    """
    if not isinstance(a, Access) or p.power(a) != 1:
        return False
    sums = [[s for s, n in q.powers if isinstance(s, Term) and n == 1] for q in (p, other)]
    for own, whole in product(*sums):
        inside = [f for f in whole.factors if f not in own.factors]
        moved = len(inside) == 1 and len(whole.factors) == len(own.factors) + 1
        if not moved or own.binders != whole.binders:
            continue
        rest = p.divided(a, Fraction(1)).divided(own, Fraction(1))
        if set(rest.powers) == set(other.divided(whole, Fraction(1)).powers):
            at = product(free_indices(a), own.binders)
            return any(substitute(a, {i: j}) is inside[0] for i, j in at)
    return False


def _is_absorbed(atom: Expr, having: Sequence[_Product]) -> bool:
    """True if every product has a smaller factor to absorb this number, which saves a pass.

    x*(a/n) + b/n has a pass less than (x*a + b)/n if x has all indices and a and b do not.
    """
    if free_indices(atom) or isinstance(atom, Iverson | Delta):
        return False
    ranks = [[len(free_indices(a)) for a, _ in p.powers if a is not atom] for p in having]
    whole = len(frozenset().union(*(free_indices(a) for p in having for a, _ in p.powers)))
    return all(any(0 < rank < whole for rank in of) for of in ranks)


def _may_leave_guards(atom: Expr, having: Sequence[_Product]) -> bool:
    """True if the factor is evaluated under guards outside that are as strong as inside."""
    if isinstance(atom, Iverson | Delta | Size | Num | Param | Const | FactoredSum):
        return True
    guards = [frozenset(a for a, _ in p.powers if isinstance(a, Iverson)) for p in having]
    if len(set(guards)) == 1:
        return True
    # Under a weaker guard outside, the inside factor must be defined there too.
    powers = [p.power(atom) for p in having]
    domain = _domain(min(powers, key=abs))
    able = [domain <= _domain(power) for power in powers]
    if any(not g and fits for g, fits in zip(guards, able, strict=True)):
        return True
    lone = [next(iter(g)) for g, fits in zip(guards, able, strict=True) if len(g) == 1 and fits]
    return any(
        isinstance(a, Iverson) and isinstance(b, Iverson) and negate(a.condition) is b.condition
        for a, b in combinations(lone, 2)
    )


def _domain(power: Fraction) -> frozenset[str]:
    """The conditions on a base under which this power is defined."""
    needs = {"not 0": power < 0, "not below 0": power.denominator > 1}
    return frozenset(name for name, needed in needs.items() if needed)


def _merge_sums(products: Sequence[_Product]) -> list[_Product] | None:
    """Sum_k X*Y + Sum_k X*Z = Sum_k X*(Y + Z) where X has all indices of Y + Z."""
    sums = [_lone_sum(p) for p in products]
    having: dict[Expr, list[int]] = {}
    for n, t in enumerate(sums):
        for f in () if t is None else t.factors:
            having.setdefault(f, []).append(n)
    for one, two in sorted({pair for at in having.values() for pair in combinations(at, 2)}):
        a, b = sums[one], sums[two]
        if a is None or b is None or a.binders != b.binders:
            continue
        merged = _merged_sum(a, b, products[two].coef / products[one].coef)
        if merged is not None:
            left = [p for n, p in enumerate(products) if n not in (one, two)]
            return [*left, _Product(products[one].coef, ((merged, Fraction(1)),))]
    return None


def _merged_sum(a: Term, b: Term, ratio: Fraction) -> Term | None:
    """a + ratio*b over the same binders, with common factors pulled out; None if that is larger."""
    shared = [f for f in a.factors if f in b.factors]
    rest_a = [f for f in a.factors if f not in shared]
    rest_b = [f for f in b.factors if f not in shared]
    if not shared or any(isinstance(f, Delta | Iverson) for f in (*rest_a, *rest_b)):
        return None
    inside = poly([make_term(Fraction(1), (), rest_a), make_term(ratio, (), rest_b)])
    # The inner sum must be no larger than a tensor that is there anyway, or all its own terms.
    alike = len(rest_a) == len(rest_b) == 1 and all(
        free_indices(f) == free_indices(inside) for f in (*rest_a, *rest_b)
    )
    within = free_indices(inside) <= indices_of(shared) and any(
        free_indices(inside) <= free_indices(f) for f in (*shared, *rest_a, *rest_b)
    )
    if not within and not alike:
        return None
    return Term(Fraction(1), a.binders, (*shared, inside))


def _lone_sum(p: _Product) -> Term | None:
    if len(p.powers) == 1 and p.powers[0][1] == 1 and isinstance(p.powers[0][0], Term):
        return p.powers[0][0]
    return None


def _render(p: _Product) -> Expr:
    """coef * scalars * tensors * functions * sums, reciprocals last."""
    coef, powers = over_roots(p.coef, p.powers)
    powers, roots = roots_joined(powers)
    factors = sorted(powers, key=lambda entry: _factor_key(entry[0], entry[1]))
    nested = (
        raised(_render_sum(a) if isinstance(a, Term) else factor(a), power) for a, power in factors
    )
    return product_of([*([Num(coef)] if coef != 1 else ()), *roots, *nested])


_HALF = Fraction(1, 2)


Powers = Sequence[tuple[Expr, Fraction]]
"""Factors and their powers in a product."""


def over_roots(coef: Fraction, powers: Powers) -> tuple[Fraction, Powers]:
    """Rewrite x*sqrt(2)/2 as x/sqrt(2)."""
    found = list(powers)
    for at, (a, power) in enumerate(powers):
        if isinstance(a, Num) and a.value and power == _HALF and coef.denominator % a.value == 0:
            coef *= a.value
            found[at] = (a, -_HALF)
    return coef, found


def roots_joined(powers: Powers) -> tuple[Powers, list[Expr]]:
    """Split off the square roots of numbers, joined under one root: sqrt(2/pi)."""
    above = [a for a, p in powers if p == _HALF and isinstance(a, Num | Const)]
    below = [a for a, p in powers if p == -_HALF and isinstance(a, Num | Const)]
    if len(above) + len(below) < 2:
        return powers, []
    rest = [(a, p) for a, p in powers if abs(p) != _HALF or not isinstance(a, Num | Const)]
    if not above:
        return rest, [Pow(_join_numbers(below), num(-_HALF))]
    inside = [*above, Pow(_join_numbers(below), num(-1))] if below else above
    return rest, [Pow(_join_numbers(inside), num(_HALF))]


def _join_numbers(factors: Sequence[Expr]) -> Expr:
    return product_of(sorted(factors, key=lambda f: not isinstance(f, Num)))


def _factor_key(a: Expr, power: Fraction) -> tuple[object, ...]:
    match a:
        case Iverson() | Delta():
            kind = 0
        case Size() | Param() | Const() | Num() | FactoredSum():
            kind = 1
        case Access() | Index():
            kind = 2
        case _:
            kind = 4 if isinstance(a, Term) else 3
    return (power < 0, kind, sort_key(a))


@lru_cache(maxsize=4096)
def _render_sum(t: Term) -> Expr:
    """A connected sum in nested form; sums among its factors are nested in turn."""
    inner = _Product(Fraction(1), tuple(base_and_power(f) for f in t.factors))
    return Reduce("sum", t.binders, _render(inner))


def _flat_mul(a: Expr, b: Expr) -> Expr:
    left, right = factors_of(a), factors_of(b)
    if right and isinstance(right[0], Num):
        left, right = (right[0], *left), right[1:]
    if len(left) > 1 and isinstance(left[0], Num) and isinstance(left[1], Num):
        left = (Num(left[0].value * left[1].value), *left[2:])
    parts = (*left, *right)
    if isinstance(parts[0], Num) and parts[0].value == 1 and len(parts) > 1:
        parts = parts[1:]
    return product_of(parts)


def _flat_add(a: Expr, b: Expr) -> Expr:
    left = a.args if isinstance(a, Add) else (a,)
    right = b.args if isinstance(b, Add) else (b,)
    return Add((*left, *right))


# ------------------------------------------------------------------------------------------ to tree
# Convert the flat form to nested nodes, term by term, for the oracle and the printers.


@lru_cache(maxsize=4096)
def to_tree(e: Expr) -> Expr:
    """The same expression in nested nodes only."""
    if isinstance(e, Poly):
        return sum_of([_term_tree(t) for t in e.terms])
    if isinstance(e, Term):
        return _term_tree(e)
    if isinstance(e, FactoredSum):
        return to_tree(e.body)
    mapped: Expr = e.map(to_tree)
    return mapped


def _term_tree(t: Term) -> Expr:
    if not t.factors and not t.binders:
        return Num(t.coef)
    inner = product_of([to_tree(f) for f in t.factors])
    if t.binders:
        inner = Reduce("sum", t.binders, inner)
    return inner if t.coef == 1 else Mul((Num(t.coef), inner))
