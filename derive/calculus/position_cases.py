"""Conditions that select one position of indices whose sizes are numbers.

    where(t == 0, a, where(t == 1, b, c))  =  delta(t, 0)*a + delta(t, 1)*b + delta(t, 2)*c

Here t has three positions. A position may be row-major over several indices: 3*t + u == 5 is t = 1
and u = 2. The values are stacked, and an access at a fixed position reads one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod

from derive.algebra.affine import Polynomial
from derive.algebra.expr import Delta, Expr, Index, Num, Rel, free_indices, num
from derive.algebra.inequalities import Bounds
from derive.algebra.poly import Poly, as_atom


@dataclass(frozen=True)
class PositionCase:
    """The condition that indices are at a row-major position, negated if ``denied``."""

    denied: bool
    indices: tuple[tuple[Index, int], ...]
    """Each with its size, outermost first."""
    position: int

    def at(self, position: int) -> tuple[Delta, ...]:
        """Deltas that fix the indices at a position."""
        deltas: list[Delta] = []
        for i, size in reversed(self.indices):
            position, digit = divmod(position, size)
            deltas.insert(0, Delta(i, num(digit)))
        return tuple(deltas)

    def excludes(self, factor: Expr) -> bool:
        """True if the factor is a delta that fixes one of the indices at another position."""
        if not isinstance(factor, Delta) or not isinstance(factor.position, Num):
            return False
        return any(d.axis is factor.axis and d is not factor for d in self.at(self.position))


def case_of(bounds: Bounds, condition: Expr) -> PositionCase | None:
    """The case of t == 1, t != 1 or 3*t + u == 4 for indices whose sizes are numbers."""
    if not isinstance(condition, Rel) or condition.op not in ("==", "!="):
        return None
    left, right = condition.left, condition.right
    assert isinstance(left, Poly) and isinstance(right, Poly)
    sides = as_atom(left), as_atom(right)
    n = next((x.value for x in sides if isinstance(x, Num)), None)
    other = right if isinstance(sides[0], Num) else left
    form = bounds.form(other) if n is not None and free_indices(other) else None
    if n is None or form is None:
        return None
    terms = (form - Polynomial.of(num(n))).terms
    sign = -1 if any(c < 0 for key, c in terms.items() if key) else 1
    indices: list[tuple[Index, int]] = []
    whole = 1
    for key, c in sorted(terms.items(), key=lambda term: term[1] * sign):
        if not key:
            continue
        size = bounds.size(key[0].extent).number if isinstance(key[0], Index) else None
        if size is None or len(key) > 1 or c * sign != whole:
            return None
        assert isinstance(key[0], Index)
        indices.insert(0, (key[0], int(size)))
        whole *= int(size)
    position = -sign * terms.get((), Fraction(0))
    if not indices or position not in range(whole):
        return None
    return PositionCase(condition.op == "!=", tuple(indices), int(position))


def only_case(bounds: Bounds, condition: Expr, around: Sequence[Expr]) -> tuple[Delta, ...] | None:
    """Deltas of the only position that a condition admits.

    t == 1 admits one. t != 1 admits one if the conditions around it exclude all others but one.
    """
    case = case_of(bounds, condition)
    if case is None:
        return None
    if not case.denied:
        return case.at(case.position)
    others = (case_of(bounds, c) for c in around)
    gone = {c.position for c in others if c and c.denied and c.indices == case.indices}
    left = set(range(prod(size for _, size in case.indices))) - gone - {case.position}
    return case.at(left.pop()) if len(left) == 1 else None
