"""Classify each equation by its role for an index n that is processed in blocks.

    mapped        y[n, ...], and every reader of y reads one n at a time: computed per block
    accumulated   s[...] = Sum_n f[n, ...]: the sum of the blocks' contributions
    whole         any other equation: computed once, before or after the blocks

A mean is a sum divided by a count. A sum inside an equation becomes an equation of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from derive.algebra import expr as ex
from derive.algebra.substitution import fresh_numbered, substitution
from derive.algebra.substitution import replace as replaced
from derive.errors import DeriveError
from derive.notation.operation import AxisOf, Equation, KeepDim, Operation

_SUMS = ("sum", "mean")
"""Reductions that can be computed by accumulation over blocks."""


@dataclass(frozen=True)
class Roles:
    """The equations, with sums split off, and which of them are computed per block.

    ``rows`` maps each mapped equation to its axis of n, ``sums`` has the accumulated ones.
    """

    equations: tuple[Equation, ...]
    index: ex.Index
    rows: Mapping[str, int]
    sums: frozenset[str]

    def is_looped(self, name: str) -> bool:
        """True if an equation is computed in blocks."""
        return name in self.rows or name in self.sums


def roles(op: Operation, letter: str) -> Roles:
    """The roles of the equations for the index that the spec calls ``letter``."""
    index = _block_index(op, letter)
    taken = {x.name for x in (*op.inputs, *op.parameters, *op.equations)}
    given = (_of_index(e, index) for e in op.equations)
    equations = [part for e in given for part in _sums_apart(e, index, taken)]
    for equation in equations:
        _check(equation, index)
    sums = frozenset(e.name for e in equations if _is_index_sum(e, index))
    places = {e.name: e.axes.index(index) if index in e.axes else None for e in equations}
    rows: dict[str, int] = {}
    read: dict[str, set[int | None]] = {}
    for equation in reversed(equations):
        axis = places[equation.name]
        readings = read.get(equation.name, set())
        wanted = equation.name in op.outputs or readings
        if axis is not None and wanted and readings <= {axis}:
            rows[equation.name] = axis
        looped = equation.name in rows or equation.name in sums
        for access in ex.accesses(equation.body):
            at = {n for n, e in enumerate(access.positions) if e is index} if looped else set()
            own = places.get(access.tensor)
            # If n is at several axes, the first is sliced with the block.
            read.setdefault(access.tensor, set()).add(own if own in at else min(at, default=None))
    if not rows and not sums:
        raise block_error(index, "no equation maps or sums over this index")
    return Roles(tuple(equations), index, rows, sums)


def block_error(index: ex.Index, why: str) -> DeriveError:
    """The error that the index cannot be processed in blocks."""
    return DeriveError(
        f"index {index.name} cannot be processed in blocks: {why}", kind="not-in-blocks"
    )


def _block_index(op: Operation, letter: str) -> ex.Index:
    """The index with this letter; an error if it cannot be processed in blocks."""
    axes = [*(a for t in op.inputs for a in t.axes), *(a for e in op.equations for a in e.axes)]
    every = (part for e in (*axes, *(e.body for e in op.equations)) for part in ex.walk(e))
    found: dict[str, ex.Index] = {}
    for part in every:
        if isinstance(part, ex.Index) and not part.name.endswith("'"):
            found.setdefault(part.name, part)
    if letter not in found:
        known = ", ".join(found) or "none"
        raise DeriveError(
            f"{op.name} has no index {letter}; its indices are {known}", kind="unknown-index"
        )
    index = found[letter]
    if index.group:
        raise block_error(index, f"*{letter} is a group of axes")
    for axis in axes:
        if isinstance(axis, ex.Composite) and index in axis.args:
            parts = (p.name if isinstance(p, ex.Index) else repr(p) for p in axis.args)
            raise block_error(index, f"it is part of the composite axis ({' '.join(parts)})")
    extent = next(e for e in op.extents if e.name == index.extent)
    if not extent.sources:
        raise block_error(index, "no axis of an input has this index")
    for p in op.parameters:
        if isinstance(p, AxisOf | KeepDim):
            raise block_error(
                index, f"parameter {p.name} sets the position of axis {p.index.name} at run time"
            )
    return index


def _of_index(equation: Equation, index: ex.Index) -> Equation:
    """The equation with its only index of that extent renamed to the block index."""
    every = [part for e in (*equation.axes, equation.body) for part in ex.walk(e)]
    alike = {e for e in every if isinstance(e, ex.Index) and e.extent == index.extent}
    if len(alike) != 1 or index in alike:
        return equation
    (other,) = alike
    names = {e.name for e in every if isinstance(e, ex.Index)}
    if other.group or index.name in names:
        return equation

    def renamed(e: ex.Expr) -> ex.Expr:
        return replaced(e, lambda part: index if part is other else None)

    axes = tuple(renamed(axis) for axis in equation.axes)
    return replace(equation, axes=axes, body=renamed(equation.body))


# -------------------------------------------------------------------- sums


def _is_index_sum(equation: Equation, index: ex.Index) -> bool:
    """True if the equation is exactly a sum over the index."""
    whole = equation.body
    return isinstance(whole, ex.Reduce) and whole.kind == "sum" and index in whole.indices


def _sums_apart(equation: Equation, index: ex.Index, taken: set[str]) -> Iterator[Equation]:
    """The equation, preceded by an equation for each full sum over the index that it contains."""
    body = equation.body
    if isinstance(body, ex.Reduce) and body.kind == "sum" and _is_over(body, index):
        yield replace(equation, body=_with_block_index(body, index))
        return
    made: list[Equation] = []

    def named(total: ex.Reduce) -> ex.Expr:
        order = [i for i in equation.axes if i in ex.free_indices(total)]
        rest = sorted(ex.free_indices(total) - set(order), key=ex.sort_key)
        axes = (*order, *rest)
        name = fresh_numbered(f"{equation.name}_sum", taken)
        taken.add(name)
        made.append(Equation(name, axes, total, "float", equation.line, equation.column))
        return ex.Access(name, axes)

    def visit(e: ex.Expr) -> ex.Expr | None:
        if not isinstance(e, ex.Reduce) or e.kind not in _SUMS or not _is_over(e, index):
            return None
        e = _with_block_index(e, index)
        total = named(ex.Reduce("sum", e.indices, e.body, e.condition))
        if e.kind == "sum":
            return total
        if e.condition is None:
            count = ex.product_of([ex.Size(i.extent) for i in e.indices])
        else:
            count = named(ex.Reduce("sum", e.indices, ex.Iverson(e.condition), None))
        return ex.product_of([total, ex.Pow(count, ex.num(-1))])

    body = replaced(body, visit)
    yield from made
    yield replace(equation, body=body)


def _is_over(e: ex.Reduce, index: ex.Index) -> bool:
    """True if a reduction runs over the whole index, independent of its value outside."""
    return len(_bound_like(e, index)) == 1 and index not in ex.free_indices(e)


def _bound_like(e: ex.Reduce, index: ex.Index) -> list[ex.Index]:
    """The bound indices that have the letter and the extent of the index."""
    alike = (i for i in e.indices if i.extent == index.extent)
    return [i for i in alike if i.name.rstrip("'") == index.name]


def _with_block_index(e: ex.Reduce, index: ex.Index) -> ex.Reduce:
    """The reduction with its bound index renamed to the block index."""
    (own,) = _bound_like(e, index)
    made: ex.Reduce = e.map(substitution({own: index}))
    return made


def _check(equation: Equation, index: ex.Index) -> None:
    """Raise an error if an equation uses the index in a way that blocks do not allow."""
    for e in ex.walk(equation.body):
        is_own = e is equation.body and _is_index_sum(equation, index)
        if isinstance(e, ex.Reduce) and _is_over(e, index) and not is_own:
            raise block_error(index, f"equation {equation.name} computes the {e.kind} over it")
        if isinstance(e, ex.Access) and any(
            position is not index and index in _outside_of_reads(position)
            for position in e.positions
        ):
            what = f"equation {equation.name} reads {e.tensor} at positions computed from it"
            raise block_error(index, what)


def _outside_of_reads(e: ex.Expr) -> set[ex.Index]:
    """The indices of a position, except those inside reads."""
    parts = ex.walk(e, lambda part: () if isinstance(part, ex.Access) else part.parts())
    return {part for part in parts if isinstance(part, ex.Index)}
