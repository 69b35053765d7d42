"""Recognize attention, and replace it and its gradients by one kernel each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

from derive.algebra.expr import (
    Access,
    And,
    Call,
    Delta,
    Expr,
    Index,
    Iverson,
    Num,
    accesses,
    free_indices,
    tensors,
    walk,
)
from derive.algebra.poly import (
    ONE,
    ZERO,
    Poly,
    Term,
    add,
    as_atom,
    as_poly,
    atom,
    make_term,
    mul,
    poly,
    sum_over,
)
from derive.algebra.substitution import substitute
from derive.calculus.adjoint import Adjoint, Backward
from derive.calculus.lets import Find, Let, Lets
from derive.kernels.expansion import GroupExpansion, UnfoldedBody, matched, multiplied_out
from derive.kernels.kernel_spec import AttentionResult, Axes, KernelSpec, expand_names
from derive.kernels.normalization import Named
from derive.kernels.unify import product_of, term_quotient

# ---------------------------------------------------------------------------------- attention match
# Recognize attention: equations that are means weighted by a softmax of products.
#
#     s[b,i,j] = c*Sum_d q[b,i,d] k[b,j,d] + m[b,i,j]
#     y[b,i,e] = Sum_{j, seen} exp(s[b,i,j] - lse[b,i]) v[b,j,e]
#     lse[b,i] = logsumexp_{j, seen} s[b,i,j]
#
# Scores and softmax have names or are inline. The positions of q, k and v are numbers and their
# other axes; k or v may lack an index of b, as in attention with shared key heads.

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
    if let is None or not isinstance(f, Access):
        return None
    terms = let.body_at(f.positions).terms
    if len(terms) != 1:
        return None
    (t,) = terms
    plain = t.coef == 1 and not t.binders
    return list(t.factors) if plain and any(isinstance(e, Call) for e in t.factors) else None


def _conjuncts(conditions: Sequence[Expr]) -> list[Expr]:
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


# -------------------------------------------------------------------------------- attention rewrite
# Replace attentions by one kernel, and their gradients by another.
#
# The kernels save the mean and the logarithm of the normalizer, not the large scores. They are used
# if both together eliminate every read of the scores, which would otherwise be computed. An
# additive mask that may be None has its gradient computed outside of the kernel.


@dataclass(frozen=True)
class Attention:
    """The specs of an attention kernel and of its backward."""

    forward: KernelSpec
    backward: KernelSpec

    @property
    def sees(self) -> bool:
        """True if the mask is boolean, and not additive."""
        return any(t.kind == "bool" for t in self.forward.operation.inputs)


@dataclass(frozen=True)
class Attentions:
    """The attentions and their gradients as patterns, each of a whole body of one program.

    ``kept`` names the values that the forwards save for the backwards: a logsumexp, or the softmax
    itself without a kernel call. No size is read from these.
    """

    made: Mapping[Poly, Poly]
    kept: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls,
        kinds: Sequence[Attention],
        lets: Lets,
        backward: Backward,
        named: Named,
        optional: Collection[str] = (),
    ) -> Attentions:
        """Find all attentions; ``optional`` are the tensors that may be None."""
        every = {a.name: a for a in (*backward.adjoints, *backward.gradients)}
        bodies = {name: a.body for name, a in every.items()}
        made: dict[Poly, Poly] = {}
        kept: set[str] = set()
        means = [mean for let in lets if (mean := match_attention(lets, let)) is not None]
        for mean in means:
            if not _is_alone(mean, lets, dict(backward.cotangents)):
                continue
            kind = next(k for k in kinds if k.sees is (mean.seen is not None))
            pulled = _AttentionGradients(mean, lets, every, frozenset(optional))
            for g in pulled.cotangents(backward):
                axes = *mean.batch, mean.ends[0]
                kept_name = partial(named, atom(mean.lse), "kept", axes)
                call = _MeanKernels(kind, mean, g, lets, kept_name)
                found = pulled.bodies(call, bodies)
                if found is not None:
                    made[mean.y.body], bodies = call.mean, found
                    kept.add(call.kept.tensor)
                    break
        new = ((a.body, bodies[name]) for name, a in every.items())
        made |= {old: body for old, body in new if body is not old}
        return cls(made, frozenset(kept))

    def replaced(self, body: Poly, find: Find) -> Poly | None:
        """The body with the kernel's part computed by the kernel, or None."""
        return self.made.get(body)


@dataclass(frozen=True)
class _MeanKernels:
    """The kernels of one attention whose cotangent is g."""

    kind: Attention
    of: AttentionMatch
    g: Poly
    lets: Lets
    named: Callable[[str], Access]

    @property
    def kept(self) -> Access:
        """The value that the forward saves for the backward."""
        return self.named(self.kind.forward.name)

    @property
    def mean(self) -> Poly:
        """The output of the attention kernel."""
        return atom(self._part(self.kind.forward, 0, {}, self.kept))

    def gradients(self) -> Iterator[tuple[Access, Poly, Poly]]:
        """For q, k and v: the access, its gradient by the equations, and that by the kernel."""
        of, row = self.of, self.kind.backward
        given = {"g": as_atom(self.g), "y": of.y.access, "lse": self.kept}
        said = row.canonical
        home = {said[letter]: axes for letter, axes in self._part(row, 0, given).home.items()}
        known = {**self._arguments, "g": self.g, "y": _expand_hidden(of, of.y.body, self.lets)}
        known["lse"] = of.lse
        if of.seen is not None:
            known["m"] = Iverson(of.seen)
        told = GroupExpansion(home, {said[name]: as_poly(e) for name, e in known.items()})
        for n, (x, result) in enumerate(zip((of.q, of.k, of.v), row.parts, strict=True)):
            lost = tuple(i for i in of.batch if i not in x.positions)
            whole, _ = row.parts[result]
            kernel = atom(self._part(row, n, given))
            yield x, _expand_masks(sum_over(told(whole), lost)), sum_over(kernel, lost)

    @property
    def _arguments(self) -> dict[str, Expr]:
        of = self.of
        mask = as_atom(of.added) if of.seen is None else of.seen
        return {"q": of.q, "k": of.k, "v": of.v, "m": mask, "scale": of.factor}

    def _part(
        self, row: KernelSpec, n: int, given: Mapping[str, Expr], *others: Expr
    ) -> AttentionResult:
        known = {**self._arguments, **given}
        args = tuple(known[name] for name in row.arguments)
        op = row.operation
        (axes,) = (e.axes for e in op.equations if e.name == op.outputs[n])
        letters = {i.name for i in axes if isinstance(i, Index)}
        ends = zip("ijde", self.of.ends, strict=True)
        lost = tuple(i for letter, i in ends if letter not in letters)
        return AttentionResult(row.name, n, args, self.of.batch, self.of.ends, lost, others)


@dataclass(frozen=True)
class _AttentionGradients:
    """One attention in the bodies of adjoints."""

    of: AttentionMatch
    lets: Lets
    every: Mapping[str, Adjoint]
    optional: frozenset[str]

    def cotangents(self, backward: Backward) -> Iterator[Poly]:
        """Candidates for the cotangent of y: its adjoint by name, or the factor found in dv."""
        y = self.of.y
        own = (a.name for a in backward.adjoints if a.tensor == y.name)
        name = next(own, dict(backward.cotangents).get(y.name))
        if name is not None:
            yield atom(Access(name, y.formals))
        for a in self.every.values():
            if a.tensor == self.of.v.tensor:
                g = add(ZERO, *(self._beside(t, a) for t in self._level(a.body).whole.terms))
                if g.terms:
                    yield g

    def _beside(self, t: Term, adjoint: Adjoint) -> Poly:
        """The cofactor of the share in a term of dv = Sum_i share*g, or 0."""
        of, (i, _, _, e) = self.of, self.of.ends
        inside = {b: Index(f"#{n}", b.extent, b.group) for n, b in enumerate(t.binders)}
        whole = make_term(t.coef, (), [substitute(f, inside) for f in t.factors])
        places = dict(zip(of.v.positions, adjoint.formals, strict=True))
        lost = [x for x in (*of.batch, i) if x not in places]
        for chosen in matched(lost, frozenset(inside.values())):
            here = {**{x: p for x, p in places.items() if isinstance(x, Index)}, **chosen}
            told = _expand_hidden(of, substitute(of.share, here), self.lets)
            (share,) = _expand_masks(told).terms
            deltas = [Delta(p, x) for x, p in places.items() if not isinstance(x, Index)]
            left = term_quotient(whole, make_term(Fraction(1), (), [*share.factors, *deltas]))
            if left is None:
                continue
            summed = [b for b in inside.values() if b not in chosen.values()]
            g = sum_over(product_of(left), summed)
            g = substitute(g, {place: x for x, place in here.items() if isinstance(place, Index)})
            if free_indices(g) <= {*of.batch, i, e}:
                return g
        return ZERO

    def bodies(self, call: _MeanKernels, bodies: Mapping[str, Poly]) -> dict[str, Poly] | None:
        """The bodies with the kernel; None if the scores are still computed."""
        made = dict(bodies)
        for x, whole, kernel in call.gradients():
            for name, adjoint in self.every.items():
                if adjoint.tensor == x.tensor:
                    made[name] = self._replaced(made[name], adjoint, x, whole, kernel)
        added = tensors(self.of.added)
        alone = added and added <= self.optional
        return None if made == bodies or (self._reads_scores(made) and not alone) else made

    def _level(self, body: Poly) -> UnfoldedBody:
        return UnfoldedBody(body, self._opened, _expand_masks)

    def _replaced(self, body: Poly, adjoint: Adjoint, x: Access, whole: Poly, kernel: Poly) -> Poly:
        """The body of the adjoint with the gradient of x by the kernel, at the positions read."""
        places = list(zip(x.positions, adjoint.formals, strict=True))
        here = {i: place for i, place in places if isinstance(i, Index)}
        deltas = (atom(Delta(place, n)) for n, place in places if not isinstance(n, Index))
        there = mul(ONE, *deltas)
        left = self._level(body).without(mul(substitute(whole, here), there))
        return body if left is None else add(left, mul(substitute(kernel, here), there))

    def _is_hidden(self, name: str) -> bool:
        """True for the scores, their softmax, an adjoint of these, or their logsumexp."""
        of = self.of
        own = name in of.hidden or self.lets.derived_from.get(name) in of.hidden
        return own or name == of.lse.tensor

    def _opened(self, name: str) -> Let | None:
        if name in self.of.hidden:
            return self.lets.definition(name)
        adjoint = self.every.get(name) if self._is_hidden(name) else None
        return None if adjoint is None else adjoint.as_let()

    def _reads_scores(self, bodies: Mapping[str, Poly]) -> bool:
        """True if anything but the kernel reads the scores on the way to a gradient."""

        def parts(e: Expr) -> Sequence[Expr]:
            return () if isinstance(e, AttentionResult) else e.parts()

        own = (body for name, body in bodies.items() if not self._is_hidden(name))
        read = (x.tensor for body in own for x in walk(body, parts) if isinstance(x, Access))
        return any(map(self._is_hidden, read))


def _expand_masks(p: Poly) -> Poly:
    """The sum multiplied out, with conjunctions split into single brackets."""

    def split(t: Term) -> Term:
        factors = [part for f in t.factors for part in _conditions(f)]
        return t if len(factors) == len(t.factors) else make_term(t.coef, t.binders, factors)

    return poly([split(t) for t in multiplied_out(p).terms])


def _conditions(f: Expr) -> list[Expr]:
    inside = f.condition.args if isinstance(f, Iverson) and isinstance(f.condition, And) else None
    return [f] if inside is None else [part for c in inside for part in _conditions(Iverson(c))]


def _expand_hidden(of: AttentionMatch, body: Poly, lets: Lets) -> Poly:
    """The body with the names of scores and softmax expanded."""
    return expand_names(body, lambda name: lets.definition(name) if name in of.hidden else None)


def _is_alone(mean: AttentionMatch, lets: Lets, outputs: Collection[str]) -> bool:
    """True if only the attention reads the scores."""
    own = {*mean.hidden, mean.lse.tensor}
    others = (x for x in lets if x.name not in own and x is not mean.y and not x.result)
    return own.isdisjoint(outputs) and all(own.isdisjoint(x.reads()) for x in others)
