"""Replace attentions by one kernel, and their gradients by another.

The kernels save the mean and the logarithm of the normalizer, not the large scores. They are used
if both together eliminate every read of the scores, which would otherwise be computed. An additive
mask that may be None has its gradient computed outside of the kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

from derive.algebra.expr import Access, And, Delta, Expr, Index, Iverson, free_indices, tensors
from derive.algebra.poly import (
    ONE,
    ZERO,
    Poly,
    Term,
    add,
    as_atom,
    atom,
    make_term,
    mul,
    poly,
    sum_over,
)
from derive.algebra.substitution import substitute
from derive.calculus.adjoint import Adjoint, Backward
from derive.calculus.lets import Find, Let, Lets
from derive.kernels.attention_match import AttentionMatch, match_attention
from derive.kernels.group_expansion import GroupExpansion, matched
from derive.kernels.instantiate import as_poly, expand_names
from derive.kernels.kernel_spec import AttentionResult, KernelSpec
from derive.kernels.normalization import Named
from derive.kernels.unfolding import UnfoldedBody
from derive.kernels.unify import term_quotient
from derive.kernels.variance_matching import multiplied_out


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
                call = _MeanKernels(
                    kind, mean, g, lets, partial(named, atom(mean.lse), "kept", axes)
                )
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
        said = {display_names: name for name, display_names in row.names.items()}
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
            (share,) = _expand_masks(
                _expand_hidden(of, substitute(of.share, here), self.lets)
            ).terms
            deltas = [Delta(p, x) for x, p in places.items() if not isinstance(x, Index)]
            left = term_quotient(whole, make_term(Fraction(1), (), [*share.factors, *deltas]))
            if left is None:
                continue
            summed = [b for b in inside.values() if b not in chosen.values()]
            g = sum_over(poly([make_term(left.coef, (), left.factors)]), summed)
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
        own = (body for name, body in bodies.items() if not self._is_hidden(name))
        return any(self._is_hidden(name) for body in own for name in _unfused_reads(body))


def _unfused_reads(e: Expr) -> Iterator[str]:
    """The names of the tensors read in e, except those that a kernel reads."""
    if isinstance(e, Access):
        yield e.tensor
    if not isinstance(e, AttentionResult):
        for part in e.parts():
            yield from _unfused_reads(part)


def _expand_masks(p: Poly) -> Poly:
    """The sum multiplied out, with conjunctions split into single brackets."""
    return add(ZERO, *(_split_masks(t) for t in multiplied_out(p).terms))


def _split_masks(t: Term) -> Poly:
    factors = [part for f in t.factors for part in _conditions(f)]
    alike = len(factors) == len(t.factors)
    return poly([t if alike else make_term(t.coef, t.binders, factors)])


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
