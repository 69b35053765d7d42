"""Cancel a sum against a factor that is its name, or the same sum.

    x/M + y/M = 1       where M = x + y is in the spec
    x/(x + y) + y/(x + y) = 1
    M/(x + y) = 1
    1/(c*(1 + x/c)) = 1/(c + x)
    M - x = y

This is exact algebra: the quotient is 1 where M is 0 too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from fractions import Fraction
from functools import cache, lru_cache

from derive.algebra import expr as ex
from derive.algebra.logic import conditions_of
from derive.algebra.poly import (
    FactoredSum,
    Poly,
    Term,
    add,
    atom,
    base_and_power,
    is_mask,
    make_term,
    mul,
    poly,
    raised,
    scale,
    sum_over,
)
from derive.algebra.rules import Rule, SumRule
from derive.calculus.guards import held_conditions
from derive.calculus.lets import Lets, inline

_DEEPEST = 4
"""The most names within a definition that are expanded."""


def quotient_rules(lets: Lets) -> tuple[Rule | SumRule, ...]:
    """The rules for these definitions; they see those that are added later."""

    sums = cache(lambda base: tuple(_defining_sums(lets, base)))
    return (
        Rule(
            "one sum",
            "v/(a + b) = 1, v = a + b",
            "the number of factors",
            lambda t: _join_name_powers(t, sums),
        ),
        Rule(
            "one quotient", "1/(c·(1 + a/c)) = 1/(c + a)", "the number of divisors", _one_quotient
        ),
        SumRule(
            "cancel a sum",
            "a/(a + b) + b/(a + b) = 1",
            "the number of terms",
            lru_cache(maxsize=4096)(lambda p: _cancel_sum(p, sums)),
        ),
        SumRule(
            "other share",
            "1 − a/(a + b) = b/(a + b)",
            "the number of terms",
            lru_cache(maxsize=4096)(lambda p: _other_share(p, sums)),
        ),
        SumRule(
            "subtract a part",
            "v − a = b, v = a + b",
            "the number of terms",
            lambda p: _without_part(lets, p),
        ),
    )


Sums = Callable[[ex.Expr], tuple[Poly, ...]]


def _join_name_powers(t: Term, sums: Sums) -> Poly | None:
    """Combine the powers of a name and of the sum that defines it as one power of the name."""
    powers = [(f, *base_and_power(f)) for f in t.factors]
    wholes = [(f, e, n) for f, e, n in powers if isinstance(e, Poly) and _shared_masks(e) == ()]
    for name, base, exponent in powers if wholes else ():
        if not isinstance(base, ex.Access):
            continue
        for other, same, more in wholes:
            if same not in sums(base):
                continue
            rest = [f for f in t.factors if f not in (name, other)]
            factors = (*rest, *_nonzero_power(base, exponent + more))
            return poly([make_term(t.coef, t.binders, factors)])
    return None


def _defining_sums(lets: Lets, base: ex.Expr) -> Iterator[Poly]:
    """The sums that a factor equals: its own terms, or its definition, expanded step by step.

    A guarded factor equals its operand where its condition holds.
    """
    base = base.position if isinstance(base, ex.Guard) else base
    if isinstance(base, Poly | FactoredSum):
        yield base.body if isinstance(base, FactoredSum) else base
    whole = lets.opened(base)
    if whole is None:
        return
    yield whole
    for _ in range(_DEEPEST - 1):
        factors = (f for t in whole.terms for f in t.factors)
        inner = (lets.definition(f.tensor) for f in factors if isinstance(f, ex.Access))
        opened = next((let for let in inner if let is not None), None)
        if opened is None:
            return
        whole = inline(whole, opened)
        yield whole


def _one_quotient(t: Term) -> Poly | None:
    """Multiply the divisors in the terms of a divisor out, where they divide t too."""
    powers = [(f, *base_and_power(f)) for f in t.factors]
    for sum_, whole, n in powers:
        if not isinstance(whole, Poly) or n >= 0 or n.denominator != 1 or len(whole.terms) < 2:
            continue
        for divisor, base, k in powers:
            if k >= 0 or not isinstance(base, ex.Access | ex.Param | ex.Size):
                continue
            least = min(dict(map(base_and_power, d.factors)).get(base, 0) for d in whole.terms)
            if least >= 0 or Fraction(least).denominator != 1 or least * n > -k:
                continue
            cleared = mul(whole, atom(base, Fraction(-least)))
            if any(ex.free_indices(base) & frozenset(d.binders) for d in cleared.terms):
                continue
            rest = [f for f in t.factors if f not in (sum_, divisor)]
            factors = (*rest, *_nonzero_power(cleared, n), *_nonzero_power(base, k + least * n))
            return poly([make_term(t.coef, t.binders, factors)])
    return None


def _products_among(
    terms: Collection[Term], outer: Poly, whole: Poly, binders: Sequence[ex.Index]
) -> Iterator[Term]:
    """Multiply a sum's terms by ``outer``; yield the products up to the first not in ``terms``."""
    for part in whole.terms:
        product = sum_over(mul(outer, poly([part])), binders).terms
        if len(product) != 1 or product[0] not in terms:
            return
        yield product[0]


def _cancel_sum(p: Poly, sums: Sums) -> Poly | None:
    """Rewrite rest*a*M^n + rest*b*M^n as rest*M^(n + 1), where M = a + b; the first match in p."""
    if len(p.terms) < 2:
        return None
    terms = set(p.terms)
    having = Counter(b for t in p.terms for b in {base_and_power(f)[0] for f in t.factors})
    wholes = {
        base: [w for w in sums(base) if 1 < len(w.terms) <= many and _is_within(w, having)]
        for base, many in having.items()
        if many > 1
    }
    for t in p.terms:
        for f in t.factors:
            base, exponent = base_and_power(f)
            asked = conditions_of(base.condition) if isinstance(base, ex.Guard) else ()
            if asked and not frozenset(held_conditions(t.factors)).issuperset(asked):
                continue
            for whole in wholes.get(base, ()):
                masks = _shared_masks(whole)
                rest = None if masks is None else _term_cofactor(t, f, whole)
                if rest is None or masks is None:
                    continue
                outer = mul(rest, atom(base, exponent))
                gone = {t, *_products_among(terms, outer, whole, t.binders)}
                if len(gone) == len(whole.terms):
                    kept = poly([make_term(Fraction(1), (), masks)])
                    more = poly([make_term(Fraction(1), (), _nonzero_power(base, exponent + 1))])
                    made = mul(rest, kept, more)
                    left = poly(x for x in p.terms if x not in gone)
                    return add(left, sum_over(made, t.binders))
    return None


def _other_share(p: Poly, sums: Sums) -> Poly | None:
    """Rewrite c*M^(n + 1) - c*a*M^n as c*b*M^n, where M = a + b; the first match in p."""
    terms = set(p.terms)
    for t in p.terms if len(terms) > 1 else ():
        for f in t.factors:
            base, exponent = base_and_power(f) if isinstance(f, ex.Pow) else (f, Fraction(1))
            for whole in () if exponent >= 0 or isinstance(base, ex.Guard) else sums(base):
                if len(whole.terms) != 2 or any(d.binders for d in whole.terms):
                    continue
                if any(map(is_mask, (g for d in whole.terms for g in d.factors))):
                    # Where a bracket fails M is 0, and 1 - 0 is not b/M under the bracket.
                    continue
                for a, b in (whole.terms, whole.terms[::-1]):
                    c = _term_cofactor(t, f, poly([a]))
                    if c is None:
                        continue
                    less = poly([make_term(Fraction(-1), (), _nonzero_power(base, exponent + 1))])
                    one = sum_over(mul(c, less), t.binders).terms
                    if len(one) == 1 and one[0] in terms:
                        other = sum_over(mul(c, poly([b]), atom(base, exponent)), t.binders)
                        left = poly(x for x in p.terms if x is not t and x is not one[0])
                        return add(left, scale(other, -1))
    return None


def _is_within(whole: Poly, having: Container[ex.Expr]) -> bool:
    """True if every factor of the sum occurs in ``having``; terms with binders are exempt."""
    plain = (t for t in whole.terms if not t.binders)
    return all(base_and_power(f)[0] in having for t in plain for f in t.factors)


def _without_part(lets: Lets, p: Poly) -> Poly | None:
    """Expand a name in p that terms of its own definition are subtracted from."""
    terms = set(p.terms)
    alike = _ReadersByTensor(p)
    for n, t in enumerate(p.terms if len(p.terms) > 1 else ()):
        for f in t.factors:
            let = lets.definition(f.tensor) if isinstance(f, ex.Access) else None
            if let is None or len(let.body.terms) < 2:
                continue
            assert isinstance(f, ex.Access)
            others = [x for x in t.factors if x is not f]
            if not any(alike.others_read(n, d, f, others) for d in let.body.terms):
                continue
            rest = poly([make_term(t.coef, (), others)])
            opened = sum_over(mul(rest, let.body_at(f.positions)), t.binders)
            gone = sum(Term(-x.coef, x.binders, x.factors) in terms for x in opened.terms)
            if gone and len(opened.terms) <= 1 + 2 * gone:
                return add(poly(x for x in p.terms if x is not t), opened)
    return None


class _ReadersByTensor:
    """Which terms of a sum read which tensors: a cheap test that a product is not among them."""

    def __init__(self, p: Poly) -> None:
        self._all = frozenset(range(len(p.terms)))
        self._reading: dict[str, set[int]] = {}
        for n, t in enumerate(p.terms):
            for name in ex.tensors(t):
                self._reading.setdefault(name, set()).add(n)

    def others_read(self, n: int, part: Term, name: ex.Access, beside: Iterable[ex.Expr]) -> bool:
        """True if a term other than the n-th reads the tensors of a part times the cofactors.

        Tensors that both the part and the cofactors read may cancel, as may those in positions.
        """
        within = frozenset().union(*map(ex.tensors, beside))
        at = frozenset().union(*map(ex.tensors, name.positions))
        found: AbstractSet[int] = self._all - {n}
        for read in (ex.tensors(part) ^ within) - at:
            found = found & self._reading.get(read, set())
            if not found:
                return False
        return True


def _nonzero_power(base: ex.Expr, exponent: Fraction) -> tuple[ex.Expr, ...]:
    return (raised(base, exponent),) if exponent else ()


def _shared_masks(whole: Poly) -> tuple[ex.Expr, ...] | None:
    """The brackets common to all terms, where the sum is not 0; None if some differ, or for 0."""
    masks = [frozenset(f for f in t.factors if is_mask(f)) for t in whole.terms]
    if len(set(masks)) != 1:
        return None
    return tuple(f for f in whole.terms[0].factors if is_mask(f))


def _term_cofactor(t: Term, f: ex.Expr, whole: Poly) -> Poly | None:
    """The cofactor in t of f and of the first term of the sum without binders."""
    first = next((d for d in whole.terms if not d.binders), None)
    if first is None:
        return None
    left = dict(base_and_power(x) for x in t.factors if x is not f)
    for base, exponent in map(base_and_power, first.factors):
        have = left.pop(base, Fraction(0))
        if not is_mask(base) and have != exponent:
            if have / exponent < 1:
                return None
            left[base] = have - exponent
        elif have == 0:
            return None
    factors = [x for base, exponent in left.items() for x in _nonzero_power(base, exponent)]
    return poly([make_term(t.coef / first.coef, (), factors)])
