"""What each equation is to an index n that is taken in blocks.

    mapped        y[n, ...], and whoever reads y has one n at a time: made block by block
    accumulated   s[...] = Sum_n f[n, ...]: the sum of what the blocks give
    whole         all else: made once, before the blocks or after them

A mean is a sum over the number of what was taken; a sum inside an equation is one of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from derive.algebra.expr import (
    Access,
    Composite,
    Expr,
    Index,
    Iverson,
    Pow,
    Reduce,
    Size,
    accesses,
    free_indices,
    num,
    product_of,
    sort_key,
    walk,
)
from derive.algebra.substitution import numbered, substitute
from derive.algebra.substitution import replace as replaced
from derive.errors import DeriveError
from derive.notation.operation import AxisOf, Equation, KeepDim, Operation

_SUMS = ("sum", "mean")
"""What is the sum of what blocks give, or a quotient of such sums."""


@dataclass(frozen=True)
class Roles:
    """The equations, sums standing alone, and which of them are made block by block.

    ``rows`` has the axis of n in each that is mapped, ``sums`` those that are accumulated.
    """

    equations: tuple[Equation, ...]
    index: Index
    rows: Mapping[str, int]
    sums: frozenset[str]

    def is_looped(self, name: str) -> bool:
        """Whether an equation is computed in blocks."""
        return name in self.rows or name in self.sums


def roles(op: Operation, letter: str) -> Roles:
    """What each equation of the operation is to the index that the spec calls ``letter``."""
    index = _index(op, letter)
    taken = {x.name for x in (*op.inputs, *op.parameters, *op.equations)}
    given = (_of_index(e, index) for e in op.equations)
    equations = [part for e in given for part in _sums_apart(e, index, taken)]
    for equation in equations:
        _check(equation, index)
    sums = frozenset(e.name for e in equations if _is_sum(e, index))
    places = {e.name: _place(e, index) for e in equations}
    rows: dict[str, int] = {}
    read: dict[str, set[int | None]] = {}
    for equation in reversed(equations):
        axis = places[equation.name]
        readings = read.get(equation.name, set())
        wanted = equation.name in op.outputs or readings
        if axis is not None and wanted and readings <= {axis}:
            rows[equation.name] = axis
        looped = equation.name in rows or equation.name in sums
        for access in accesses(equation.body):
            at = {n for n, e in enumerate(access.positions) if e is index} if looped else set()
            own = places.get(access.tensor)
            # Of several the first is the one that runs with the block.
            read.setdefault(access.tensor, set()).add(own if own in at else min(at, default=None))
    if not rows and not sums:
        raise refused(index, "no equation maps or sums over this index")
    return Roles(tuple(equations), index, rows, sums)


def _place(equation: Equation, index: Index) -> int | None:
    """The axis of the index in what the equation makes."""
    return next((n for n, i in enumerate(equation.axes) if i is index), None)


def refused(index: Index, why: str) -> DeriveError:
    """The index cannot be taken in blocks."""
    return DeriveError(f"index {index.name} cannot be processed in blocks: {why}")


def _index(op: Operation, letter: str) -> Index:
    """The index of this letter."""
    axes = [*(a for t in op.inputs for a in t.axes), *(a for e in op.equations for a in e.axes)]
    every = (part for e in (*axes, *(e.body for e in op.equations)) for part in walk(e))
    found: dict[str, Index] = {}
    for part in every:
        if isinstance(part, Index) and not part.name.endswith("'"):
            found.setdefault(part.name, part)
    if letter not in found:
        known = ", ".join(found) or "none"
        raise DeriveError(f"{op.name} has no index {letter}; its indices are {known}")
    index = found[letter]
    if index.group:
        raise refused(index, f"*{letter} is a group of axes")
    for axis in axes:
        if isinstance(axis, Composite) and index in axis.args:
            raise refused(index, f"it is part of the composite axis ({_spoken(axis)})")
    extent = next(e for e in op.extents if e.name == index.extent)
    if not extent.sources:
        raise refused(index, "no axis of an input has this index")
    for p in op.parameters:
        if isinstance(p, AxisOf | KeepDim):
            raise refused(
                index, f"parameter {p.name} sets the position of axis {p.index.name} at run time"
            )
    return index


def _spoken(axis: Composite) -> str:
    return " ".join(part.name if isinstance(part, Index) else repr(part) for part in axis.args)


def _of_index(equation: Equation, index: Index) -> Equation:
    """The equation with its only index of that size called as the index is."""
    every = [part for e in (*equation.axes, equation.body) for part in walk(e)]
    alike = {e for e in every if isinstance(e, Index) and e.extent == index.extent}
    if len(alike) != 1 or index in alike:
        return equation
    (other,) = alike
    names = {e.name for e in every if isinstance(e, Index)}
    if other.group or index.name in names:
        return equation

    def renamed(e: Expr) -> Expr:
        return replaced(e, lambda part: index if part is other else None)

    axes = tuple(renamed(axis) for axis in equation.axes)
    return replace(equation, axes=axes, body=renamed(equation.body))


# -------------------------------------------------------------------- sums


def _is_sum(equation: Equation, index: Index, body: Expr | None = None) -> bool:
    """Whether the equation is the sum over the index, and is nothing else but this."""
    whole = equation.body
    is_sum = isinstance(whole, Reduce) and whole.kind == "sum" and index in whole.indices
    return is_sum and (body is None or body is whole)


def _sums_apart(equation: Equation, index: Index, taken: set[str]) -> Iterator[Equation]:
    """The equation after an equation for each sum over all of the index that it is made of."""
    body = equation.body
    if isinstance(body, Reduce) and body.kind == "sum" and _is_over(body, index):
        yield replace(equation, body=_over(body, index))
        return
    made: list[Equation] = []

    def named(total: Reduce) -> Expr:
        order = [i for i in equation.axes if i in free_indices(total)]
        rest = sorted(free_indices(total) - set(order), key=sort_key)
        axes = (*order, *rest)
        name = numbered(f"{equation.name}_sum", taken)
        taken.add(name)
        made.append(Equation(name, axes, total, "float", equation.line, equation.column))
        return Access(name, axes)

    def visit(e: Expr) -> Expr | None:
        if not isinstance(e, Reduce) or e.kind not in _SUMS or not _is_over(e, index):
            return None
        e = _over(e, index)
        total = named(Reduce("sum", e.indices, e.body, e.condition))
        if e.kind == "sum":
            return total
        if e.condition is None:
            count = product_of([Size(i.extent) for i in e.indices])
        else:
            count = named(Reduce("sum", e.indices, Iverson(e.condition), None))
        return product_of([total, Pow(count, num(-1))])

    body = replaced(body, visit)
    yield from made
    yield replace(equation, body=body)


def _is_over(e: Reduce, index: Index) -> bool:
    """Whether a reduction takes all positions of the index, the same for each of them."""
    bound = [i for i in e.indices if i.extent == index.extent and _bare(i) == index.name]
    return len(bound) == 1 and index not in free_indices(e)


def _bare(i: Index) -> str:
    return i.name.rstrip("'")


def _over(e: Reduce, index: Index) -> Reduce:
    """The reduction with its index called as the index is."""
    own = next(i for i in e.indices if i.extent == index.extent and _bare(i) == index.name)
    if own is index:
        return e
    inner = substitute(e.body, {own: index})
    condition = None if e.condition is None else substitute(e.condition, {own: index})
    return Reduce(e.kind, tuple(index if i is own else i for i in e.indices), inner, condition)


def _check(equation: Equation, index: Index) -> None:
    """An error where an equation takes the index otherwise than one block after another."""
    for e in walk(equation.body):
        if isinstance(e, Reduce) and _is_over(e, index) and not _is_sum(equation, index, e):
            raise refused(index, f"equation {equation.name} computes the {e.kind} over it")
        if isinstance(e, Access) and any(
            position is not index and index in _outside_of_reads(position)
            for position in e.positions
        ):
            what = f"equation {equation.name} reads {e.tensor} at positions computed from it"
            raise refused(index, what)


def _outside_of_reads(e: Expr) -> set[Index]:
    """The indices of a position, but for those of what is read for it."""
    if isinstance(e, Access):
        return set()
    if isinstance(e, Index):
        return {e}
    return set().union(*map(_outside_of_reads, e.parts()))
