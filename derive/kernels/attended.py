"""Means weighted by a softmax of products by one kernel, and their gradients by another.

The kernels keep the mean and the logarithm of what it is divided by, and no scores, which are
large. They are called where both take the place of all that reads the scores, which are computed
otherwise; a mask that may be absent is added to them, and has its gradient beside the kernel.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from derive.algebra.expr import Access, Delta, Expr, Index, Iverson, tensors
from derive.algebra.poly import ONE, Poly, add, as_atom, atom, mul, sum_over
from derive.algebra.substitution import substitute
from derive.calculus.adjoint import Adjoint, Backward
from derive.calculus.lets import Find, Let, Lets
from derive.kernels.deviations import multiplied_out
from derive.kernels.levels import Level
from derive.kernels.rebuild import as_poly, opened
from derive.kernels.row import Attended, Row
from derive.kernels.spread import Spread
from derive.kernels.weighted import Weighted, weighted


@dataclass(frozen=True)
class Attention:
    """The rows of a kernel and of its backward."""

    forward: Row
    backward: Row

    @property
    def sees(self) -> bool:
        """Whether the mask says what is seen, and is not added."""
        return any(t.kind == "bool" for t in self.forward.operation.inputs)


@dataclass(frozen=True)
class Attentions:
    """Such means and their gradients as patterns, each of a whole body of one program."""

    made: Mapping[Poly, Poly]

    @classmethod
    def of(
        cls,
        kinds: Sequence[Attention],
        lets: Lets,
        backward: Backward,
        optional: Collection[str] = (),
    ) -> Attentions:
        """All that there are; ``optional`` are the tensors that may be absent."""
        every = {a.name: a for a in (*backward.adjoints, *backward.gradients)}
        bodies = {name: a.body for name, a in every.items()}
        made: dict[Poly, Poly] = {}
        for mean in (found for let in lets if (found := weighted(lets, let)) is not None):
            g = _cotangent(mean.y, backward)
            if g is None or not _is_alone(mean, lets, dict(backward.cotangents)):
                continue
            kind = next(k for k in kinds if k.sees is (mean.seen is not None))
            call = _Call(kind, mean, g, _without(mean.hidden, mean.y.body, lets))
            pulled = _Pulled(call, lets, every, frozenset(optional)).bodies(bodies)
            if pulled is not None:
                made[mean.y.body] = call.mean
                bodies = pulled
        new = ((a.body, bodies[name]) for name, a in every.items())
        made |= {old: body for old, body in new if body is not old}
        return cls(made)

    def replaced(self, body: Poly, find: Find) -> Poly | None:
        """The body with what the kernel computes as that."""
        return self.made.get(body)


@dataclass(frozen=True)
class _Call:
    """The kernels of one mean, which is ``whole`` in inputs; g is its cotangent."""

    kind: Attention
    of: Weighted
    g: Access
    whole: Poly

    @property
    def mean(self) -> Poly:
        """The mean by the kernel."""
        return atom(self._part(self.kind.forward, 0, {}, self.of.lse))

    def gradients(self) -> Iterator[tuple[Access, Poly, Poly]]:
        """q, k and v, of each what the equations say of its gradient, and that by the kernel."""
        of, row = self.of, self.kind.backward
        given = {"g": self.g, "y": of.y.access, "lse": of.lse}
        said = {spoken: name for name, spoken in row.names.items()}
        home = {said[letter]: axes for letter, axes in self._part(row, 0, given).home.items()}
        known = {**self._arguments, **given, "y": self.whole}
        if of.seen is not None:
            known["m"] = Iverson(of.seen)
        told = Spread(home, {said[name]: as_poly(e) for name, e in known.items()})
        for n, (x, result) in enumerate(zip((of.q, of.k, of.v), row.parts, strict=True)):
            lost = tuple(i for i in of.batch if i not in x.positions)
            whole, _ = row.parts[result]
            kernel = atom(self._part(row, n, given))
            yield x, multiplied_out(sum_over(told(whole), lost)), sum_over(kernel, lost)

    @property
    def _arguments(self) -> dict[str, Expr]:
        of = self.of
        mask = as_atom(of.added) if of.seen is None else of.seen
        return {"q": of.q, "k": of.k, "v": of.v, "m": mask, "scale": of.factor}

    def _part(self, row: Row, n: int, given: Mapping[str, Expr], *others: Expr) -> Attended:
        known = {**self._arguments, **given}
        args = tuple(known[name] for name in row.arguments)
        op = row.operation
        (axes,) = (e.axes for e in op.equations if e.name == op.outputs[n])
        letters = {i.name for i in axes if isinstance(i, Index)}
        ends = zip("ijde", self.of.ends, strict=True)
        lost = tuple(i for letter, i in ends if letter not in letters)
        return Attended(row.name, n, args, self.of.batch, self.of.ends, lost, others)


@dataclass(frozen=True)
class _Pulled:
    """One mean in the bodies of adjoints."""

    call: _Call
    lets: Lets
    every: Mapping[str, Adjoint]
    optional: frozenset[str]

    def bodies(self, bodies: Mapping[str, Poly]) -> dict[str, Poly] | None:
        """The bodies with the kernel; None where the scores are computed nevertheless."""
        made = dict(bodies)
        for x, whole, kernel in self.call.gradients():
            for name, adjoint in self.every.items():
                if adjoint.tensor == x.tensor:
                    made[name] = self._replaced(made[name], adjoint, x, whole, kernel)
        added = tensors(self.call.of.added)
        alone = added and added <= self.optional
        return None if made == bodies or (self._reads_scores(made) and not alone) else made

    def _replaced(self, body: Poly, adjoint: Adjoint, x: Access, whole: Poly, kernel: Poly) -> Poly:
        """The body of the adjoint with the gradient of x by the kernel, where x is read."""
        places = list(zip(x.positions, adjoint.formals, strict=True))
        here = {i: place for i, place in places if isinstance(i, Index)}
        deltas = (atom(Delta(place, n)) for n, place in places if not isinstance(n, Index))
        there = mul(ONE, *deltas)
        level = Level(body, self._opened, multiplied_out)
        left = level.without(mul(substitute(whole, here), there))
        return body if left is None else add(left, mul(substitute(kernel, here), there))

    def _is_hidden(self, name: str) -> bool:
        """Whether it is the scores or their softmax, an adjoint of one, or their logarithm."""
        of = self.call.of
        own = name in of.hidden or self.lets.derived_from.get(name) in of.hidden
        return own or name == of.lse.tensor

    def _opened(self, name: str) -> Let | None:
        if name in self.call.of.hidden:
            return self.lets.definition(name)
        adjoint = self.every.get(name) if self._is_hidden(name) else None
        return None if adjoint is None else adjoint.as_let()

    def _reads_scores(self, bodies: Mapping[str, Poly]) -> bool:
        """Whether anything but the kernel reads the scores on the way to a gradient."""
        own = (body for name, body in bodies.items() if not self._is_hidden(name))
        return any(self._is_hidden(name) for body in own for name in _read(body))


def _read(e: Expr) -> Iterator[str]:
    """The names of what is read, but for what a kernel reads."""
    if isinstance(e, Access):
        yield e.tensor
    if not isinstance(e, Attended):
        for part in e.parts():
            yield from _read(part)


def _without(hidden: Collection[str], body: Poly, lets: Lets) -> Poly:
    """The body with these names opened."""
    return opened(body, lambda name: lets.definition(name) if name in hidden else None)


def _cotangent(y: Let, backward: Backward) -> Access | None:
    """The adjoint of an equation, by its name."""
    own = (a.name for a in backward.adjoints if a.tensor == y.name)
    name = next(own, dict(backward.cotangents).get(y.name))
    return None if name is None else Access(name, y.formals)


def _is_alone(mean: Weighted, lets: Lets, outputs: Collection[str]) -> bool:
    """Whether nothing but the mean reads the scores."""
    own = {*mean.hidden, mean.lse.tensor}
    others = (let for let in lets if let.name not in own and let is not mean.y)
    return own.isdisjoint(outputs) and all(own.isdisjoint(let.reads()) for let in others)
