"""Sums whose value follows from the definitions.

    Sum_k S[.., k, ..] = 1, 0, ...     where the definition of S implies it
    Sum_k a[k]*b[k]    = v             where v = Sum_k a[k]*b[k] is in the spec

Both follow from the definitions of the forward and of the adjoints, without knowledge of particular
operations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

from derive.algebra import expr as ex
from derive.algebra.factor import to_tree
from derive.algebra.match import Binding, match
from derive.algebra.poly import (
    ZERO,
    Poly,
    Term,
    add,
    as_atom,
    atom,
    base_and_power,
    make_term,
    mul,
    poly,
    raised,
    sum_over,
)
from derive.algebra.rules import Log, Rule, Step, SumRule, simplify
from derive.algebra.substitution import Recursion, substitute
from derive.calculus.guard_insertion import has_positions
from derive.calculus.guards import has_a_member
from derive.calculus.lets import Find, Let, Lets, formula_size, inline, tensors_of
from derive.calculus.softmax import is_compared, sums_apart

_NAMED = "a defining sum of products is its name"

_MOST_ROUNDS = 12
"""The most names expanded to find that a sum is constant."""

_LARGEST = 24
"""A sum that grows to more factors and binders than this is assumed not constant."""

_MOST_SHOWN = 48
"""The most steps shown for a constant; of a longer derivation only the end is kept."""


@dataclass(frozen=True)
class _Total:
    """The constant value of a sum, and the steps to it."""

    value: Poly
    steps: tuple[Step, ...]


def total_rules(lets: Lets, adjoints: Mapping[str, Let]) -> tuple[Rule | SumRule, ...]:
    """The rules for these definitions; they see lets and adjoints that are added later."""
    normalised = Rule(
        "normalised exponential",
        "Σₖ exp(f − logsumexpₖ f) = 1",
        "the number of summed indices",
        lambda t: _sum_of_normalised(lets, t),
    )
    needless = Rule(
        "no positions, no value",
        "[size(k) > 0]·f(k) = f(k)",
        "the number of factors",
        lambda t: _without_needless(lets, t),
    )

    def find(name: str) -> Let | None:
        return adjoints.get(name) or lets.get(name)

    def total_of(key: tuple[str, tuple[int, ...]]) -> _Total | None:
        name, axes = key
        let = find(name)
        if let is None or let.kind != "sum" or let.dtype != "float":
            return None
        return _constant_sum(lets, adjoints, (normalised, needless, known), let, axes)

    value = Recursion(total_of, lets.found_totals)

    def known_sum(t: Term) -> Poly | None:
        found = ((rest, value((name, axes))) for rest, name, axes in _lone_sums(t, find))
        return next((mul(total.value, rest) for rest, total in found if total is not None), None)

    def shown(t: Term) -> tuple[Step, ...]:
        totals = (value((name, axes)) for _, name, axes in _lone_sums(t, find))
        return next(total.steps for total in totals if total is not None)

    known = Rule(
        "known sum",
        "Σₖ v(k) is constant by v's definition",
        "the number of summed indices",
        known_sum,
        shown,
    )
    named = SumRule(
        "fold total",
        _NAMED,
        "the number of summed indices",
        _unless_compared(lets, lambda t: _named_total(lets, t, ())),
    )
    through = SumRule(
        "fold total through an adjoint",
        "Σₖ a(k)·Σₑ G(e)·b(k, e) = Σₑ G(e)·v(e), v(e) = Σₖ a(k)·b(k, e)",
        "the number of sums that read an adjoint",
        _unless_compared(lets, lambda t: _through_adjoint(lets, adjoints, t)),
    )
    return normalised, needless, known, named, through


def _unless_compared(
    lets: Lets, fold: Callable[[Term], Poly | None]
) -> Callable[[Poly], Poly | None]:
    """Apply ``fold`` to every term, except to means that are compared with another term."""
    folded = lru_cache(maxsize=4096)(fold)

    def apply(p: Poly) -> Poly | None:
        found = {t: new for t in p.terms if (new := folded(t)) is not None}
        found = {t: new for t, new in found.items() if not is_compared(lets, p, t)}
        if not found:
            return None
        return poly(x for t in p.terms for x in (found[t].terms if t in found else (t,)))

    return apply


def _uses(t: Term, index: ex.Index) -> list[ex.Expr]:
    return [f for f in t.factors if index in ex.free_indices(f)]


# -------------------------------------------------------------------- Sum_k exp(f - lse) = 1


def _sum_of_normalised(lets: Lets, t: Term) -> Poly | None:
    for k in t.binders:
        uses = _uses(t, k)
        for f in uses:
            let_condition = _normalised_over(lets, f, k)
            if let_condition is None:
                continue
            if [u for u in uses if u is not f] == let_condition:
                rest = [x for x in t.factors if x not in uses]
                left = [i for i in t.binders if i is not k]
                if not has_positions(lets, k):
                    rest.append(ex.Iverson(ex.Rel("<", ZERO, atom(ex.Size(k.extent)))))
                return poly([make_term(t.coef, left, rest)])
    return None


def _without_needless(lets: Lets, t: Term) -> Poly | None:
    for f in t.factors:
        match f:
            case ex.Iverson(ex.Rel("<", left, Poly() as right)) if left is ZERO:
                size = as_atom(right)
            case _:
                continue
        if not isinstance(size, ex.Size):
            continue
        rest = [x for x in t.factors if x is not f]
        inside = [part for x in rest for part in ex.walk(x)]
        if any(map(_is_placed, inside)):
            # The bracket keeps a position in range.
            continue
        indices = (*t.binders, *(i for i in inside if isinstance(i, ex.Index)))
        around = any(i.extent == size.extent for i in indices)
        if around or _vanishes_with(lets, rest, size.extent):
            return poly([make_term(t.coef, t.binders, rest)])
    return None


def _is_placed(e: ex.Expr) -> bool:
    if isinstance(e, ex.Access):
        return not all(isinstance(p, ex.Index) for p in e.positions)
    return isinstance(e, ex.Delta)


def _vanishes_with(lets: Lets, factors: Sequence[ex.Expr], extent: str) -> bool:
    """True if a factor is a sum over the extent, so that it is 0 if the extent is empty."""
    read = (lets.get(f.tensor) for f in factors if isinstance(f, ex.Access))
    return any(
        let is not None
        and let.kind == "sum"
        and all(any(i.extent == extent for i in t.binders) for t in let.body.terms)
        for let in read
    )


def _normalised_over(lets: Lets, f: ex.Expr, k: ex.Index) -> list[ex.Expr] | None:
    """The mask factors required beside f = exp(body - lse) with lse over k; None for another f."""
    if not (isinstance(f, ex.Call) and f.function == "exp"):
        return None
    (u,) = f.args
    assert isinstance(u, Poly)
    u = lets.opened(as_atom(u)) or u
    for t in u.terms:
        if t.coef != -1 or len(t.factors) != 1 or not isinstance(t.factors[0], ex.Access):
            continue
        lse = t.factors[0]
        let = lets.get(lse.tensor)
        if let is None or let.kind != "logsumexp" or len(let.binders) != 1:
            continue
        mapping: dict[ex.Index, ex.Expr] = dict(zip(let.formals, lse.positions, strict=True))
        mapping[let.binders[0]] = k
        if k in ex.free_indices(lse) or let.binders[0].extent != k.extent:
            continue
        if substitute(let.body, mapping) is not add(u, atom(lse)):
            continue
        if let.condition is None:
            return []
        condition = substitute(let.condition, mapping)
        return [ex.Iverson(condition)] if has_a_member(lets.bounds, condition, k) else None
    return None


# -------------------------------------------------------------------- Sum_k v[k] = constant


def _lone_sums(t: Term, find: Find) -> Iterator[tuple[Poly, str, tuple[int, ...]]]:
    """(cofactors, name, axes) for each name that is summed over whole axes without other uses.

    All such axes together come first, then each by itself. An index of another extent covers only a
    part of an axis.
    """
    for f in t.factors:
        let = find(f.tensor) if isinstance(f, ex.Access) else None
        if let is None or not isinstance(f, ex.Access):
            continue
        alone = [k for k in t.binders if _uses(t, k) == [f]]
        places = {
            k: [n for n, p in enumerate(f.positions) if k in ex.free_indices(p)] for k in alone
        }
        plain = [
            k
            for k in alone
            if len(places[k]) == 1
            and f.positions[places[k][0]] is k
            and let.formals[places[k][0]].extent == k.extent
        ]
        sets = [plain, *([k] for k in plain)] if len(plain) > 1 else [plain]
        for summed in sets:
            if summed:
                binders = [i for i in t.binders if i not in summed]
                rest = [x for x in t.factors if x is not f]
                axes = tuple(places[k][0] for k in summed)
                yield poly([make_term(t.coef, binders, rest)]), f.tensor, axes


def _constant_sum(
    lets: Lets, adjoints: Mapping[str, Let], rules: Sequence[Rule], let: Let, axes: Sequence[int]
) -> _Total | None:
    """The sum over some axes of a let, if the definitions make it a number (possibly of sizes).

    Names are expanded one at a time, the last computed one first, so that common subexpressions
    cancel before they are expanded. Sums that the spec names fold to their names, unless these have
    been expanded.
    """
    summed = [let.formals[n] for n in axes]
    letters = ",".join(("*" if k.group else "") + lets.display_name(k.name) for k in summed)
    subject = (f"Σ[{letters}] {lets.display_name(let.name)}", let.formals)
    total = sum_over(let.body, summed)
    whole = to_tree(sum_over(atom(let.access), summed))
    if formula_size(total) > _LARGEST:
        return None
    log: Log = [Step(*_opening(lets, let.name), whole, total, subject)]
    order = {name: n for n, name in enumerate((*lets.by_name, *adjoints))}
    opened = {let.name}
    for _ in range(_MOST_ROUNDS):
        total = simplify(total, rules, log)
        total = _with_totals_named(lets, total, opened, log)
        if not ex.tensors(total):
            if ex.free_indices(total):
                return None
            steps = dict.fromkeys(s if s.subject[0] else replace(s, subject=subject) for s in log)
            return _Total(total, tuple(steps)[-_MOST_SHOWN:])
        latest = max(_names(lets, adjoints, total), key=order.__getitem__, default=None)
        if latest is None or latest in opened:
            return None
        opened.add(latest)
        before, total = total, inline(total, adjoints.get(latest) or lets[latest])
        log.append(Step(*_opening(lets, latest), before, total))
        if formula_size(total) > _LARGEST:
            return None
    return None


def _opening(lets: Lets, name: str) -> tuple[str, str]:
    display_names = lets.display_name(name)
    return f"substitute {display_names}", f"{display_names} by its definition"


def _names(lets: Lets, adjoints: Mapping[str, Let], p: Poly) -> Iterator[str]:
    """The names with a plain definition that occur as factors."""
    for t in p.terms:
        for f in t.factors:
            base, _ = base_and_power(f)
            if isinstance(base, ex.Access):
                let = adjoints.get(base.tensor) or lets.get(base.tensor)
                if let is not None and let.kind == "sum":
                    yield base.tensor


def _with_totals_named(lets: Lets, p: Poly, opened: set[str], log: Log) -> Poly:
    parts = [_named_total(lets, t, opened) for t in p.terms]
    if not any(parts):
        return p
    kept = (poly([t]) if new is None else new for t, new in zip(p.terms, parts, strict=True))
    result = add(poly(()), *kept)
    log.append(Step("fold total", _NAMED, p, result))
    return result


# -------------------------------------------------------------------- Sum_k a[k]*b[k] = v


def _named_total(lets: Lets, t: Term, opened: Sequence[str] | set[str]) -> Poly | None:
    """t with a named sum of products, or one up to a divisor, replaced by the name."""
    sums = list(sums_apart(t))
    # Also try single binders: Sum_d of a Sum_de, which is the name for every e.
    single = [
        ((k,), tuple(f for f in t.factors if k in ex.free_indices(f)))
        for binders, _ in sums
        for k in (binders if len(binders) > 1 else ())
    ]
    for binders, factors in (*sums, *single):
        rest = [f for f in t.factors if f not in factors]
        found = _defining_name(lets, binders, factors, rest, opened)
        if found is not None:
            coef, name, rest = found
            outer = [i for i in t.binders if i not in binders]
            return poly([make_term(t.coef / coef, outer, [*rest, name])])
    return None


def _defining_name(
    lets: Lets,
    binders: tuple[ex.Index, ...],
    factors: tuple[ex.Expr, ...],
    beside: Sequence[ex.Expr],
    opened: Sequence[str] | set[str] = (),
) -> tuple[Fraction, ex.Access, list[ex.Expr]] | None:
    """(coefficient, name, remaining cofactors) of a definition that this sum is an instance of."""
    for let in lets.totals(tensors_of(factors)):
        (definition,) = let.body.terms
        for binding, rest in sum_instances(definition, let.formals, binders, factors, beside):
            name = None if let.name in opened else lets.instance(let, binding)
            if name is not None:
                return definition.coef, name, rest
    return None


def sum_instances(
    definition: Term,
    formals: Sequence[ex.Index],
    binders: tuple[ex.Index, ...],
    factors: tuple[ex.Expr, ...],
    beside: Sequence[ex.Expr],
) -> Iterator[tuple[Binding, list[ex.Expr]]]:
    """(values of the formals, cofactors left) for each way in which the definition gives a sum."""
    bound = frozenset(definition.binders)
    inside = tuple(f for f in definition.factors if ex.free_indices(f) & bound)
    pattern = Term(Fraction(1), definition.binders, inside)
    for binding in match(pattern, make_term(Fraction(1), binders, factors), frozenset(formals), {}):
        outside = (substitute(f, binding) for f in definition.factors if f not in inside)
        rest = divided(beside, [*outside])
        if rest is not None and binding.keys() >= {*formals}:
            yield binding, rest


def divided(factors: Sequence[ex.Expr], by: Sequence[ex.Expr]) -> list[ex.Expr] | None:
    """The factors divided by these powers; None unless each occurs with at least that power."""
    powers = dict(map(base_and_power, factors))
    for base, n in map(base_and_power, by):
        have = powers.get(base, Fraction(0))
        if n * have <= 0 or abs(have) < abs(n):
            return None
        powers[base] = have - n
    return [raised(a, n) for a, n in powers.items() if n]


def _through_adjoint(lets: Lets, adjoints: Mapping[str, Let], t: Term) -> Poly | None:
    """Sum_k a[k]*(Sum_e G[e]*b[k,e]) = Sum_e G[e]*v[e], where v[e] = Sum_k a[k]*b[k,e] is a name.

    The adjoint of a contraction times one of its operands is the cotangent times its result.
    """
    for f in t.factors:
        let = adjoints.get(f.tensor) if isinstance(f, ex.Access) else None
        if let is None or len(let.body.terms) != 1 or not let.body.terms[0].binders:
            continue
        whole = inline(poly([t]), let)
        if len(whole.terms) != 1:
            continue
        (opened,) = whole.terms
        for k in opened.binders:
            factors = tuple(x for x in opened.factors if k in ex.free_indices(x))
            beside = [x for x in opened.factors if x not in factors]
            found = _defining_name(lets, (k,), factors, beside) if len(factors) > 1 else None
            if found is None:
                continue
            coef, name, rest = found
            outer = [i for i in opened.binders if i is not k]
            if len(rest) < len(t.factors) and len(outer) <= len(t.binders):
                return poly([make_term(opened.coef / coef, outer, [*rest, name])])
    return None
