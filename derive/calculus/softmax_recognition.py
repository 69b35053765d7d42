"""Recognize normalized exponentials by their structure in the flat form.

exp(f(k) - logsumexp_k f)  =  softmax_k f
f(k) - logsumexp_k f       =  log_softmax_k f

exp of a name that is a log_softmax is a softmax too, unless the name has been computed already.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from derive.algebra.expr import (
    Access,
    Call,
    Expr,
    Index,
    Iverson,
    PositionedExpr,
    Rel,
    Where,
    accesses,
    free_indices,
)
from derive.algebra.factor import factor
from derive.algebra.hashcons import node
from derive.algebra.logic import conditions_of, negate
from derive.algebra.poly import Poly, Term, add, as_atom, atom, make_term, poly
from derive.algebra.substitution import fresh, substitute
from derive.calculus.lets import Find, Let


@node
class NormalizedExp(PositionedExpr):
    """softmax or log_softmax of body over the bound index, read at a position.

    Where the condition fails the value is undefined, and every read there is masked.
    """

    kind: str
    index: Index
    body: Expr
    position: Expr
    condition: Expr | None = None
    level: Access | None = None
    """The name of the logsumexp under the condition."""

    def bound(self) -> tuple[Index, ...]:
        return (self.index,)


def recognise(e: Expr, find: Find, absent: Find) -> Expr:
    """e with normalized exponentials as `NormalizedExp` nodes, innermost first.

    ``find`` returns any definition, ``absent`` that of a name that has not been computed.
    """
    return _Recognition(find, absent, {}).of(e, frozenset())


def recognise_under(e: Expr, find: Find, held: Iterable[Expr]) -> Expr:
    """`recognise` for an expression that is evaluated under these conditions."""
    conditions = frozenset[Expr]().union(*map(_holding, held))
    return _Recognition(find, lambda name: None, {}).of(e, conditions)


@dataclass(frozen=True)
class _Recognition:
    """The rewritten expressions, memoized with the conditions that hold around them.

    A read where one of these conditions fails is masked.
    """

    find: Find
    absent: Find
    known: dict[tuple[Expr, frozenset[Expr]], Expr]

    def of(self, e: Expr, held: frozenset[Expr]) -> Expr:
        """e with normalized exponentials as `NormalizedExp` nodes."""
        found = self.known.get((e, held))
        if found is None:
            found = self.known[e, held] = self._of(e, held)
        return found

    def _of(self, e: Expr, held: frozenset[Expr]) -> Expr:
        if isinstance(e, Poly):
            terms = add(poly(()), *(poly([self._term(t, held)]) for t in e.terms))
            return _log_softmax(terms, self.find, held)
        if isinstance(e, Where):
            inside = [held | _holding(c) for c in (e.condition, negate(e.condition))]
            branches = zip((e.then, e.other), inside, strict=True)
            return Where(e.condition, *(self.of(b, own) for b, own in branches))
        new: Expr = e.map(lambda part: self.of(part, held))
        if isinstance(new, Call) and new.function == "exp":
            (u,) = new.args
            if isinstance(u, Poly) and len(u.terms) == 1:
                (t,) = u.terms
                if t.coef == 1 and not t.binders and len(t.factors) == 1:
                    inner = self._opened(t.factors[0], held)
                    if isinstance(inner, NormalizedExp) and inner.kind == "log_softmax":
                        return replace(inner, kind="softmax")
        return new

    def _opened(self, e: Expr, held: frozenset[Expr]) -> Expr:
        """The definition of a name that has not been computed; anything else unchanged."""
        let = self.absent(e.tensor) if isinstance(e, Access) else None
        if let is None or let.kind != "sum" or let.dtype != "float":
            return e
        assert isinstance(e, Access)
        return as_atom(_assert_poly(self.of(let.body_at(e.positions), held)))

    def _term(self, t: Term, held: frozenset[Expr]) -> Term:
        for f in t.factors:
            if isinstance(f, Iverson):
                held |= _holding(f.condition)
        return make_term(t.coef, t.binders, [self.of(f, held) for f in t.factors])


def _assert_poly(e: Expr) -> Poly:
    assert isinstance(e, Poly)
    return e


def _holding(condition: Expr) -> frozenset[Expr]:
    """The conditions that this one implies, in nested form."""
    return frozenset(factor(c) for c in conditions_of(condition))


def _log_softmax(p: Poly, find: Find, held: frozenset[Expr]) -> Poly:
    for t, let, k, body in _logarithms(p, find):
        own = fresh(k, free_indices(p))
        inside = substitute(body, {k: own})
        condition: Expr | None = None
        level: Access | None = None
        if let.condition is not None:
            if any(_is_segment(c, let) for c in conditions_of(let.condition)):
                # Each position belongs to one segment, so no row over all positions is formed.
                continue
            condition = substitute(let.condition, _mapping(let, t, own))
            assert isinstance(t.factors[0], Access)
            level = t.factors[0]
            if not _holding(substitute(condition, {own: k})) <= held:
                continue
        rest = poly(x for x in p.terms if x is not t and x not in body.terms)
        return add(rest, atom(NormalizedExp("log_softmax", own, inside, k, condition, level)))
    return p


def split_log_shares(p: Poly, find: Find) -> tuple[Poly, Poly]:
    """Split a sum into its log-shares f(k) - logsumexp_k f and the remainder."""
    own = {x for t, _, _, body in _logarithms(p, find) for x in (t, *body.terms)}
    return poly(t for t in p.terms if t in own), poly(t for t in p.terms if t not in own)


def _logarithms(p: Poly, find: Find) -> Iterator[tuple[Term, Let, Index, Poly]]:
    """(-lse, its definition, k, f(k)) of each log-share in the sum."""
    for t in p.terms:
        for let, k, body in _candidates(p, t, find):
            if all(other in p.terms for other in body.terms):
                yield t, let, k, body


def _is_segment(condition: Expr, let: Let) -> bool:
    """True if the condition equates a formal with a tensor's value at the binders: a segment id."""
    if not isinstance(condition, Rel) or condition.op != "==":
        return False
    sides = factor(condition.left), factor(condition.right)
    return any(
        index in let.formals and set(let.binders) <= free_indices(place) and any(accesses(place))
        for index, place in (sides, sides[::-1])
    )


def _mapping(let: Let, t: Term, k: Index) -> dict[Index, Expr]:
    access = t.factors[0]
    assert isinstance(access, Access)
    return {**dict(zip(let.formals, access.positions, strict=True)), let.binders[0]: k}


def _candidates(p: Poly, t: Term, find: Find) -> Iterator[tuple[Let, Index, Poly]]:
    """(the logsumexp, the index it may run over, its body at that index) for a term -lse[..]."""
    if t.coef != -1 or t.binders or len(t.factors) != 1 or not isinstance(t.factors[0], Access):
        return
    let = find(t.factors[0].tensor)
    if let is None or let.kind != "logsumexp" or len(let.binders) != 1:
        return
    k = let.binders[0]
    free = sorted(
        (i for i in free_indices(p) - free_indices(t) if i.extent == k.extent),
        key=lambda i: i.name,
    )
    for i in free:
        body = substitute(let.body, _mapping(let, t, i))
        if i in free_indices(body):
            yield let, i, body
