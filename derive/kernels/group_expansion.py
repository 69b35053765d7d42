"""Expand equations over groups of axes to concrete axes; a group is any number of axes.

mean[*s](x[*p,*s])   of  *p = n  and  *s = c, t:   Sum_c,t x[n,c,t] / (size(c)*size(t))
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from derive.algebra.expr import Access, Call, Expr, Guard, Index, Iverson, Num, Param, Pow, Size
from derive.algebra.poly import ONE, ZERO, Poly, Term, add, atom, constant, mul, power, sum_over
from derive.algebra.substitution import rename_apart, substitute
from derive.kernels.instantiate import as_poly

Axes = tuple[Index, ...]


@dataclass(frozen=True)
class GroupExpansion:
    """The concrete axes of each extent of an equation, and the values of its arguments."""

    home: Mapping[str, Axes]
    found: Mapping[str, Poly]

    def __call__(self, e: Expr) -> Poly:
        """The equation with these axes and arguments."""
        return self._told(e, {})

    def _told(self, e: Expr, now: Mapping[Index, Axes]) -> Poly:
        match e:
            case Access(name, positions):
                whole: dict[Index, Expr] = {}
                for i in positions:
                    assert isinstance(i, Index)
                    own = self.home[i.extent]
                    whole |= zip(own, now.get(i, own), strict=True)
                return as_poly(substitute(self.found[name], whole))
            case Param(name):
                return self.found[name]
            case Size(extent):
                return mul(ONE, *(atom(Size(i.extent)) for i in self.home[extent]))
            case Pow(base, Num(n)):
                return power(self._told(base, now), n)
            case Call(name, args):
                return atom(Call(name, tuple(self._told(a, now) for a in args)))
            case Iverson(condition):
                return self._told(condition, now)
            case Guard(_, position):
                # Drop the guard: its condition is a cofactor, and the exponential of a softmax is
                # at most 1.
                return as_poly(self._told(position, now))
            case Poly(terms):
                return add(ZERO, *(self._term(t, now) for t in terms))
        raise TypeError(f"no equation of groups of axes has {e!r}")

    def _term(self, t: Term, now: Mapping[Index, Axes]) -> Poly:
        taken = {i for own in (*self.home.values(), *now.values()) for i in own}
        inside = dict(now)
        binders: list[Index] = []
        for b in t.binders:
            inside[b] = rename_apart(self.home[b.extent], taken)
            taken.update(inside[b])
            binders += inside[b]
        factors = (self._told(f, inside) for f in t.factors)
        return sum_over(mul(constant(t.coef), *factors), binders)


def segments(
    axes: Sequence[Index], summed: frozenset[Index], pattern: Sequence[tuple[Index, bool]]
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


def matched(formals: Sequence[Index], free: frozenset[Index]) -> Iterator[dict[Index, Index]]:
    """Every injective renaming of these indices to ``free`` ones of equal extents."""
    if not formals:
        yield {}
        return
    first, *rest = formals
    for i in sorted(free, key=lambda i: i.name):
        if i.extent == first.extent and i.group == first.group:
            for found in matched(rest, free - {i}):
                yield {first: i, **found}
