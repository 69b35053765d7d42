"""Positions on a ring: a delta at (j + s) mod n fixes j, if i and j have n values.

    Sum_j delta(i, (s + j) mod n) f(j)  =  f((i - s) mod n)
    Sum_j delta(i, (s - j) mod n) f(j)  =  f((s - i) mod n)
    (x mod n + s) mod n                 =  (x + s) mod n
    i mod n                             =  i

x mod n is x - n*int(floor(x/n)).
"""

from __future__ import annotations

from dataclasses import dataclass

from derive.algebra.expr import Call, Delta, Expr, Index, free_indices
from derive.algebra.inequalities import Bounds
from derive.algebra.poly import Poly, Term, add, as_atom, as_poly, atom, make_term, mul, poly, scale
from derive.algebra.rules import Rule
from derive.algebra.substitution import replace, substitute


@dataclass(frozen=True)
class Remainder:
    """x mod n."""

    x: Poly
    n: Poly

    @property
    def expr(self) -> Poly:
        whole = Call("int", (atom(Call("floordiv", (self.x, self.n))),))
        return add(self.x, scale(mul(self.n, atom(whole)), -1))


def _remainder(e: Expr) -> Remainder | None:
    """Return x mod n if the position is one."""
    for t in as_poly(e).terms:
        for f in t.factors:
            inside = f.args[0] if isinstance(f, Call) and f.function == "int" else None
            quotient = None if inside is None else as_atom(as_poly(inside))
            if isinstance(quotient, Call) and quotient.function == "floordiv":
                found = Remainder(*map(as_poly, quotient.args))
                if found.expr is as_poly(e):
                    return found
    return None


def ring_rule(bounds: Bounds) -> Rule:
    """Return the rule for these sizes."""

    def is_size(n: Poly, extent: str) -> bool:
        return bounds.form(as_atom(n)) == bounds.size(extent)

    def settled(part: Expr) -> Expr | None:
        """Return a remainder without those inside of it."""
        found = _remainder(part) if isinstance(part, Poly) else None
        if found is None:
            return None
        parts: list[Expr] = [found.x, found.n]
        x, n = (as_poly(replace(p, settled)) for p in parts)
        for t in x.terms:
            # Any n*q with a whole q may go.
            calls = [f for f in t.factors if isinstance(f, Call) and f.function == "int"]
            if any(mul(n, atom(q)) in (poly([t]), scale(poly([t]), -1)) for q in calls):
                x = add(x, scale(poly([t]), -1))
        i = as_atom(x)
        return i if isinstance(i, Index) and is_size(n, i.extent) else as_atom(Remainder(x, n).expr)

    def apply(t: Term) -> Poly | None:
        for f in t.factors:
            found = _remainder(f.position) if isinstance(f, Delta) else None
            if found is None or not isinstance(f, Delta) or not isinstance(f.axis, Index):
                continue
            for j in t.binders:
                if f.axis is j or not all(is_size(found.n, i.extent) for i in (f.axis, j)):
                    continue
                for sign in (1, -1):
                    shift = add(found.x, scale(atom(j), -sign))
                    if j in free_indices(shift):
                        continue
                    x = scale(add(atom(f.axis), scale(shift, -1)), sign)
                    at = {j: as_atom(Remainder(x, found.n).expr)}
                    rest = [replace(substitute(g, at), settled) for g in t.factors if g is not f]
                    binders = [i for i in t.binders if i is not j]
                    return poly([make_term(t.coef, binders, rest)])
        return None

    return Rule("ring", "Σⱼ δ(i, (j + s) mod n)·f(j) = f((i − s) mod n)", "deltas", apply)
