"""Expand groups to axes and names to their equations, to match normalizations and attentions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache

from derive.algebra import expr as ex
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
    constant,
    mul,
    poly,
    power,
    sum_over,
)
from derive.algebra.substitution import rename_apart, substitute
from derive.calculus.lets import Find, Let
from derive.kernels.kernel_spec import Axes, expand_names
from derive.kernels.pointwise_pattern import kinds_of

# ---------------------------------------------------------------------------------- group expansion
# Expand equations over groups of axes to concrete axes; a group is any number of axes.
#
# mean[*s](x[*p,*s])   of  *p = n  and  *s = c, t:   Sum_c,t x[n,c,t] / (size(c)*size(t))


@dataclass(frozen=True)
class GroupExpansion:
    """The concrete axes of each extent of an equation, and the values of its arguments."""

    home: Mapping[str, Axes]
    found: Mapping[str, Poly]

    def __call__(self, e: ex.Expr) -> Poly:
        """The equation with these axes and arguments."""
        return self._told(e, {})

    def _told(self, e: ex.Expr, now: Mapping[ex.Index, Axes]) -> Poly:
        match e:
            case ex.Access(name, positions):
                whole: dict[ex.Index, ex.Expr] = {}
                for i in positions:
                    assert isinstance(i, ex.Index)
                    own = self.home[i.extent]
                    whole |= zip(own, now.get(i, own), strict=True)
                return as_poly(substitute(self.found[name], whole))
            case ex.Param(name):
                return self.found[name]
            case ex.Size(extent):
                return mul(ONE, *(atom(ex.Size(i.extent)) for i in self.home[extent]))
            case ex.Pow(base, ex.Num(n)):
                return power(self._told(base, now), n)
            case ex.Call(name, args):
                return atom(ex.Call(name, tuple(self._told(a, now) for a in args)))
            case ex.Iverson(condition):
                return self._told(condition, now)
            case ex.Guard(_, position):
                # Drop the guard: its condition is a cofactor, and the exponential of a softmax is
                # at most 1.
                return as_poly(self._told(position, now))
            case Poly(terms):
                return add(ZERO, *(self._term(t, now) for t in terms))
        raise TypeError(f"no equation of groups of axes has {e!r}")

    def _term(self, t: Term, now: Mapping[ex.Index, Axes]) -> Poly:
        taken = {i for own in (*self.home.values(), *now.values()) for i in own}
        inside = dict(now)
        binders: list[ex.Index] = []
        for b in t.binders:
            inside[b] = rename_apart(self.home[b.extent], taken)
            taken.update(inside[b])
            binders += inside[b]
        factors = (self._told(f, inside) for f in t.factors)
        return sum_over(mul(constant(t.coef), *factors), binders)


def segments(
    axes: Sequence[ex.Index], summed: frozenset[ex.Index], pattern: Sequence[tuple[ex.Index, bool]]
) -> Iterator[dict[str, Axes]]:
    """Assignments of consecutive axes to a pattern of (index, whether it is summed)."""
    if not pattern:
        if not axes:
            yield {}
        return
    (i, own), *rest = pattern
    most = next((n for n, a in enumerate(axes) if (a in summed) != own), len(axes))
    for n in range(most, -1, -1) if i.group else [1] if most and not axes[0].group else []:
        for found in segments(axes[n:], summed, rest):
            yield {i.extent: tuple(axes[:n]), **found}


def matched(
    formals: Sequence[ex.Index], free: frozenset[ex.Index]
) -> Iterator[dict[ex.Index, ex.Index]]:
    """Every injective renaming of these indices to ``free`` ones of equal extents."""
    if not formals:
        yield {}
        return
    first, *rest = formals
    for i in sorted(free, key=lambda i: i.name):
        if i.extent == first.extent and i.group == first.group:
            for found in matched(rest, free - {i}):
                yield {first: i, **found}


# ---------------------------------------------------------------------------------------- unfolding
# A sum with some names expanded, term by term.


@dataclass(frozen=True)
class UnfoldedBody:
    """A body with some names expanded; a rewrite of the expansion must replace whole terms."""

    body: Poly
    names: Find
    form: Callable[[Poly], Poly] = lambda p: p

    @cached_property
    def own(self) -> list[Poly]:
        """The expansion of each term."""
        known: dict[ex.Access, Poly] = {}
        return [self.form(expand_names(poly([t]), self.names, known)) for t in self.body.terms]

    @cached_property
    def whole(self) -> Poly:
        """The expansion of all terms."""
        return add(ZERO, *self.own)

    @cached_property
    def kinds(self) -> frozenset[object]:
        """The node kinds in all terms."""
        return kinds_of(self.whole)

    def without(self, part: Poly) -> Poly | None:
        """The terms of the body without those that expand to this part; None if no subset does."""
        those = set(part.terms)
        touched = [not those.isdisjoint(p.terms) for p in self.own]
        used = [p for p, own in zip(self.own, touched, strict=True) if own]
        if add(ZERO, *used) is not part:
            return None
        return poly(t for t, own in zip(self.body.terms, touched, strict=True) if not own)


# -------------------------------------------------------------------------------- variance matching
# Find the tensor being normalized by following let names to its variance.

_DEEPEST = 6
"""The most names expanded on the way to the normalized tensor."""


def squares(body: Poly, find: Find) -> Iterator[tuple[ex.Expr, Axes]]:
    """Each squared and summed expression reachable from the body, with the indices of the sum."""
    pending: list[tuple[ex.Expr, int]] = [(body, 0)]
    met: set[ex.Expr] = set()
    leads = _leading_to_squares(find)
    while pending:
        e, depth = pending.pop(0)
        for part in ex.walk(e):
            if isinstance(part, ex.Access) and part not in met:
                met.add(part)
                let = expandable_let(find, part.tensor)
                if let is not None and leads(part.tensor, _DEEPEST - depth):
                    pending.append((let.body_at(part.positions), depth + 1))
            elif isinstance(part, Term) and part.binders:
                for f in part.factors:
                    base, exponent = base_and_power(f)
                    own = tuple(i for i in part.binders if i in ex.free_indices(base))
                    if exponent == 2 and own == part.binders:
                        yield base, own


def _leading_to_squares(find: Find) -> Callable[[str, int], bool]:
    """Return whether a name leads to a summed square within a number of expansions."""

    @cache
    def leads(name: str, depth: int) -> bool:
        let = expandable_let(find, name) if depth else None
        if let is None:
            return False
        read = sorted(ex.tensors(let.body))
        return sums_square(let.body) or any(leads(n, depth - 1) for n in read)

    return leads


@lru_cache(maxsize=1024)
def sums_square(body: Poly) -> bool:
    """True if the body contains a summed square."""
    sums = (part for part in ex.walk(body) if isinstance(part, Term) and part.binders)
    return any(base_and_power(f)[1] == 2 for t in sums for f in t.factors)


def candidates(e: ex.Expr, along: Axes, find: Find) -> Iterator[Poly]:
    """Candidates for x if e is x - mean(x): the terms of e that have the axes."""
    met = set()
    for _ in range(_DEEPEST):
        p = as_poly(e)
        own = poly(t for t in p.terms if ex.free_indices(t) & set(along))
        if own.terms and own not in met and len(p.terms) > 1:
            met.add(own)
            yield own
        lone = as_atom(p)
        let = expandable_let(find, lone.tensor) if isinstance(lone, ex.Access) else None
        if let is None:
            return
        assert isinstance(lone, ex.Access)
        e = let.body_at(lone.positions)


def expandable_let(find: Find, name: str) -> Let | None:
    """Return the definition of a name in whose place its body may stand."""
    let = find(name)
    plain = let is not None and let.kind == "sum" and let.dtype == "float" and not let.result
    return let if plain else None


def derived_lookup(find: Find, x: Poly) -> Find:
    """A lookup of the definitions that depend on x alone."""
    stops = ex.tensors(x)

    @cache
    def made(name: str, depth: int) -> bool:
        if name in stops:
            return True
        let = expandable_let(find, name) if depth else None
        read = ex.tensors(let.body) if let is not None else frozenset()
        return bool(read) and all(made(n, depth - 1) for n in read)

    def of(name: str) -> Let | None:
        return expandable_let(find, name) if name not in stops and made(name, _DEEPEST) else None

    return of


def expansion_levels(find: Find, x: Poly, body: Poly) -> Iterator[Find]:
    """Increasing sets of names that may be expanded to recognize a normalization of x.

    First names that depend on x alone; then products of these with other tensors, as y = w*h; then
    adjoints of such names, which a backward keeps named if they are short.
    """
    own = derived_lookup(find, x)
    yield own
    stops = ex.tensors(x)

    def is_own(name: str) -> bool:
        return name in stops or own(name) is not None

    def product(name: str) -> Let | None:
        let = expandable_let(find, name) if name not in stops else None
        if let is None or len(let.body.terms) != 1 or let.body.terms[0].binders:
            return None
        return let if any(map(is_own, ex.tensors(let.body))) else None

    def more(name: str) -> Let | None:
        return own(name) or product(name)

    read = ex.tensors(body)
    if any(product(name) for name in read):
        yield more
    adjoints = {}
    for name in read:
        let = expandable_let(find, name) if name.startswith("@") else None
        if let is not None and any(is_own(n) or more(n) for n in ex.tensors(let.body)):
            adjoints[name] = let
    if adjoints:
        yield lambda name: more(name) or adjoints.get(name)


def multiplied_out(p: Poly) -> Poly:
    """The sum with integer powers of sums multiplied out."""
    return add(ZERO, *map(_expanded_term, p.terms))


def _expanded_term(t: Term) -> Poly:
    factors = []
    for f in t.factors:
        base, n = base_and_power(f)
        whole = isinstance(base, Poly) and n > 1 and n.denominator == 1
        factors += [as_poly(base)] * int(n) if whole else [atom(f)]
    if len(factors) == len(t.factors):
        return poly([t])
    return sum_over(mul(constant(t.coef), *factors), t.binders)
