"""Drop brackets that other parts of a term imply, and simplify those that stay.

    p*[p != 0]*x = p*x
    relu(u)*[u > 0]*x = relu(u)*x
    [s[j] = s[k] for some j] = 1
    [relu(e) > 0] = [e > 0]
    [1 + u^2 > 0] = 1, [1/u != 0] = 1

p is a number and u is arbitrary (both brackets hold for a nan). x must be finite: inputs and
cotangents are. A value that an equation computes may be infinite, and the bracket may guard it.

An existential bracket guards the infinite value of a reduction over nothing. It is a condition on
the free indices of the reduction. It holds trivially where the reduction is read at the position of
one of its own operands: that position is a witness.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import permutations, product

from derive.algebra import expr as ex
from derive.algebra.inequalities import Bounds
from derive.algebra.logic import conditions_of, conjunction, truth
from derive.algebra.poly import ZERO, Poly, Term, as_atom, base_and_power, make_term, poly
from derive.algebra.rules import Log, Rule, Step
from derive.algebra.substitution import replace, substitute
from derive.calculus.guards import lone_atom, rebuilt_term
from derive.calculus.lets import Find, Lets
from derive.calculus.value_analysis import ValueFacts


def zero_rule(lets: Lets) -> Rule:
    """The rule for terms that read none of these equations."""

    values = ValueFacts(lets.get)

    def apply(t: Term) -> Poly | None:
        if any(map(lets.get, ex.tensors(t))):
            return None
        gone = [f for f in t.factors if _is_needless(f, t)]
        rest = [f for f in t.factors if f not in gone]
        if not gone or not all(values.facts(f).defined for f in rest):
            return None
        return poly([make_term(t.coef, t.binders, rest)])

    return Rule("zero", "p·[p ≠ 0] = p, relu(u)·[u > 0] = relu(u)", "the number of factors", apply)


def sign_rule(lets: Lets) -> Rule:
    """The rule for brackets that the ranges of functions decide: 1 + x**2 > 0."""

    values = ValueFacts(lets.get)

    def apply(t: Term) -> Poly | None:
        brackets = [f for f in t.factors if isinstance(f, ex.Iverson)]
        decided = [truth(f.condition, lambda c: _by_range(values, c)) for f in brackets]
        if False in decided:
            return ZERO
        gone = [f for f, holds in zip(brackets, decided, strict=True) if holds]
        rest = [f for f in t.factors if f not in gone]
        return poly([make_term(t.coef, t.binders, rest)]) if gone else None

    return Rule("sign", "[1 + u² > 0] = 1, [1/u ≠ 0] = 1", "the number of factors", apply)


def _by_range(values: ValueFacts, c: ex.Expr) -> bool | None:
    """Whether a comparison of finite tensors holds, by the ranges of its sides.

    A bound that a function only approaches is reached where it is rounded, so it decides nothing.
    """
    if not isinstance(c, ex.Rel) or not any(ex.accesses(c)):
        return None
    left, right = values.facts(c.left), values.facts(c.right)
    below, above = left.high < right.low, right.high < left.low
    if c.op in ("==", "!="):
        reciprocal = any(z is ZERO and _is_reciprocal(e) for e, z in permutations(c.parts()))
        return c.op == "!=" if below or above or reciprocal else None
    if c.op not in ("<", "<=") or not (left.defined and right.defined):
        return None
    if below or (c.op == "<=" and left.high == right.low):
        return True
    return False if above or (c.op == "<" and left.low == right.high) else None


def _is_reciprocal(e: ex.Expr) -> bool:
    """True if e is c/u**n with a number c that is not 0: of a finite u, that is not 0 either."""
    if not isinstance(e, Poly) or len(e.terms) != 1 or e.terms[0].binders:
        return False
    return all(isinstance(f, ex.Pow) and base_and_power(f)[1] < 0 for f in e.terms[0].factors)


def _is_needless(f: ex.Expr, t: Term) -> bool:
    """True if f is a bracket that excludes only zeros of another factor."""
    condition = f.condition if isinstance(f, ex.Iverson) else None
    if isinstance(condition, ex.Not) and isinstance(condition.arg, ex.Rel):
        c = condition.arg
        of = _rectified(c.left) or c.left
        rectified = (_rectified(base) for base, n in map(base_and_power, t.factors) if n > 0)
        return c.op == "<=" and c.right is ZERO and of in rectified
    if not isinstance(condition, ex.Rel) or condition.op != "!=":
        return False
    sides = tuple(map(lone_atom, condition.parts()))
    return any(
        isinstance(p, ex.Param)
        and zero is ex.num(0)
        and any(_is_zero_with(g, p) for g in t.factors)
        for p, zero in (sides, sides[::-1])
    )


def _rectified(e: ex.Expr) -> ex.Expr | None:
    """u if e is relu(u)."""
    e = lone_atom(e)
    return e.args[0] if isinstance(e, ex.Call) and e.function == "relu" else None


def _is_zero_with(g: ex.Expr, p: ex.Param) -> bool:
    """True if g is a power of p that is 0 where p is."""
    match g:
        case ex.Pow(base, ex.Num(exponent)):
            return base is p and exponent > 0
    return g is p


_MOST = 200
"""At most this many candidate witnesses are tried."""

_NOWHERE: Mapping[ex.Index, ex.Expr] = {}


def witness_rule(lets: Lets) -> Rule:
    """The rule for existential brackets over these definitions."""

    def witnessed(t: Term) -> Poly | None:
        here = {*ex.free_indices(t), *t.binders}
        for n, m in enumerate(t.factors):
            if isinstance(m, ex.Iverson) and is_witnessed(lets.get, lets.bounds, m.condition, here):
                return rebuilt_term(t, t.binders, [*t.factors[:n], *t.factors[n + 1 :]])
            bare = without_witnessed(lets.get, lets.bounds, m, here)
            if bare is not m:
                return rebuilt_term(t, t.binders, [*t.factors[:n], bare, *t.factors[n + 1 :]])
        return None

    return Rule("witness", "[s(j) = s(k) for some j] = 1", "the number of conditions", witnessed)


def without_witnessed(
    find: Find,
    bounds: Bounds,
    e: ex.Expr,
    here: Iterable[ex.Index],
    at: Mapping[ex.Index, ex.Expr] = _NOWHERE,
) -> ex.Expr:
    """e without the existential conditions of guards that an index in ``here`` witnesses.

    ``at`` maps indices of e to their values.
    """

    def visit(part: ex.Expr) -> ex.Expr | None:
        if not isinstance(part, ex.Guard):
            return None
        asked = list(conditions_of(part.condition))
        left = [c for c in asked if not is_witnessed(find, bounds, substitute(c, at), here)]
        if len(left) == len(asked):
            return None
        return ex.Guard(conjunction(left), part.position, part.elsewhere) if left else part.position

    return replace(e, visit)


def is_witnessed(find: Find, bounds: Bounds, asked: ex.Expr, here: Iterable[ex.Index]) -> bool:
    """True if some index in ``here`` satisfies an existential condition."""
    let = find(asked.tensor) if isinstance(asked, ex.Access) else None
    if let is None or let.kind != "any":
        return False
    body = as_atom(let.body)
    if not isinstance(body, ex.Iverson):
        return False
    assert isinstance(asked, ex.Access)
    # A guarded position matters only where its condition holds, so compare what it guards.
    bare = [p.position if isinstance(p, ex.Guard) else p for p in asked.positions]
    there = dict(zip(let.formals, bare, strict=True))
    return any(
        all(
            _certainly_holds(bounds, substitute(c, {**there, **found}))
            for c in conditions_of(body.condition)
        )
        for found in _witness_bindings(here, let.binders)
    )


def _certainly_holds(bounds: Bounds, c: ex.Expr) -> bool:
    same = isinstance(c, ex.Rel) and c.op == "==" and c.left is c.right
    return same or bounds.holds(c) is True


def _witness_bindings(
    indices: Iterable[ex.Index], binders: tuple[ex.Index, ...]
) -> Iterator[dict[ex.Index, ex.Expr]]:
    """Substitutions of indices in scope for the binders, of equal extents."""
    here = sorted(indices, key=ex.sort_key)
    choices = [[i for i in here if (i.extent, i.group) == (b.extent, b.group)] for b in binders]
    for n, chosen in enumerate(product(*choices)):
        if n == _MOST:
            return
        yield dict(zip(binders, chosen, strict=True))


def without_rectified(p: Poly, log: Log) -> Poly:
    """p with such brackets rewritten, and a log entry if there are any."""
    whole: ex.Expr = p
    made = replace(whole, _relu_argument_sign)
    assert isinstance(made, Poly)
    if made is not p:
        log.append(Step("sign of a rectified value", "[relu(e) > 0] = [e > 0]", p, made))
    return made


def _relu_argument_sign(part: ex.Expr) -> ex.Expr | None:
    """e <= 0 for relu(e) <= 0: both are false for a nan."""
    if not isinstance(part, ex.Rel) or part.op != "<=" or part.right is not ZERO:
        return None
    inner = _rectified(part.left)
    return None if inner is None else ex.Rel("<=", inner, ZERO)
