"""Recognize attention: equations that are means weighted by a softmax of products.

    s[b,i,j] = c*Sum_d q[b,i,d] k[b,j,d] + m[b,i,j]
    y[b,i,e] = Sum_{j, seen} exp(s[b,i,j] - lse[b,i]) v[b,j,e]
    lse[b,i] = logsumexp_{j, seen} s[b,i,j]

Scores and softmax have names or are inline. The positions of q, k and v are numbers and their other
axes; k or v may lack an index of b, as in attention with shared key heads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from derive.algebra.expr import (
    Access,
    And,
    Call,
    Expr,
    Index,
    Iverson,
    Num,
    accesses,
    free_indices,
    tensors,
)
from derive.algebra.poly import Poly, add, as_atom, atom, make_term, poly
from derive.algebra.substitution import substitute
from derive.calculus.lets import Let, Lets
from derive.kernels.instantiate import expand_names
from derive.kernels.kernel_spec import Axes

_DEEPEST = 4
"""The most rounds of expanding the names of scores."""


@dataclass(frozen=True)
class AttentionMatch:
    """An equation y that is an attention.

    ``hidden`` are the names of the scores and their softmax, ``share`` is the weight of v. The mask
    is ``seen``, a condition, or ``added``, an additive mask.
    """

    y: Let
    lse: Access
    hidden: frozenset[str]
    share: Poly
    q: Access
    k: Access
    v: Access
    factor: Expr
    seen: Expr | None
    added: Poly
    batch: Axes
    ends: Axes
    """The indices i, j, d and e."""


def match_attention(lets: Lets, y: Let) -> AttentionMatch | None:
    """The equation as an attention, or None."""
    shares = _shares(lets, y)
    scores = None if shares is None else _scores(lets, shares)
    if shares is None or scores is None:
        return None
    one, other = scores.factors
    q, k = (one, other) if shares.j in other.positions else (other, one)
    v, j, d = shares.v, shares.j, scores.d
    if not all(map(_has_plain_axes, (q, k, v))) or not set(y.formals) <= _access_axes(q, k, v):
        return None
    rows = [i for i in y.formals if i in _access_axes(q) - _access_axes(k, v)]
    means = [i for i in y.formals if i in _access_axes(v) - _access_axes(q, k)]
    if not rows or len(means) != 1:
        return None
    i, e = rows[-1], means[0]
    batch = tuple(x for x in y.formals if x not in (i, e))
    own = {*batch, i, j}
    fits = (
        _access_axes(q) <= {*batch, i, d}
        and {j, d} <= _access_axes(k) <= {*batch, j, d}
        and {j, e} <= _access_axes(v) <= {*batch, j, e}
        and not any(x.group for x in (i, j, d, e))
        and free_indices(scores.added) <= own
        and (shares.seen is None or {j} <= free_indices(shares.seen) <= own)
        and (shares.seen is None or not scores.added.terms)
    )
    if not fits:
        return None
    hidden = shares.names | scores.names
    of = q, k, v, scores.factor, shares.seen, scores.added
    return AttentionMatch(y, shares.lse, hidden, shares.share, *of, batch, (i, j, d, e))


@dataclass(frozen=True)
class _SoftmaxShares:
    """y as a mean with weights softmax(s) along j, under the condition ``seen``."""

    j: Index
    v: Access
    s: Poly
    lse: Access
    seen: Expr | None
    share: Poly
    names: frozenset[str]


def _shares(lets: Lets, y: Let) -> _SoftmaxShares | None:
    if y.kind != "sum" or y.dtype != "float" or len(y.body.terms) != 1:
        return None
    (t,) = y.body.terms
    if t.coef != 1 or len(t.binders) != 1:
        return None
    (bound,) = t.binders
    j = Index("#j", bound.extent)
    names: set[str] = set()
    factors: list[Expr] = []
    for f in (substitute(f, {bound: j}) for f in t.factors):
        inside = _exponential(lets, f)
        if inside is not None and isinstance(f, Access):
            names.add(f.tensor)
        factors += [f] if inside is None else inside
    exps = [f for f in factors if isinstance(f, Call) and f.function == "exp"]
    conditions = [f.condition for f in factors if isinstance(f, Iverson)]
    others = [f for f in factors if not isinstance(f, Call | Iverson)]
    if len(exps) != 1 or len(others) != 1 or not isinstance(v := others[0], Access):
        return None
    (s,) = exps[0].args
    assert isinstance(s, Poly)
    for lse in (f for u in s.terms for f in u.factors if isinstance(f, Access)):
        whole = add(s, atom(lse))
        seen = None if not conditions else And(tuple(dict.fromkeys(_conjuncts(conditions))))
        if _is_logarithm_of_sum(lets, lse, whole, j, seen):
            alone = seen.args[0] if isinstance(seen, And) and len(seen.args) == 1 else seen
            share = poly([make_term(Fraction(1), (), [f for f in factors if f is not v])])
            return _SoftmaxShares(j, v, whole, lse, alone, share, frozenset(names))
    return None


def _exponential(lets: Lets, f: Expr) -> list[Expr] | None:
    """The factors of a name that is a single exponential, possibly with conditions."""
    let = lets.definition(f.tensor) if isinstance(f, Access) else None
    if let is None or not isinstance(f, Access) or len(let.body.terms) != 1:
        return None
    (t,) = let.body_at(f.positions).terms
    plain = t.coef == 1 and not t.binders
    return list(t.factors) if plain and any(isinstance(e, Call) for e in t.factors) else None


def _conjuncts(conditions: Sequence[Expr]) -> list[Expr]:
    """The conjuncts of all conditions."""
    return [c for e in conditions for c in (_conjuncts(e.args) if isinstance(e, And) else [e])]


def _is_logarithm_of_sum(lets: Lets, lse: Access, s: Poly, j: Index, seen: Expr | None) -> bool:
    """True if a name is logsumexp of s along j, under the same condition."""
    let = lets.get(lse.tensor)
    if let is None or let.kind != "logsumexp" or len(let.binders) != 1:
        return False
    here = {**dict(zip(let.formals, lse.positions, strict=True)), let.binders[0]: j}
    own = [] if let.condition is None else _conjuncts([substitute(let.condition, here)])
    same = set(own) == set(seen.args if isinstance(seen, And) else ())
    return same and substitute(let.body, here) is s


@dataclass(frozen=True)
class _Scores:
    """Scores as products of two tensors summed over d, times a number, plus ``added``."""

    d: Index
    factors: tuple[Access, Access]
    factor: Expr
    added: Poly
    names: frozenset[str]


def _scores(lets: Lets, shares: _SoftmaxShares) -> _Scores | None:
    s, j, names = shares.s, shares.j, set[str]()
    for _ in range(_DEEPEST):
        there = {a.tensor for a in accesses(s) if j in a.positions}
        own = {name for name in there if lets.definition(name) is not None}
        if not own or any(t.binders for t in s.terms):
            break
        names |= own
        s = expand_names(s, {name: lets[name] for name in own}.get)
    products = [t for t in s.terms if t.binders]
    if len(products) != 1 or len(products[0].binders) != 1:
        return None
    (t,) = products
    (bound,) = t.binders
    d = Index("#d", bound.extent)
    factors = [substitute(f, {bound: d}) for f in t.factors]
    read = [f for f in factors if free_indices(f)]
    numbers = make_term(t.coef, (), [f for f in factors if f not in read])
    if len(read) != 2 or tensors(numbers) or not all(isinstance(f, Access) for f in read):
        return None
    one, other = read
    assert isinstance(one, Access) and isinstance(other, Access)
    if (j in one.positions) is (j in other.positions):
        return None
    added = poly(u for u in s.terms if u is not t)
    return _Scores(d, (one, other), as_atom(poly([numbers])), added, frozenset(names))


def _access_axes(*read: Access) -> frozenset[Index]:
    return frozenset(i for x in read for i in x.positions if isinstance(i, Index))


def _has_plain_axes(x: Access) -> bool:
    """True if each position is a number or an index, and no index occurs twice."""
    return len(_access_axes(x)) == sum(not isinstance(i, Num) for i in x.positions)
