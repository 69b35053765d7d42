"""Instances of normalizations; their backward uses the statistics that the forward saves.

    y = (x - mu)*rstd*w + b                        rstd = (mean((x - mu)^2)/share + eps)^(-1/2)
    dx = rstd*(v - mean(v) - h*mean(v*h)/share)    mu = mean(x), v = g*w, h = (x - mu)*rstd

x is found under the power -1/2, share and eps are solved for, and everything else must match the
equation. The share is 1 unless the sum of squares is divided by another number than that of the
elements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from derive.algebra.expr import Access, Expr, Index, Pow, free_indices, tensors
from derive.algebra.poly import (
    ONE,
    ZERO,
    Poly,
    Term,
    add,
    as_atom,
    as_poly,
    atom,
    base_and_power,
    is_mask,
    make_term,
    mul,
    poly,
    power,
    scale,
    sum_over,
)
from derive.algebra.substitution import substitute
from derive.calculus.lets import Find, layout
from derive.kernels.expansion import (
    GroupExpansion,
    UnfoldedBody,
    candidates,
    expansion_levels,
    matched,
    multiplied_out,
    segments,
    squares,
    sums_square,
)
from derive.kernels.kernel_spec import Axes, KernelResult, KernelSpec
from derive.kernels.unify import contains, multiples, product_of, split_numbers, term_quotient

_HALF = Fraction(1, 2)

Named = Callable[[Poly, str, Axes, str], Access]
"""(value, stem, axes, kernel) -> name of the statistic."""


@dataclass(frozen=True)
class Normalisation:
    """The specs of a normalization kernel and of its backward, over the same axes."""

    forward: KernelSpec
    backward: KernelSpec

    @staticmethod
    def axes(row: KernelSpec) -> Axes:
        """The axes of the normalized tensor."""
        return tuple(i for i in row.operation.inputs[0].axes if isinstance(i, Index))

    def homes(self, axes: Axes, along: frozenset[Index]) -> Iterator[Mapping[str, Axes]]:
        """Assignments of the axes of x to those of the equation."""
        mean = next(e for e in self.forward.operation.equations if e.name == "mu")
        own = [(i, i not in mean.axes) for i in self.axes(self.forward)]
        yield from segments(axes, along, own)


@dataclass(frozen=True)
class _Spread:
    """The results of a kernel's equation for these axes and arguments."""

    row: KernelSpec
    home: Mapping[str, Axes]

    def __call__(self, result: str, **arguments: Poly) -> Poly:
        said = self.row.canonical
        extents = {said[extent]: axes for extent, axes in self.home.items()}
        found = {said[name]: value for name, value in arguments.items()}
        body, _ = self.row.parts[result]
        return GroupExpansion(extents, found)(body)


@dataclass(frozen=True)
class _Normalized:
    """A normalized x, with its axes, and the inverse deviation that multiplies it."""

    kind: Normalisation
    home: Mapping[str, Axes]
    axes: Axes
    along: Axes
    x: Poly
    eps: Poly
    share: Poly
    factor: Expr
    names: Find = field(compare=False)
    """The names that are expanded to match it."""

    @property
    def rows(self) -> Axes:
        """The axes of the statistics."""
        return tuple(i for i in self.axes if i not in self.along)

    @property
    def kept(self) -> frozenset[Index]:
        """The axes of the weight."""
        (w,) = (t for t in self.kind.forward.operation.inputs if t.name == "w")
        homes = (self.home[i.extent] for i in w.axes if isinstance(i, Index))
        return frozenset(i for home in homes for i in home)

    @property
    def forward(self) -> _Spread:
        return _Spread(self.kind.forward, self.home)

    @property
    def backward(self) -> _Spread:
        own, other = (self.kind.axes(row) for row in (self.kind.backward, self.kind.forward))
        home = {i.extent: self.home[j.extent] for i, j in zip(own, other, strict=True)}
        return _Spread(self.kind.backward, home)

    @property
    def mean(self) -> Poly:
        return self.forward("mu", x=self.x)

    def statistics(self, named: Named) -> tuple[Access, Access]:
        """The names of the kernel's mean and of its inverse deviation."""
        rstd = self.forward("rstd", x=self.x, eps=self.eps, share=self.share)
        of = self.kind.forward.name
        return named(self.mean, "mean", self.rows, of), named(rstd, "rstd", self.rows, of)


@dataclass(frozen=True)
class _BackwardKernel:
    """One backward call, which computes all results at once."""

    found: _Normalized
    cotangent: Poly
    weight: Poly
    statistics: tuple[Access, ...] = ()

    @property
    def weighted(self) -> bool:
        """True if it has a weight."""
        return self.weight is not ONE

    def naming(self, named: Named) -> _BackwardKernel:
        """The same call with names for its statistics."""
        return replace(self, statistics=self.found.statistics(named))

    def part(self, number: int, binders: Axes = ()) -> Poly:
        """One of its results."""
        f = self.found
        weight, share = as_atom(self.weight), as_atom(f.share)
        args = (as_atom(self.cotangent), f.x, *self.statistics, weight, share)
        return atom(KernelResult(f.kind.backward.name, number, args, f.axes, f.along, binders))


@dataclass(frozen=True)
class _Output:
    """A body with y by the kernel: its remaining terms, and the cofactors of the kernel."""

    found: _Normalized
    left: Poly
    outside: Poly
    weight: Poly
    bias: Poly

    @property
    def weighted(self) -> bool:
        """True if the weight is an argument of the kernel."""
        return self.weight is not ONE

    def made(self, named: Named) -> Poly:
        """The whole body with the kernel call."""
        f = self.found
        args = (f.x, as_atom(self.weight), as_atom(self.bias), f.eps, as_atom(f.share))
        known = f.statistics(named)
        kernel = KernelResult(f.kind.forward.name, 0, args, f.axes, f.along, (), known)
        return add(self.left, mul(self.outside, atom(kernel)))


@dataclass
class NormalizationPattern:
    """A normalization and its backward as patterns, in the bodies of one program."""

    kinds: Sequence[Normalisation]
    named: Named
    backward: bool
    calls: list[_BackwardKernel] = field(default_factory=list)
    _known: dict[Poly, tuple[_Normalized, ...]] = field(default_factory=dict)
    _inputs: dict[Poly, Poly | None] = field(default_factory=dict)
    _replaced: dict[tuple[Poly, int], Poly | None] = field(default_factory=dict)
    """By body and number of calls: bodies are lowered twice, with and without statistics."""
    _levels: dict[tuple[Poly, Find], UnfoldedBody] = field(default_factory=dict)

    def look(self, bodies: Sequence[Poly], find: Find) -> None:
        """Record the backward calls in these bodies, whose other results are then available."""
        for body in bodies:
            while (made := self._input(body, find)) is not None:
                body = made

    def replaced(self, body: Poly, find: Find) -> Poly | None:
        """The body with one part of it by the kernel, memoized."""
        key = body, len(self.calls)
        if key not in self._replaced:
            self._replaced[key] = self._tried(body, find)
        return self._replaced[key]

    def _tried(self, body: Poly, find: Find) -> Poly | None:
        made = self._input(body, find) or self._others(body, find) if self.backward else None
        if made is not None:
            return made
        found = [y for f in self._found(body, find) if (y := self._output(f, body))]
        chosen = next((y for y in found if y.weighted), found[0] if found else None)
        return None if chosen is None else chosen.made(self.named)

    # ---------------------------------------------------------------- the forward

    def _output(self, f: _Normalized, body: Poly) -> _Output | None:
        """The body with y by the kernel, if all terms match."""
        level = self._level(body, f.names)
        divided = mul(atom(f.factor), add(f.x, scale(f.mean, -1)))
        (first,) = mul(poly([f.x.terms[0]]), atom(f.factor)).terms
        parts = multiples(level.whole, divided, first)
        factors = [(c, p) for c, p in parts if not c.binders and _is_rid(c, f.factor)]
        if not factors:
            return None
        whole, w = add(ZERO, *(p for _, p in factors)), add(*(product_of(c) for c, _ in factors))
        inside, outside = _split_weight(w, f.kept)
        bias = ZERO
        if outside is ONE:
            rest = (t for t in level.whole.terms if t not in whole.terms)
            bias = poly(t for t in rest if free_indices(t) == f.kept and _is_unmasked_product(t))
        for b in (bias, ZERO) if bias.terms else (ZERO,):
            left = level.without(add(whole, b))
            if left is not None:
                return _Output(f, left, outside, inside, b)
        return None

    # ---------------------------------------------------------------- the backward

    def _input(self, body: Poly, find: Find) -> Poly | None:
        """The body with dx by the kernel, memoized."""
        if body not in self._inputs:
            self._inputs[body] = self._with_input(body, find)
        return self._inputs[body]

    def _with_input(self, body: Poly, find: Find) -> Poly | None:
        """The body with dx by the kernel, preferably a call that has the weight."""
        made: list[tuple[Poly, _BackwardKernel]] = []
        for f in self._found(body, find):
            level = self._level(body, f.names)
            found = []
            for s in level.whole.terms:
                beside = term_quotient(s, atom(f.factor).terms[0])
                if beside is None or not _is_rid(beside, f.factor):
                    continue
                g = sum_over(product_of(beside), s.binders)
                if free_indices(g) <= set(f.axes) and contains(level.whole, self._dx(f, g)):
                    found.append(g)
            for g in (add(ZERO, *found), *found) if len(found) > 1 else found:
                whole = self._dx(f, g)
                left = level.without(whole) if contains(level.whole, whole) else None
                if left is not None:
                    made.append((left, self._call(f, g)))
                    break
        if not made:
            return None
        left, call = next((entry for entry in made if entry[1].weighted), made[0])
        call = call.naming(self.named)
        if call not in self.calls:
            self.calls.append(call)
        return add(left, call.part(0))

    def _dx(self, f: _Normalized, v: Poly) -> Poly:
        """dx for the cotangent v of the normalized tensor."""
        rstd = atom(f.factor)
        made = f.backward("dx", x=f.x, g=v, share=f.share, w=ONE, mu=f.mean, rstd=rstd)
        return multiplied_out(made)

    def _call(self, f: _Normalized, v: Poly) -> _BackwardKernel:
        """The backward call for a cotangent that is a product with a weight."""
        w, g = _split_weight(v, f.kept)
        if not tensors(g) or not tensors(w):
            w, g = ONE, v
        return _BackwardKernel(f, g, w)

    def _others(self, body: Poly, find: Find) -> Poly | None:
        """The body with dw or db as another result of a recorded call."""
        for call in self.calls:
            f = call.found
            if tensors(call.cotangent).isdisjoint(tensors(body)):
                continue
            rest = tuple(i for i in f.axes if i not in f.kept)
            divided = mul(atom(f.factor), add(f.x, scale(f.mean, -1)))
            results = [(2, call.cotangent)] if rest else []  # of no rows, db is what the call takes
            if call.weighted:
                results.insert(0, (1, mul(call.cotangent, divided)))
            for number, each in results:
                whole, made = sum_over(each, rest), call.part(number, rest)
                for names in expansion_levels(find, f.x, body):
                    new = self._moved(UnfoldedBody(body, names, multiplied_out), whole, made, f)
                    if new is not None:
                        return new
        return None

    @staticmethod
    def _moved(level: UnfoldedBody, whole: Poly, made: Poly, f: _Normalized) -> Poly | None:
        """The body with one of the results of f, under any renaming of its axes."""
        order = [i for i in f.axes if i in f.kept]
        for chosen in matched(order, free_indices(level.body)):
            here = substitute(whole, chosen)
            left = level.without(here) if contains(level.whole, here) else None
            if left is not None:
                return add(left, substitute(made, chosen))
        return None

    # ---------------------------------------------------------------- what is normalised

    def _level(self, body: Poly, names: Find) -> UnfoldedBody:
        """The body with these names expanded, multiplied out and memoized."""
        if (body, names) not in self._levels:
            self._levels[body, names] = UnfoldedBody(body, names, multiplied_out)
        return self._levels[body, names]

    def _found(self, body: Poly, find: Find) -> tuple[_Normalized, ...]:
        """Everything that the body divides by a deviation along axes, memoized."""
        if body not in self._known:
            self._known[body] = tuple(self._looked_for(body, find))
        return self._known[body]

    def _looked_for(self, body: Poly, find: Find) -> Iterator[_Normalized]:
        for deviation, over_axes in squares(body, find):
            for x in candidates(deviation, over_axes, find):
                for chosen in matched(over_axes, free_indices(body)):
                    along = frozenset(chosen.values())
                    yield from self._of(substitute(x, chosen), along, body, find)

    def _of(
        self, x: Poly, along: frozenset[Index], body: Poly, find: Find
    ) -> Iterator[_Normalized]:
        if any(t.binders for t in x.terms) or not x.terms:
            return
        axes = layout(x)
        opened = list(expansion_levels(find, x, body))
        if not sums_square(body) and not any(map(opened[-1], tensors(body))):
            return
        wholes = [(own, self._level(body, own).whole) for own in opened]
        order = tuple(i for i in axes if i in along)
        for kind, home in [(k, h) for k in self.kinds for h in k.homes(axes, along)]:
            inverse = _Spread(kind.forward, home)("rstd", x=x, eps=ZERO, share=ONE)
            (square,) = (f.base for t in inverse.terms for f in t.factors if isinstance(f, Pow))
            for own, whole in wholes:
                for f in dict.fromkeys(f for t in whole.terms for f in t.factors):
                    solved = _solve_epsilon(f, as_poly(square))
                    if solved is not None:
                        yield _Normalized(kind, home, axes, order, x, *solved, f, own)


def _solve_epsilon(f: Expr, square: Poly) -> tuple[Poly, Poly] | None:
    """eps and share if f is (square/share + eps)^(-1/2)."""
    if not isinstance(f, Pow) or base_and_power(f)[1] != -_HALF or len(square.terms) != 1:
        return None
    number, v = split_numbers(square.terms[0])
    for t in as_poly(f.base).terms:
        own, rest = split_numbers(t)
        if rest is not v:
            continue
        k = mul(own, power(number, Fraction(-1)))
        eps = add(as_poly(f.base), scale(mul(k, square), -1))
        if not any(tensors(p) or free_indices(p) for p in (k, eps)):
            return eps, power(k, Fraction(-1))
    return None


def _is_rid(t: Term, factor: Expr) -> bool:
    """True if t has no power of the base of this factor left."""
    base, _ = base_and_power(factor)
    return all(base_and_power(f)[0] is not base for f in t.factors)


def _split_weight(p: Poly, axes: frozenset[Index]) -> tuple[Poly, Poly]:
    """(the part with exactly these axes, its cofactor) of a product or a sum."""
    if p.terms and all(free_indices(t) == axes and _is_unmasked_product(t) for t in p.terms):
        return p, ONE
    first, *others = p.terms
    if first.binders or others:
        return ONE, p
    inside = [f for f in first.factors if free_indices(f) == axes and not is_mask(f)]
    outside = [f for f in first.factors if f not in inside]
    if not inside:
        return ONE, p
    return poly([make_term(Fraction(1), (), inside)]), poly([make_term(first.coef, (), outside)])


def _is_unmasked_product(t: Term) -> bool:
    return bool(tensors(t)) and not t.binders and not any(map(is_mask, t.factors))
