"""Sizes at which a guarded read is out of range although its condition holds.

    y[t] = where(t < 3, x[t + size(n) - 3], 0)

reads x at -1 where size(n) is 2, which is an error. Where condition and position p are affine, the
sizes of such calls follow from eliminating the indices from

    0 <= i < size(i)  for the indices of both,  the condition,  p < 0 or size(axis) <= p

What is left are inequalities of sizes: if all hold, some read is out of range. The converse may
fail where coefficients other than 1 and -1 meet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, product
from math import prod

from derive.algebra import expr as ex
from derive.algebra.affine import Polynomial, room
from derive.algebra.inequalities import Bounds
from derive.algebra.logic import conjunction, negate
from derive.calculus.guards import bounds_of
from derive.notation.guards import UnderConditions
from derive.notation.operation import Choice, Operation, declared_axes

_ONE = Polynomial.of(1)

_MOST_CASES = 16
"""A condition with more alternatives is not analyzed."""

_Cases = list[tuple[Polynomial, ...]]
"""Alternatives, each a conjunction of forms that are at least 0."""


@dataclass(frozen=True)
class ReadOutOfRange:
    """A read, out of range on axis ``axis`` if all forms, in sizes, are at least 0."""

    tensor: str
    axis: int
    size: ex.Size
    position: ex.Expr
    forms: tuple[Polynomial, ...]


def reads_out_of_range(op: Operation) -> list[ReadOutOfRange]:
    """Return the guarded reads, needed for every choice of outputs, that may be out of range."""
    reads = _Reads(bounds_of(op), declared_axes(op))
    choice = next((p for p in op.parameters if isinstance(p, Choice)), None)
    options = {name for _, name in choice.outputs} if choice else set()
    rest = set(op.outputs) - options
    needed = [_needed(op, rest | {name}) for name in options] or [_needed(op, rest)]
    for equation in op.equations:
        if all(equation.name in names for names in needed):
            reads.body(equation.body)
    return reads.found


def _needed(op: Operation, outputs: set[str]) -> set[str]:
    """Return the tensors from which these outputs are computed, and themselves."""
    for equation in reversed(op.equations):
        if equation.name in outputs:
            outputs = outputs | {a.tensor for a in ex.accesses(equation.body)}
    return outputs


class _Reads(UnderConditions):
    """Collects the reads out of range, without those that others imply."""

    def __init__(self, bounds: Bounds, axes: Mapping[str, tuple[ex.Expr, ...]]) -> None:
        self._bounds = bounds
        self._axes = axes
        self.found: list[ReadOutOfRange] = []

    def position(self, tensor: str, n: int, e: ex.Expr, over: tuple[ex.Expr, ...]) -> ex.Expr:
        axis = self._axes[tensor][n]
        if isinstance(e, ex.Guard) and isinstance(axis, ex.Index) and not axis.group:
            size = ex.Size(axis.extent)
            for forms in self._sizes(e.position, conjunction(over), axis.extent):
                if not any(self._implied(forms, old.forms) for old in self.found):
                    self.found.append(ReadOutOfRange(tensor, n, size, e.position, forms))
        # The condition of a guard stands around it too, where its own reads are met.
        self.body(e.position if isinstance(e, ex.Guard) else e, over)
        return e

    def _sizes(
        self, position: ex.Expr, condition: ex.Expr, axis: str
    ) -> Iterator[tuple[Polynomial, ...]]:
        """Yield conjunctions of forms >= 0 in sizes for which the position is out of range."""
        p, cases = self._bounds.form(position), _cases(self._bounds, condition)
        if p is not None and cases is not None:
            for case in cases:
                for outside in (-p - _ONE, p - self._bounds.size(axis)):
                    forms = self._bounds.without_indices([*case, outside])
                    if forms:
                        yield forms

    def _implied(self, forms: Sequence[Polynomial], others: Sequence[Polynomial]) -> bool:
        """True if all others are >= 0 where the forms are."""
        return all(any(self._bounds.at_most(f, o) for f in forms) for o in others)


def _cases(bounds: Bounds, condition: ex.Expr) -> _Cases | None:
    """Return the alternatives of a condition; None if a part of it is not affine."""
    match condition:
        case ex.And(args):
            parts = [_cases(bounds, a) for a in args]
            found = [p for p in parts if p is not None]
            if len(found) < len(parts) or prod(map(len, found)) > _MOST_CASES:
                return None
            return [tuple(chain.from_iterable(choice)) for choice in product(*found)]
        case ex.Or(args):
            parts = [_cases(bounds, a) for a in args]
            found = [p for p in parts if p is not None]
            return list(chain.from_iterable(found)) if len(found) == len(parts) else None
        case ex.Not(ex.And(args) | ex.Or(args) as inner):
            turned = ex.Or if isinstance(inner, ex.And) else ex.And
            return _cases(bounds, turned(tuple(map(negate, args))))
        case ex.Not(ex.Rel("==" | "!=") as inner):
            return _cases(bounds, negate(inner))
        case ex.Iverson(inner) | ex.Reduce("any", _, inner, None):
            return _cases(bounds, inner)
        case ex.Rel("==" | "!=" as op, left, right):
            apart = bounds.form(left - right)
            if apart is None:
                return None
            return [(apart, -apart)] if op == "==" else [(apart - _ONE,), (-apart - _ONE,)]
    gap = room(condition)
    form = None if gap is None else bounds.form(gap)
    return None if form is None else [(form,)]
