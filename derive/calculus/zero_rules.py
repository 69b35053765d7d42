"""Drop a bracket beside a factor that is 0 wherever the bracket is.

    p*[p != 0]*x = p*x
    relu(u)*[u > 0]*x = relu(u)*x

p is a number and u is arbitrary (both brackets hold for a nan). x must be finite: inputs and
cotangents are. A value that an equation computes may be infinite, and the bracket may guard it.
"""

from __future__ import annotations

from derive.algebra.expr import Access, Call, Expr, Iverson, Not, Num, Param, Pow, Rel, num, walk
from derive.algebra.poly import ZERO, Poly, Term, as_atom, base_and_power, make_term, poly
from derive.algebra.rules import Rule
from derive.calculus.lets import Lets
from derive.calculus.value_analysis import ValueFacts


def zero_rule(lets: Lets) -> Rule:
    """The rule for terms that read none of these equations."""

    values = ValueFacts(lets.get)

    def apply(t: Term) -> Poly | None:
        if any(isinstance(e, Access) and lets.get(e.tensor) for e in walk(t)):
            return None
        gone = [f for f in t.factors if _is_needless(f, t)]
        rest = [f for f in t.factors if f not in gone]
        if not gone or not all(values.facts(f).defined for f in rest):
            return None
        return poly([make_term(t.coef, t.binders, rest)])

    return Rule("zero", "p·[p ≠ 0] = p, relu(u)·[u > 0] = relu(u)", "the number of factors", apply)


def _is_needless(f: Expr, t: Term) -> bool:
    """True if f is a bracket that excludes only zeros of another factor."""
    condition = f.condition if isinstance(f, Iverson) else None
    if isinstance(condition, Not) and isinstance(condition.arg, Rel):
        c = condition.arg
        of = _rectified(c.left) or c.left
        rectified = (_rectified(base) for base, n in map(base_and_power, t.factors) if n > 0)
        return c.op == "<=" and c.right is ZERO and of in rectified
    if not isinstance(condition, Rel) or condition.op != "!=":
        return False
    sides = tuple(e if not isinstance(e, Poly) else as_atom(e) for e in condition.parts())
    return any(
        isinstance(p, Param) and zero is num(0) and any(_is_zero_with(g, p) for g in t.factors)
        for p, zero in (sides, sides[::-1])
    )


def _rectified(e: Expr) -> Expr | None:
    """u if e is relu(u)."""
    e = as_atom(e) if isinstance(e, Poly) else e
    return e.args[0] if isinstance(e, Call) and e.function == "relu" else None


def _is_zero_with(g: Expr, p: Param) -> bool:
    """True if g is a power of p that is 0 where p is."""
    match g:
        case Pow(base, Num(exponent)):
            return base is p and exponent > 0
    return g is p
