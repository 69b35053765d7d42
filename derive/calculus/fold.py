"""Fold defining expressions of the forward into their names.

    exp(A - lse) = S       where S[..] = exp(A - lse) is in the spec

The rules use only the definitions, no knowledge of particular operations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import islice, product
from typing import Any

from derive.algebra.expr import (
    Access,
    Call,
    Delta,
    Expr,
    Guard,
    Index,
    Iverson,
    Num,
    Pow,
    Rel,
    accesses,
    free_indices,
    tensors,
)
from derive.algebra.match import Binding, match
from derive.algebra.poly import (
    ONE,
    Poly,
    Term,
    add,
    as_atom,
    atom,
    base_and_power,
    constant,
    is_mask,
    make_term,
    mul,
    poly,
    raised,
    scale,
    sum_over,
)
from derive.algebra.rules import Rule, Rules
from derive.algebra.substitution import substitute
from derive.budget import tick
from derive.calculus.guards import guard_rule, guarded_product_rule
from derive.calculus.lets import Find, Let, Lets
from derive.calculus.sum_rules import total_rules
from derive.calculus.value_analysis import ValueFacts

# ---------------------------------------------------------------------------------------- instances
# Find what an expression contains: candidates for an instance of an equation, multiples of a sum.
#
#     Sum_j G[i,j]*x[i,d] - Sum_j G[i,j]*y[j,d] + x[i,d]  has  Sum_j G[i,j]*(x[i,d] - y[j,d])
#
# The equations are indexed by a tensor they read. For the multiples of a sum, over which products
# were distributed, dividing a term by a term of the base gives the cofactors. The base times these,
# distributed again, is a multiple of the base if all of its terms occur.


class DefinitionIndex:
    """The equations of the spec that satisfy ``fits``, each indexed under a tensor it reads.

    An instance of an equation reads every tensor that the equation does. Equations that are added
    later are found too.
    """

    def __init__(self, lets: Lets, fits: Callable[[Let], bool]) -> None:
        self.lets = lets
        self._fits = fits
        self._seen = 0
        self._under: dict[str | None, list[tuple[int, Let]]] = {}

    def like(self, e: Expr) -> list[Let]:
        """The equations that read only tensors of e, in order of definition."""
        self._update()
        there = tensors(e)
        found = list(self._under.get(None, ()))
        for name in there:
            found += (
                entry for entry in self._under.get(name, ()) if tensors(entry[1].body) <= there
            )
        return [let for _, let in sorted(found, key=lambda entry: entry[0])]

    def _update(self) -> None:
        given = self.lets.given
        new = islice(given.values(), self._seen, None) if len(given) > self._seen else ()
        for n, let in enumerate(new, self._seen):
            if self._fits(let):
                # Index under the tensor with the fewest entries: many may read the same weight.
                names = sorted(tensors(let.body))
                key = min(names, key=lambda name: len(self._under.get(name, ())), default=None)
                self._under.setdefault(key, []).append((n, let))
        self._seen = len(given)


@dataclass(frozen=True)
class Multiple:
    """Sum over the binders of outer, of its factors times the base at these indices."""

    base: Poly
    outer: Term
    mapping: Binding

    def of(self, base: Poly) -> Poly:
        """The same multiple of another sum with the same indices, distributed."""
        whole = mul(poly([Term(self.outer.coef, (), self.outer.factors)]), self.at(base))
        return sum_over(whole, self.outer.binders)

    def at(self, part: Poly) -> Poly:
        """A part of the base at the indices of this multiple."""
        return substitute(part, self.mapping)


def multiples(p: Poly, base: Poly, said: Callable[[Poly], Poly]) -> Iterator[tuple[Multiple, Poly]]:
    """(a multiple of the base that p contains, the rest of p).

    ``said`` normalizes sums as those in p are: a known sum is its name, or 0.
    """
    held = {(t.binders, t.factors): t.coef for t in p.terms}
    for lead in base.terms:
        named = tensors(lead)
        if lead.binders or not (named or free_indices(lead)):
            continue
        for t in (t for t in p.terms if named <= tensors(t)):
            for outer, mapping in _quotients(p, t, lead, base):
                multiple = Multiple(base, outer, mapping)
                whole = multiple.of(base)
                if len(whole.terms) < 2:
                    continue
                if not _contains_multiple(held, whole):
                    whole = said(whole)
                if whole.terms and _contains_multiple(held, whole):
                    yield multiple, add(p, scale(whole, -1))


def _contains_multiple(held: Mapping[Any, Fraction], whole: Poly) -> bool:
    """True if p contains each of these terms with at least this coefficient."""
    counts = (held.get((t.binders, t.factors), Fraction(0)) / t.coef for t in whole.terms)
    return all(count >= 1 for count in counts)


def _quotients(p: Poly, t: Term, lead: Term, base: Poly) -> Iterator[tuple[Term, Binding]]:
    """(t divided by a term of the base, the substitution for the indices of the base).

    An index of the base that the divisor lacks may be any index in scope.
    """
    near = sorted(free_indices(p) | set(t.binders), key=lambda i: i.name)
    for found in _match_submultiset(lead.factors, t.factors, free_indices(base), {}):
        left = sorted(free_indices(base) - set(found), key=lambda i: i.name)
        free = [i for i in near if i not in found.values()]
        choices = ([i for i in free if (i.extent, i.group) == (k.extent, k.group)] for k in left)
        for images in product(*choices):
            if len(set(images)) == len(images):
                mapping = {**found, **dict(zip(left, images, strict=True))}
                powers = (base_and_power(substitute(f, mapping)) for f in lead.factors)
                below = [Pow(b, Num(-exponent)) for b, exponent in powers]
                outer = make_term(t.coef / lead.coef, (), (*t.factors, *below))
                yield Term(outer.coef, t.binders, outer.factors), mapping


def _match_submultiset(
    patterns: tuple[Expr, ...], factors: tuple[Expr, ...], free: frozenset[Index], found: Binding
) -> Iterator[Binding]:
    """Bindings under which the factors contain those of a pattern, with multiplicity."""
    if not patterns:
        yield found
        return
    base, exponent = base_and_power(patterns[0])
    for f in factors:
        other, times = base_and_power(f)
        if exponent * times > 0 and abs(times) >= abs(exponent):
            for extended in match(base, other, free, found):
                yield from _match_submultiset(patterns[1:], factors, free, extended)


# --------------------------------------------------------------------------------------------- fold


def fold_rules(lets: Lets, adjoints: Mapping[str, Let]) -> Rules:
    """The rules for these definitions; they see lets and adjoints that are added later."""
    return (*_remembering(total_rules(lets, adjoints)), *naming_rules(lets))


def naming_rules(lets: Lets) -> Rules:
    """Those of the rules that preserve the value of every term."""
    products = DefinitionIndex(lets, _is_foldable_product)
    sums = DefinitionIndex(lets, _is_foldable_sum)

    values = ValueFacts(lets.get)
    rules = (
        Rule(
            *("fold", "a defining expression is its name", "the number of factors"),
            lambda t: _fold_all(values, products, t),
        ),
        Rule(
            *("fold sum", "a defining sum is its name", "the number of terms inside"),
            lambda t: _fold_sums(sums, t),
        ),
    )
    return (guarded_product_rule(), guard_rule(), *_remembering(rules))


def _remembering(rules: Rules) -> Rules:
    """The rules with memoization: a long sum is simplified again whenever a term changes."""
    return [replace(rule, apply=lru_cache(maxsize=4096)(rule.apply)) for rule in rules]


def masked_fold(lets: Lets) -> Rule:
    """The fold rule for the partial of an equation, [c]*exp(A - lse) = P, brackets included.

    The name absorbs its bracket if no other factor needs the bracket as a guard.
    """
    masked, values = DefinitionIndex(lets, _is_masked_product), ValueFacts(lets.get)

    def apply(t: Term) -> Poly | None:
        return _fold_all(values, masked, t) or _masked_power(masked, t)

    return Rule("fold", "a defining expression is its name", "the number of factors", apply)


def _masked_power(masked: DefinitionIndex, t: Term) -> Poly | None:
    """[c]*x^(-1/2) = [c]/v where v = [c]*x^(1/2); the bracket stays, as v is 0 elsewhere.

    For a root, [x > 0] becomes a condition on v, so that x need not be saved.
    """
    for let in masked.like(t):
        (definition,) = let.body.terms
        masks = [f for f in definition.factors if isinstance(f, Iverson)]
        rest = [f for f in definition.factors if f not in masks]
        if len(rest) != 1 or definition.coef != 1:
            continue
        bare = Term(definition.coef, (), (*rest,))
        for left, name, times in _instances(masked.lets, let, bare, t):
            mapping = dict(zip(let.formals, name.positions, strict=True))
            if all(substitute(m, mapping) in left for m in masks):
                own = [_root_condition(f, masks, rest[0], mapping, name) for f in left]
                return poly([make_term(t.coef, t.binders, (*own, Pow(name, Num(times))))])
    return None


def _root_condition(
    f: Expr, masks: Sequence[Expr], root: Expr, mapping: Mapping[Index, Expr], v: Access
) -> Expr:
    """[x > 0] as [v > 0] where v = [x > 0]*x^p, 0 < p <= 1, and likewise for [x != 0].

    The root of a positive float never underflows to 0.
    """
    base, p = base_and_power(root)
    inner = base.position if isinstance(base, Guard) else base
    x = inner if isinstance(inner, Poly) else atom(inner)
    for op in ("<", "!=") if 0 < p <= 1 else ():
        of = Iverson(Rel(op, constant(0), x))
        if list(masks) == [of] and substitute(of, mapping) is f:
            return Iverson(Rel(op, constant(0), atom(v)))
    return f


def _is_masked_product(let: Let) -> bool:
    """True if the let is a product with a bracket, and each formal is a position of a read."""
    if let.internal or let.kind != "sum" or let.dtype != "float" or len(let.body.terms) != 1:
        return False
    (definition,) = let.body.terms
    rest = [f for f in definition.factors if not isinstance(f, Iverson)]
    if definition.binders or not rest or len(rest) == len(definition.factors):
        return False
    read = {p for f in rest for a in accesses(f) for p in a.positions}
    return read.issuperset(let.formals)


def _is_foldable_product(let: Let) -> bool:
    """True if the let is a single product worth folding."""
    if let.internal or let.kind != "sum" or let.dtype != "float" or len(let.body.terms) != 1:
        return False
    (t,) = let.body.terms
    alone = len(t.factors) < 2 and not any(isinstance(f, Call | Pow) for f in t.factors)
    return not (t.binders or alone or _has_index_value(let.body))


def _is_foldable_sum(let: Let) -> bool:
    """True if the let is a sum of several terms."""
    if let.internal or let.kind != "sum" or let.dtype != "float" or len(let.body.terms) < 2:
        return False
    return not _has_index_value(let.body)


def _fold_sums(sums: DefinitionIndex, t: Term) -> Poly | None:
    """Replace a sum inside a function or a power by the name that it defines."""

    def named(e: Expr) -> Expr:
        if isinstance(e, Poly) and len(e.terms) > 1:
            for let in sums.like(e):
                for binding in match(let.body, e, frozenset(let.formals), {}):
                    if (name := sums.lets.instance(let, binding)) is not None:
                        return atom(name)
        return e

    factors = [_with_sums_named(f, named) for f in t.factors]
    if all(a is b for a, b in zip(factors, t.factors, strict=True)):
        return None
    return add(constant(0), poly([make_term(t.coef, t.binders, factors)]))


def _has_index_value(e: Expr) -> bool:
    """True if an index occurs in e as a number, so that no position may replace it."""
    if isinstance(e, Index):
        return True
    if isinstance(e, Access):
        return any(_has_index_value(p) for p in e.positions if not isinstance(p, Index))
    if isinstance(e, Term):
        return any(_has_index_value(f) for f in e.factors)
    return any(_has_index_value(part) for part in e.parts())


def _with_sums_named(f: Expr, named: Callable[[Expr], Expr]) -> Expr:
    base, exponent = base_and_power(f)
    if isinstance(base, Call):
        args = tuple(named(a) for a in base.args)
        if args != base.args:
            return raised(Call(base.function, args), exponent)
    elif isinstance(base, Poly):
        new = named(base)
        if new is not base:
            assert isinstance(new, Poly)
            return raised(as_atom(new), exponent)
    return f


def _fold_all(values: ValueFacts, products: DefinitionIndex, t: Term) -> Poly | None:
    """Replace every defining product by its name; the name absorbs the product's brackets.

    The brackets stay if another factor may be infinite where they do not hold.
    """
    folded = t
    while (made := _fold(products, folded)) is not None:
        folded = made
    return None if folded is t else poly([_drop_implied_masks(products.lets, values, folded)])


def _fold(products: DefinitionIndex, t: Term) -> Term | None:
    """Replace one defining product by its name, keeping its brackets."""
    for let in products.like(t):
        (definition,) = let.body.terms
        for rest, name, exponent in _instances(products.lets, let, definition, t):
            masks = [f for f in t.factors if isinstance(f, Iverson) and f not in rest]
            factors = (*rest, *masks, raised(name, exponent))
            coef = t.coef / definition.coef if exponent == 1 else t.coef
            return make_term(coef, t.binders, factors)
    return None


def _drop_implied_masks(lets: Lets, values: ValueFacts, t: Term) -> Term:
    """t without the brackets that its names contain, unless they guard another factor.

    They guard a value of the forward at their indices, which may be nan where they do not hold.
    """
    own: dict[Expr, None] = {}
    others: list[Expr] = []
    for f in t.factors:
        base, power = base_and_power(f)
        masks = _definition_masks(values.find, base) if power > 0 else ()
        own |= dict.fromkeys(masks)
        if not masks and not values.facts(f).defined:
            return t
        if not masks and not is_mask(f) and not tensors(f) <= lets.derived_from.keys():
            others.append(f)
    inside = frozenset[Index]().union(*map(free_indices, others))
    implied = {c for c in own if inside.isdisjoint(free_indices(c))}
    return make_term(t.coef, t.binders, [f for f in t.factors if f not in implied])


def _definition_masks(find: Find, f: Expr) -> tuple[Expr, ...]:
    """The brackets in the defining product of a name."""
    let = find(f.tensor) if isinstance(f, Access) else None
    if let is None or let.kind != "sum" or len(let.body.terms) != 1:
        return ()
    assert isinstance(f, Access)
    there = dict(zip(let.formals, f.positions, strict=True))
    (definition,) = let.body.terms
    return tuple(substitute(m, there) for m in definition.factors if isinstance(m, Iverson))


def _choices(
    wanted: Sequence[tuple[Expr, Fraction]], have: Sequence[tuple[Expr, Fraction]]
) -> Iterator[tuple[int, ...]]:
    """Injective assignments of factors of ``have`` to the wanted ones."""
    places = [[n for n, f in enumerate(have) if _may_hold(f, w)] for w in wanted]
    for chosen in product(*places):
        tick()
        if len(set(chosen)) == len(chosen):
            yield chosen


def _instances(
    lets: Lets, let: Let, definition: Term, t: Term
) -> Iterator[tuple[list[Expr], Access, Fraction]]:
    """(the remaining factors of t, the let at its positions, its power) for each instance in t."""
    formals = frozenset(let.formals)
    if len(definition.factors) == 1 and definition.coef == 1:
        yield from _single_instances(lets, let, definition.factors[0], t, formals)
        return
    wanted = [base_and_power(f) for f in definition.factors]
    have = [base_and_power(f) for f in t.factors]
    several = sum(not isinstance(f, Delta) for f in t.factors)
    for chosen in _choices(wanted, have) if len(wanted) <= several <= 8 else ():
        bindings: list[Mapping[Index, Expr]] = [{}]
        quotient = list(t.factors)
        for (base, exponent), n in zip(wanted, chosen, strict=True):
            other, power_ = have[n]
            bindings = [m for b in bindings for m in match(base, other, formals, b)]
            left = power_ - exponent
            quotient[n] = ONE if left == 0 else raised(other, left)
        for binding in bindings:
            if (name := lets.instance(let, binding)) is not None:
                yield [f for f in quotient if f is not ONE], name, Fraction(1)


def _may_hold(have: tuple[Expr, Fraction], wanted: tuple[Expr, Fraction]) -> bool:
    """True if one power may be a multiple of an instance of the other."""
    (other, power_), (base, exponent) = have, wanted
    enough = exponent * power_ > 0 and abs(power_) >= abs(exponent)
    return enough and tensors(base) <= tensors(other)


def _single_instances(
    lets: Lets, let: Let, pattern: Expr, t: Term, formals: frozenset[Index]
) -> Iterator[tuple[list[Expr], Access, Fraction]]:
    """Instances of a lone f(x)^q, which also matches (f(x)^q)^n: x^(-3/2) = v^3, v = x^(-1/2)."""
    base, exponent = base_and_power(pattern)
    for n, f in enumerate(t.factors):
        other, power_ = base_and_power(f)
        times = power_ / exponent
        if times.denominator != 1 or (times < 0 and exponent == 1):
            continue
        for binding in match(base, other, formals, {}):
            if (name := lets.instance(let, binding)) is not None:
                yield [*t.factors[:n], *t.factors[n + 1 :]], name, times
