"""The one simplifier: rules applied to a fixed point, each pass logged."""

from __future__ import annotations

from derive.algebra.expr import Delta, Expr, free_indices, sort_key
from derive.algebra.poly import ZERO, Poly, add, poly
from derive.algebra.rules import CONTRACT, Rule, Rules, Step, SumRule, contract, contraction

Log = list[Step]


def eliminate_deltas(p: Poly, rules: Rules, log: Log) -> Poly:
    """Sum_j delta(i, j) F(j) = F(i) until no delta fixes a summed index, one axis at a time."""
    others = [r for r in rules if r is not CONTRACT]
    while True:
        p = simplify(p, others, log)
        axis = _next_axis(p)
        if axis is None:
            return p
        parts = []
        for t in p.terms:
            new = None
            for f in t.factors:
                if new is None and isinstance(f, Delta) and axis in (f.axis, f.position):
                    new = contract(t, f)
            parts.append(poly([t]) if new is None else new)
        p = _logged(CONTRACT, p, add(ZERO, *parts), log)


def _next_axis(p: Poly) -> Expr | None:
    """The value of the next summed index to contract: free indices first, in sort order."""
    found: list[tuple[bool, object, Expr]] = []
    for t in p.terms:
        for f in t.factors:
            if isinstance(f, Delta):
                fixed = contraction(t, f)
                if fixed is not None:
                    value = fixed[1]
                    bound = bool(free_indices(value) & frozenset(t.binders))
                    found.append((bound, sort_key(value), value))
    return min(found, key=lambda entry: entry[:2])[2] if found else None


def simplify(p: Poly, rules: Rules, log: Log) -> Poly:
    """p with every rule applied until none applies."""
    progress = True
    while progress:
        progress = False
        for rule in rules:
            if isinstance(rule, SumRule):
                whole = rule.apply(p)
                if whole is not None:
                    progress = True
                    p = _logged(rule, p, whole, log)
                continue
            found = [rule.apply(t) for t in p.terms]
            if any(new is not None for new in found):
                progress = True
                pairs = list(zip(p.terms, found, strict=True))
                log.extend(why for t, new in pairs if new is not None for why in rule.because(t))
                terms = [x for t, new in pairs for x in ((t,) if new is None else new.terms)]
                p = _logged(rule, p, poly(terms), log)
    return p


def _logged(rule: Rule | SumRule, before: Poly, after: Poly, log: Log) -> Poly:
    assert free_indices(after) <= free_indices(before), (rule.name, before, after)
    log.append(Step(rule.name, rule.states, before, after))
    return after
