"""Values that stay the same if two of their indices are exchanged: K[n,k] = K[k,n]."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import combinations

from derive.algebra.expr import Access, Delta, Expr, Index, Iverson, sort_key
from derive.algebra.parity import upright
from derive.algebra.poly import Poly, Term, make_term, poly
from derive.algebra.rules import Rule
from derive.algebra.substitution import replace, substitute
from derive.calculus.lets import Let, Lets


def symmetry_rule(lets: Lets, adjoints: Mapping[str, Let]) -> Rule:
    """The rule that reads K[n,k] and K[k,n] as one value, with free indices first.

    The gradient of a sum over pairs reads both. Two summed indices stay as they are: their names
    are chosen after their order. Comparisons stay too: two elements that are computed apart may
    differ by rounding.
    """
    known: dict[Let, tuple[tuple[int, int], ...]] = {}

    def exchangeable(let: Let) -> tuple[tuple[int, int], ...]:
        waiting = [] if let in known else [let]
        while waiting:
            # Those that it reads come first, so that no chain of equations is a chain of calls.
            one = waiting[-1]
            known.setdefault(one, ())
            names = sorted(one.reads()) if _pairs(one) else ()
            own = (lets.get(name) or adjoints.get(name) for name in names)
            if (other := next((x for x in own if x and x not in known), None)) is not None:
                waiting.append(other)
            else:
                known[waiting.pop()] = tuple(_exchangeable(one, ordered))
        return known[let]

    def ordered(e: Expr, bound: frozenset[Index] = frozenset()) -> Expr:
        def visit(part: Expr) -> Expr | None:
            if isinstance(part, Poly) and any(t.binders for t in part.terms):
                return poly([of_term(t, bound) for t in part.terms])
            if isinstance(part, Iverson | Delta):
                return part
            if not isinstance(part, Access):
                return None
            let = lets.get(part.tensor) or adjoints.get(part.tensor)
            at = list(part.positions)
            for m, n in () if let is None else exchangeable(let):
                i, k = at[m], at[n]
                if not (isinstance(i, Index) and isinstance(k, Index)) or k in bound:
                    continue
                if i in bound or sort_key(k) < sort_key(i):
                    at[m], at[n] = k, i
            return None if tuple(at) == part.positions else Access(part.tensor, tuple(at))

        return replace(e, visit)

    def of_term(t: Term, bound: frozenset[Index] = frozenset()) -> Term:
        inside = bound.union(t.binders)
        factors = [ordered(f, inside) for f in t.factors]
        alike = all(a is b for a, b in zip(factors, t.factors, strict=True))
        return t if alike else make_term(t.coef, t.binders, factors)

    def apply(t: Term) -> Poly | None:
        made = of_term(t)
        return None if made is t else poly([made])

    return Rule("symmetry", "K[k,n] = K[n,k]", "the order of indices", apply)


def _pairs(let: Let) -> list[tuple[int, int]]:
    """Return each pair of axes of the same extent."""
    if let.compared or let.dtype != "float":
        return []
    apart = {n for n, i in enumerate(let.formals) if i.group or i in let.binders}
    # The product of all but one has the position left out as formal and binder.
    of = [i.extent for i in let.formals]
    every = combinations(range(len(of)), 2)
    return [(m, n) for m, n in every if of[m] == of[n] and apart.isdisjoint((m, n))]


def _exchangeable(let: Let, ordered: Callable[[Expr], Expr]) -> Iterator[tuple[int, int]]:
    """Yield each pair of axes that can be exchanged; ``ordered`` orders the indices inside."""
    parts = [e for e in (let.body, let.condition) if e is not None]
    for m, n in _pairs(let):
        i, k = let.formals[m], let.formals[n]
        turned = (substitute(e, {i: k, k: i}) for e in parts)
        both = ((upright(ordered(e)) for e in pair) for pair in zip(turned, parts, strict=True))
        if all(a is b for a, b in both):
            yield m, n
