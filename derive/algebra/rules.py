"""Rewrite rules on one term, or on a sum of terms, as data.

Each rule is a function of a `Term` (or of a `Poly`) that returns its replacement, or None if it
does not apply. The identity it uses is part of the rule and is printed in derivations. The engine
that applies them (`derive.algebra.rules`) owns order, repetition and the log.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import cycle

from derive.algebra.expr import Call, Delta, Expr, Index, free_indices, sort_key
from derive.algebra.parity import in_one_direction
from derive.algebra.poly import (
    ONE,
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
    scale,
    sum_over,
)
from derive.algebra.substitution import substitute


@dataclass(frozen=True)
class Step:
    """One line of a derivation: ``subject = before = after`` by the rule.

    ``subject`` is the name and the axes of the value that both sides equal.
    """

    rule: str
    states: str
    before: Expr
    after: Expr
    subject: tuple[str, tuple[Index, ...]] = ("", ())


Examples = Sequence[tuple[str, str]]
"""Pairs (before, after) in the notation. Equal texts show where a rule does not apply."""


@dataclass(frozen=True)
class Rule:
    """A rule on one term: ``states`` is its identity, ``shrinks`` the measure that decreases.

    ``because`` returns the steps that prove the identity for a term, if it is no plain instance of
    ``states``. A test applies the rule to its ``examples``, and compares values.
    """

    name: str
    states: str
    shrinks: str
    apply: Callable[[Term], Poly | None]
    because: Callable[[Term], tuple[Step, ...]] = lambda _: ()
    examples: Examples = ()


@dataclass(frozen=True)
class SumRule:
    """A rule that needs several terms of a sum at once.

    Terms with a call of one of its ``functions`` may combine with others.
    """

    name: str
    states: str
    shrinks: str
    apply: Callable[[Poly], Poly | None]
    examples: Examples = ()
    functions: tuple[str, ...] = ()


Rules = Sequence[Rule | SumRule]


def _factors_without(t: Term, factor: Expr) -> tuple[Expr, ...]:
    return tuple(f for f in t.factors if f is not factor)


def _reflexive(t: Term) -> Poly | None:
    for f in t.factors:
        if isinstance(f, Delta) and f.axis is f.position:
            return poly([make_term(t.coef, t.binders, _factors_without(t, f))])
    return None


def contraction(t: Term, delta: Delta) -> tuple[Index, Expr] | None:
    """The summed index that the delta fixes, and its value.

    The axis side may be fixed to any position, since a position that is read is in range. The
    position side may be fixed only if it is a whole index with the range of the axis.
    """
    axis, position = delta.axis, delta.position
    if isinstance(axis, Index) and axis in t.binders and axis not in free_indices(position):
        return axis, position
    if isinstance(position, Index) and position in t.binders:
        same = not isinstance(axis, Index) or axis.extent == position.extent
        if same and position not in free_indices(axis):
            return position, axis
    return None


def contract(t: Term, delta: Delta) -> Poly | None:
    """Sum_j delta(i, j) F(j) = F(i) for this delta, in every factor at once."""
    fixed = contraction(t, delta)
    if fixed is None:
        return None
    index, value = fixed
    binders = tuple(i for i in t.binders if i is not index)
    factors = [substitute(f, {index: value}) for f in _factors_without(t, delta)]
    return poly([make_term(t.coef, binders, factors)])


def _contract_first(t: Term, axis: Expr | None = None) -> Poly | None:
    """Contract the first delta that can be contracted, of this axis or position if it is given."""
    deltas = (f for f in t.factors if isinstance(f, Delta))
    found = (contract(t, f) for f in deltas if axis is None or axis in (f.axis, f.position))
    return next((new for new in found if new is not None), None)


CONTRACT = Rule(
    "contract delta", "Σⱼ δ(i, j)·f(j) = f(i)", "the number of summed indices", _contract_first
)

DELTA_RULES: tuple[Rule, ...] = (
    Rule("equal positions", "δ(i, i) = 1", "the number of deltas", _reflexive),
    CONTRACT,
)


def _of_pairs(
    function: str,
    sign: int,
    partner: Callable[[Poly], Sequence[Expr]],
    joined: Callable[[Poly], Poly],
) -> Callable[[Poly], Poly | None]:
    """a*f(u) + sign*a*partner(u) = a*joined(u) for one pair of terms."""

    def apply(p: Poly) -> Poly | None:
        for t in p.terms:
            for f in t.factors:
                if not isinstance(f, Call) or f.function != function:
                    continue
                (u,) = f.args
                assert isinstance(u, Poly)
                rest = _factors_without(t, f)
                other = make_term(sign * t.coef, t.binders, (*rest, *partner(u)))
                if other is not t and other in p.terms:
                    left = poly(x for x in p.terms if x is not t and x is not other)
                    beside = poly([make_term(t.coef, (), rest)])
                    return add(left, sum_over(mul(beside, joined(u)), t.binders))
        return None

    return apply


def _mirrored(function: str) -> Callable[[Poly], Sequence[Expr]]:
    return lambda u: [Call(function, (scale(u, -1),))]


@lru_cache(maxsize=4096)
def _modulus(t: Term) -> Poly | None:
    """x*sign(x) = |x|, for any power of x of at least 1."""
    for f in t.factors:
        if not isinstance(f, Call) or f.function != "sign":
            continue
        (u,) = f.args
        assert isinstance(u, Poly)
        for g in t.factors:
            base, power = base_and_power(g)
            if base is as_atom(u) and power >= 1:
                rest = [h for h in t.factors if h is not f and h is not g]
                left = () if power == 1 else (raised(base, power - 1),)
                return poly([make_term(t.coef, t.binders, (*rest, *left, Call("abs", (u,))))])
    return None


FUNCTION_RULES: tuple[Rule | SumRule, ...] = (
    Rule(
        "modulus",
        "x·sign(x) = |x|",
        "the number of signs",
        _modulus,
        examples=(
            ("3*w[n]*x[n]*sign(x[n])", "3*w[n]*abs(x[n])"),
            ("x[n]**3*sign(x[n])", "x[n]**2*abs(x[n])"),
            ("w[n]*sign(x[n])", "w[n]*sign(x[n])"),
        ),
    ),
    SumRule(
        "complements",
        "sigmoid(f) + sigmoid(−f) = 1",
        "the number of terms",
        _of_pairs("sigmoid", 1, _mirrored("sigmoid"), lambda u: ONE),
        examples=(
            ("w[n]*sigmoid(x[n]) + w[n]*sigmoid(-x[n])", "w[n]"),
            ("w[n]*sigmoid(x[n]) + sigmoid(-x[n])", "w[n]*sigmoid(x[n]) + sigmoid(-x[n])"),
        ),
        functions=("sigmoid",),
    ),
    SumRule(
        "exponential",
        "expm1(f) + 1 = exp(f)",
        "the number of terms",
        _of_pairs("expm1", 1, lambda u: (), lambda u: atom(Call("exp", (u,)))),
        examples=(
            ("2*expm1(w[n]*x[n]) + 2", "2*exp(w[n]*x[n])"),
            ("expm1(x[n]) - 1", "expm1(x[n]) - 1"),
        ),
        functions=("expm1",),
    ),
    SumRule(
        "odds",
        "logsigmoid(f) − logsigmoid(−f) = f",
        "the number of functions",
        # At infinite f both sides are the same infinity.
        _of_pairs("logsigmoid", -1, _mirrored("logsigmoid"), lambda u: u),
        examples=(
            ("w[n]*logsigmoid(x[n]) - w[n]*logsigmoid(-x[n])", "w[n]*x[n]"),
            ("logsigmoid(x[n]) + logsigmoid(-x[n])", "logsigmoid(x[n]) + logsigmoid(-x[n])"),
        ),
        functions=("logsigmoid",),
    ),
    SumRule(
        "parity",
        "f(−u) = f(u) or −f(u)",
        "the number of different functions",
        in_one_direction,
        examples=(
            (
                "w[n]*cos(x[n] - w[n]) + cos(w[n] - x[n])",
                "w[n]*cos(x[n] - w[n]) + cos(x[n] - w[n])",
            ),
            (
                "tanh(x[n] - w[n]) - w[n]*tanh(w[n] - x[n])",
                "tanh(x[n] - w[n]) + w[n]*tanh(x[n] - w[n])",
            ),
            ("exp(x[n] - w[n]) + 2*exp(w[n] - x[n])", "exp(x[n] - w[n]) + 2*exp(w[n] - x[n])"),
        ),
    ),
)

PAIRED = frozenset(
    name for rule in FUNCTION_RULES if isinstance(rule, SumRule) for name in rule.functions
)
"""The functions by which terms of a sum may combine."""


# ----------------------------------------------------------------------------------------- simplify
# The one simplifier: rules applied to a fixed point, each pass logged.

Log = list[Step]


def eliminate_deltas(p: Poly, rules: Rules, log: Log) -> Poly:
    """Sum_j delta(i, j) F(j) = F(i) until no delta fixes a summed index, one axis at a time."""
    others = [r for r in rules if r is not CONTRACT]
    while True:
        p = simplify(p, others, log)
        axis = _next_axis(p)
        if axis is None:
            return p
        parts = (_contract_first(t, axis) or poly([t]) for t in p.terms)
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
    """p with every rule applied, in turn, until none of them applies."""
    left = len(rules)
    for rule in cycle(rules):
        found = rule.apply(p) if isinstance(rule, SumRule) else _in_terms(rule, p, log)
        left -= 1
        if found is not None:
            p, left = _logged(rule, p, found, log), len(rules)
        if not left:
            break
    return p


def _in_terms(rule: Rule, p: Poly, log: Log) -> Poly | None:
    """p with a rule applied to each of its terms; None if it applies to none."""
    found = [(t, rule.apply(t)) for t in p.terms]
    if all(new is None for _, new in found):
        return None
    log.extend(why for t, new in found if new is not None for why in rule.because(t))
    return poly(x for t, new in found for x in ((t,) if new is None else new.terms))


def _logged(rule: Rule | SumRule, before: Poly, after: Poly, log: Log) -> Poly:
    assert free_indices(after) <= free_indices(before), (rule.name, before, after)
    log.append(Step(rule.name, rule.states, before, after))
    return after
