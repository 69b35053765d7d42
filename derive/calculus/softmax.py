"""Recognize normalized exponentials by their structure, and differences from their means.

    exp(f(k) - logsumexp_k f)  =  softmax_k f
    f(k) - logsumexp_k f       =  log_softmax_k f

exp of a name that is a log_softmax is a softmax too, unless the name has been computed already.

In P*(Y - Sum_k P*Y), for a share P = exp(f - logsumexp_k f), the difference is exactly 0 if all of
P is at one position, as Y there and the mean are equal. That needs the mean to be taken of the same
numbers. Computed otherwise, as Sum_e G[e]*o[e] for Y[k] = Sum_e G[e]*v[k,e], it differs by a
rounding error. The gradient of a saturated softmax is much smaller than that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product

from derive.algebra.expr import (
    Access,
    Add,
    Call,
    Expr,
    Index,
    Iverson,
    Mul,
    Num,
    PositionedExpr,
    Reduce,
    Rel,
    Where,
    accesses,
    free_indices,
    node,
    sort_key,
)
from derive.algebra.factor import factor
from derive.algebra.inequalities import Bounds
from derive.algebra.logic import conditions_of, negate
from derive.algebra.match import match
from derive.algebra.poly import Poly, Term, add, as_atom, atom, make_term, poly
from derive.algebra.substitution import fresh, substitute
from derive.calculus.lets import Find, Let, Lets
from derive.notation.smart_constructors import total


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
        whole = self.of(let.body_at(e.positions), held)
        assert isinstance(whole, Poly)
        return as_atom(whole)

    def _term(self, t: Term, held: frozenset[Expr]) -> Term:
        brackets = (f for f in t.factors if isinstance(f, Iverson))
        held = held.union(*(_holding(f.condition) for f in brackets))
        return make_term(t.coef, t.binders, [self.of(f, held) for f in t.factors])


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
            others = sorted(held, key=sort_key)
            needed = _holding(substitute(condition, {own: k})) - held
            if not all(Bounds().follows(c, others) for c in needed):
                continue
        rest = poly(x for x in p.terms if x is not t and x not in body.terms)
        return add(rest, atom(NormalizedExp("log_softmax", own, inside, k, condition, level)))
    return p


def log_shares(e: Expr) -> Iterator[tuple[Expr, Reduce]]:
    """(f, logsumexp_k' f') where e, not flat, may be f - logsumexp_k' f'."""
    for n, a in enumerate(e.args if isinstance(e, Add) else ()):
        match a:
            case Mul((Num(-1), Reduce("logsumexp") as level)):
                assert isinstance(e, Add)
                yield total(e.args[:n] + e.args[n + 1 :]), level


def binder_renaming(f: Expr, bound: Sequence[Index], body: Expr) -> dict[Index, Expr] | None:
    """{k: k'} if body is f with k renamed to k'."""
    alike = ([k for k in free_indices(f) if k.extent == i.extent] for i in bound)
    for free in product(*alike):
        along: dict[Index, Expr] = dict(zip(free, bound, strict=True))
        if substitute(f, along) is body:
            return along
    return None


def log_normalizer(e: Expr) -> Reduce | None:
    """The logsumexp_k' f' of e = f - logsumexp_k' f', which is then finite and at most 0."""
    for f, level in log_shares(e):
        if level.condition is None and binder_renaming(f, level.indices, level.body) is not None:
            return level
    return None


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
        (i for i in free_indices(p) - free_indices(t) if i.extent == k.extent), key=lambda i: i.name
    )
    for i in free:
        body = substitute(let.body, _mapping(let, t, i))
        if i in free_indices(body):
            yield let, i, body


def sums_apart(t: Term) -> Iterator[tuple[tuple[Index, ...], tuple[Expr, ...]]]:
    """The independent sums in t: bound indices and the factors that have them."""
    pending = list(t.binders)
    while pending:
        bound = {pending.pop(0)}
        while True:
            factors = [f for f in t.factors if free_indices(f) & bound]
            reached = {i for f in factors for i in free_indices(f) if i in t.binders}
            if reached <= bound:
                break
            bound |= reached
        pending = [i for i in pending if i not in bound]
        yield tuple(i for i in t.binders if i in bound), tuple(factors)


def _is_softmax_share(lets: Lets, f: Expr, k: Index) -> bool:
    """True if f is exp(f(k) - logsumexp_k f), or a name for it under brackets."""
    if isinstance(f, Access):
        let = lets.get(f.tensor)
        if let is None or let.kind != "sum" or k not in f.positions or len(let.body.terms) != 1:
            return False
        (t,) = let.body.terms
        formal = let.formals[f.positions.index(k)]
        return not t.binders and any(_is_softmax_share(lets, inner, formal) for inner in t.factors)
    if not isinstance(f, Call) or f.function != "exp" or k not in free_indices(f):
        return False
    (u,) = f.args
    assert isinstance(u, Poly)
    for t in u.terms:
        name = t.factors[0] if t.coef == -1 and len(t.factors) == 1 else None
        if isinstance(name, Access) and k not in free_indices(name):
            let = lets.get(name.tensor)
            if let is not None and let.kind == "logsumexp":
                return any(i.extent == k.extent for i in let.binders)
    return False


_Sum = tuple[tuple[Index, ...], tuple[Expr, ...]]
"""Bound indices, and the factors that have them, or the value itself without bound indices."""


def _means(lets: Lets, t: Term) -> Iterator[tuple[Index, _Sum]]:
    """(k, Y) for each sum over k of a share and Y in t."""
    for binders, factors in sums_apart(t):
        for k in binders:
            shares = [f for f in factors if _is_softmax_share(lets, f, k)]
            inner = tuple(i for i in binders if i is not k)
            # The binders of Y must not occur in the share.
            if not shares or any(free_indices(f) & frozenset(inner) for f in shares):
                continue
            rest = tuple(
                f
                for f in factors
                if f not in shares
                and not (isinstance(f, Iverson) and not free_indices(f) & frozenset(inner))
            )
            if rest and all(any(i in free_indices(f) for f in rest) for i in inner):
                yield k, (inner, rest)


def _values(t: Term, like: _Sum) -> Iterator[_Sum]:
    """Candidates for Y in t: its sums, or its factors if Y is no sum."""
    if like[0]:
        yield from sums_apart(t)
    elif len(like[1]) == 1:
        bound = frozenset(t.binders)
        yield from (((), (f,)) for f in t.factors if not free_indices(f) & bound)


def _compared_values(p: Poly, t: Term, k: Index, value: _Sum) -> Iterator[tuple[Term, Index, _Sum]]:
    """(another term, the position, Y there) for each term that reads Y outside of the mean.

    The position must not occur in Y: Sum_e G[k,e]*y[i,e] at k = i is no Sum_e G[k,e]*y[k,e].
    """
    binders, factors = value
    pattern = Term(Fraction(1), binders, factors)
    own = free_indices(pattern)
    for u in (u for u in p.terms if u is not t):
        for there in _values(u, value):
            target = make_term(Fraction(1), *there)
            for binding in match(pattern, target, frozenset((k,)), {}):
                at = binding.get(k)
                if isinstance(at, Index) and at not in u.binders and at not in own:
                    yield u, at, there


def is_compared(lets: Lets, p: Poly, t: Term) -> bool:
    """True if the term has the mean of a value that another term of p reads."""
    return any(True for k, value in _means(lets, t) for _ in _compared_values(p, t, k, value))
