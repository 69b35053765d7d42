"""Find the tensor being normalized by following let names to its variance."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from derive.algebra.expr import Access, Expr, free_indices, tensors, walk
from derive.algebra.poly import (
    ZERO,
    Poly,
    Term,
    add,
    as_atom,
    atom,
    base_and_power,
    constant,
    mul,
    poly,
    sum_over,
)
from derive.calculus.lets import Find, Let
from derive.kernels.instantiate import as_poly
from derive.kernels.kernel_spec import Axes

_DEEPEST = 6
"""The most names expanded on the way to the normalized tensor."""


def squares(body: Poly, find: Find) -> Iterator[tuple[Expr, Axes]]:
    """Each squared and summed expression reachable from the body, with the indices of the sum."""
    pending: list[tuple[Expr, int]] = [(body, 0)]
    met: set[Expr] = set()
    ways = _SquarePaths(find)
    while pending:
        e, depth = pending.pop(0)
        for part in walk(e):
            if isinstance(part, Access) and part not in met:
                met.add(part)
                let = _expandable_let(find, part.tensor)
                if let is not None and ways.lead(part.tensor, _DEEPEST - depth):
                    pending.append((let.body_at(part.positions), depth + 1))
            elif isinstance(part, Term) and part.binders:
                for f in part.factors:
                    base, exponent = base_and_power(f)
                    own = tuple(i for i in part.binders if i in free_indices(base))
                    if exponent == 2 and own == part.binders:
                        yield base, own


@dataclass(frozen=True)
class _SquarePaths:
    """Names that lead to a summed square within a number of expansions."""

    find: Find
    known: dict[tuple[str, int], bool] = field(default_factory=dict)

    def lead(self, name: str, depth: int) -> bool:
        """True if the definition has a summed square, or reads a name that leads to one."""
        key = name, depth
        if key not in self.known:
            let = _expandable_let(self.find, name) if depth else None
            own = let is not None and (
                sums_square(let.body)
                or any(self.lead(n, depth - 1) for n in sorted(tensors(let.body)))
            )
            self.known[key] = own
        return self.known[key]


@lru_cache(maxsize=1024)
def sums_square(body: Poly) -> bool:
    """True if the body contains a summed square."""
    return any(
        isinstance(part, Term)
        and part.binders
        and any(base_and_power(f)[1] == 2 for f in part.factors)
        for part in walk(body)
    )


def candidates(e: Expr, along: Axes, find: Find) -> Iterator[Poly]:
    """Candidates for x if e is x - mean(x): the terms of e that have the axes."""
    met = set()
    for _ in range(_DEEPEST):
        p = as_poly(e)
        own = poly(t for t in p.terms if free_indices(t) & set(along))
        if own.terms and own not in met and len(p.terms) > 1:
            met.add(own)
            yield own
        lone = as_atom(p)
        let = _expandable_let(find, lone.tensor) if isinstance(lone, Access) else None
        if let is None:
            return
        assert isinstance(lone, Access)
        e = let.body_at(lone.positions)


def _expandable_let(find: Find, name: str) -> Let | None:
    let = find(name)
    if let is None or let.kind != "sum" or let.dtype != "float" or let.result:
        return None
    return let


def derived_lookup(find: Find, x: Poly) -> Find:
    """A lookup of the definitions that depend on x alone."""
    stops = tensors(x)
    known: dict[tuple[str, int], bool] = {}

    def made(name: str, depth: int) -> bool:
        if name in stops:
            return True
        key = name, depth
        if key not in known:
            let = _expandable_let(find, name) if depth else None
            read = tensors(let.body) if let is not None else frozenset()
            known[key] = bool(read) and all(made(n, depth - 1) for n in read)
        return known[key]

    def of(name: str) -> Let | None:
        return _expandable_let(find, name) if name not in stops and made(name, _DEEPEST) else None

    return of


def expansion_levels(find: Find, x: Poly, body: Poly) -> Iterator[Find]:
    """Increasing sets of names that may be expanded to recognize a normalization of x.

    First names that depend on x alone; then products of these with other tensors, as y = w*h; then
    adjoints of such names, which a backward keeps named if they are short.
    """
    own = derived_lookup(find, x)
    yield own
    stops = tensors(x)

    def is_own(name: str) -> bool:
        return name in stops or own(name) is not None

    def product(name: str) -> Let | None:
        let = _expandable_let(find, name) if name not in stops else None
        if let is None or len(let.body.terms) != 1 or let.body.terms[0].binders:
            return None
        return let if any(map(is_own, tensors(let.body))) else None

    def more(name: str) -> Let | None:
        return own(name) or product(name)

    read = tensors(body)
    if any(product(name) for name in read):
        yield more
    adjoints = {}
    for name in read:
        let = _expandable_let(find, name) if name.startswith("@") else None
        if let is not None and any(is_own(n) or more(n) for n in tensors(let.body)):
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
