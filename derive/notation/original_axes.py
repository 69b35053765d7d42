"""Translate formulas with one index per axis back to the user's axes.

If C has the axes ``[(t d), 0]``, then ``C[t, d]`` becomes ``C[(t d), 0]``. It becomes ``C[k, 0]``
if t and d occur only side by side and the operation has the letter k for both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeGuard

from derive.algebra.expr import (
    Access,
    Add,
    Composite,
    Expr,
    Index,
    Mul,
    Num,
    Reduce,
    Size,
    num,
    walk,
)
from derive.algebra.reductions import POSITIONS
from derive.algebra.substitution import fresh, replace_inside_out
from derive.notation.operation import Operation
from derive.notation.split import in_parts, split_axes, splits

Given = tuple[tuple[Expr, int], ...]
"""Each of the user's axes, and the number of indices that it became."""


def given_axes(op: Operation) -> dict[str, Given]:
    """Return the user's axes of each input and equation."""
    inside = split_axes(op).axes
    axes = {t.name: t.axes for t in op.inputs} | {e.name: e.axes for e in op.equations}
    return {
        name: tuple((a, len(inner)) for a, inner in zip(axes[name], inside[name], strict=True))
        for name in axes
    }


def letters_of(op: Operation) -> dict[tuple[str, ...], Index]:
    """Return extents of adjacent indices -> the user's single index for all of them."""
    written = [i for e in op.equations for i in walk(e.body) if isinstance(i, Index)]
    written += [i for e in op.equations for i in e.axes if isinstance(i, Index)]
    found: dict[tuple[str, ...], Index] = {}
    for extent, parts in splits(op).items():
        index = next((i for i in written if i.extent == extent and "'" not in i.name), None)
        if index is not None:
            found.setdefault(parts, index)
    return found


def alike(op: Operation) -> dict[tuple[str, bool], tuple[str, ...]]:
    """Return the user's letters of each extent and of groups of it, in order."""
    trees = [*(a for t in op.inputs for a in t.axes), *(a for e in op.equations for a in e.axes)]
    trees += [e.body for e in op.equations]
    found: dict[tuple[str, bool], dict[str, None]] = {}
    for i in (i for tree in trees for i in walk(tree) if isinstance(i, Index)):
        if i.name.isalpha():
            found.setdefault((i.extent, i.group), {})[i.name] = None
    return {key: tuple(letters) for key, letters in found.items()}


def as_given(op: Operation, e: Expr) -> Expr:
    """Return the right side with the constant parts of composite axes in the user's notation.

    Internally, they are positions on the whole axis.
    """
    axes = {t.name: t.axes for t in op.inputs} | {q.name: q.axes for q in op.equations}
    sizes = {extent.name: extent.size for extent in op.extents}

    def written(part: Expr) -> Expr:
        if not isinstance(part, Access):
            return part
        pairs = zip(part.positions, axes[part.tensor], strict=True)
        parts = (_in_blocks(in_parts(p, a, sizes) if _is_composite(a) else p, a) for p, a in pairs)
        return Access(part.tensor, tuple(parts))

    return replace_inside_out(e, written)


def _is_composite(axis: Expr) -> TypeGuard[Composite]:
    return isinstance(axis, Composite)


def _in_blocks(position: Expr, axis: Expr) -> Expr:
    """Write n*size(e) + e as (n e), on an axis that is not known to have these parts."""
    if not isinstance(position, Add) or len(position.args) != 2:
        return position
    if isinstance(axis, Composite) and len(axis.args) != 2:
        return position
    first, e = position.args
    scale = first.args if isinstance(first, Mul) else (num(1), first)
    if isinstance(e, Index) and len(scale) == 2 and scale[1] is Size(e.extent):
        return Composite((scale[0], e)) if isinstance(scale[0], Num) else position
    return position


def on_given_axes(e: Expr, owners: Mapping[str, Given]) -> Expr:
    """Return e with each tensor read on the user's axes."""

    def given(part: Expr) -> Expr:
        if not isinstance(part, Access) or part.tensor not in owners:
            return part
        left = iter(part.positions)
        on_axes = (_on_axis(axis, n, left) for axis, n in owners[part.tensor])
        return Access(part.tensor, tuple(on_axes))

    return replace_inside_out(e, given)


def _on_axis(axis: Expr, n: int, positions: Iterator[Expr]) -> Expr:
    if isinstance(axis, Num):
        return axis
    parts = tuple(next(positions) for _ in range(n))
    return parts[0] if n == 1 else Composite(parts)


def with_letters(
    expressions: Sequence[Expr], letters: Mapping[tuple[str, ...], Index]
) -> tuple[Expr, ...]:
    """Replace indices that occur only side by side by the single index for them."""
    if not letters:
        return tuple(expressions)
    every = [e for expression in expressions for e in walk(expression)]
    taken = [e for e in every if isinstance(e, Index)]
    whole: dict[Expr, Index] = {}
    for e in dict.fromkeys(e for e in every if isinstance(e, Composite)):
        parts = [i for i in e.args if isinstance(i, Index)]
        letter = letters.get(tuple(i.extent for i in parts))
        if letter is None or len(set(parts)) < len(e.args):
            continue
        if all(i not in expressions and _only_within(i, e, every) for i in parts):
            whole[e] = fresh(letter, taken)
            taken.append(whole[e])
    return tuple(_composites_replaced(e, whole) for e in expressions)


def _only_within(index: Index, composite: Composite, every: Sequence[Expr]) -> bool:
    """True if the index occurs only in this composite, or is bound with its other parts."""
    count: Counter[bool] = Counter()
    for e in every:
        own = sum(part is index for part in e.parts())
        if isinstance(e, Reduce) and index in e.indices:
            order = e.kind in POSITIONS
            if order or not set(composite.args) <= set(e.indices):
                return False
            own -= 1
        count[e is composite] += own
    return not count[False]


def _composites_replaced(e: Expr, whole: Mapping[Expr, Index]) -> Expr:
    if e in whole:
        return whole[e]
    mapped: Expr = e.map(lambda part: _composites_replaced(part, whole))
    if isinstance(mapped, Reduce):
        indices = list(mapped.indices)
        for composite, index in whole.items():
            if set(composite.parts()) <= set(indices):
                first = min(indices.index(part) for part in composite.parts())
                indices[first] = index
                indices = [i for i in indices if i not in set(composite.parts())]
        return Reduce(mapped.kind, tuple(indices), mapped.body, mapped.condition)
    return mapped
