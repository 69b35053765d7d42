"""Align, reshape and merge the axes of values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace

import sympy

from derive.errors import DeriveError
from derive.tracing.infinite_branches import InfiniteChoice, infinite_choice
from derive.tracing.sizes import SymbolicSizes
from derive.tracing.values import (
    Atom,
    Axis,
    Position,
    TracedNode,
    TracedNumber,
    TracedRead,
    TracedValue,
    joined,
    pieces_of,
    position_map,
    rewritten,
    substituted,
    walk,
)


class Axes(ABC):
    """Axis operations of a reader: alignment, reshaping, merging of indices.

    A value that is read at other positions gets an equation of its own (`named`).
    """

    sizes: SymbolicSizes

    @abstractmethod
    def named(self, value: TracedValue, stem: str) -> TracedValue:
        """Return the value as a read of an equation of its own."""

    def place_of(self, value: TracedValue, dim: int) -> int:
        return dim % len(value.axes) if value.axes else 0

    def aligned(self, *values: TracedValue) -> list[TracedValue]:
        """Return the values broadcast from the right, with shared indices; size 1 has none."""
        rank = max(len(v.axes) for v in values)
        found = [
            replace(v, axes=((),) * (rank - len(v.axes)) + v.axes)
            for v in map(_with_fresh_atoms, values)
        ]
        for n in range(rank):
            leader = next((k for k, v in enumerate(found) if v.axes[n]), None)
            if leader is None:
                continue
            for k in range(leader + 1, len(found)):
                if found[k].axes[n]:
                    found = self._joined_axis(found, leader, k, n)
        return found

    def _joined_axis(
        self, values: list[TracedValue], leader: int, k: int, n: int
    ) -> list[TracedValue]:
        """Return the values, with the indices of axis n shared by the leader and the k-th."""
        one, other = values[leader].axes[n], values[k].axes[n]
        ours, theirs, pieces = self.sizes.refined([a.size for a in one], [a.size for a in other])
        splits, atoms = pieces_of(one, ours, pieces)
        names: dict[Atom, Atom] = {}
        for atom, parts in zip(other, theirs, strict=True):
            if len(parts) == 1:
                names[atom] = atoms[parts[0]]
            else:
                splits[atom] = tuple(atoms[p] for p in parts)
        return [v.split(splits).renamed(names) for v in values]

    def axes_of(self, values: Sequence[TracedValue]) -> tuple[Axis, ...]:
        """Return the axes of a result of aligned values."""
        return tuple(
            next((v.axes[n] for v in values if v.axes[n]), ()) for n in range(len(values[0].axes))
        )

    def regrouped(self, value: TracedValue, shape: Sequence[sympy.Expr]) -> TracedValue:
        """Reshape a value to these sizes, row-major."""
        flat = value.atoms
        targets = [n for n in shape if n != 1]
        try:
            ours, theirs, pieces = self.sizes.refined([a.size for a in flat], targets)
        except DeriveError:
            made = self._counted_anew(value, shape)
            if made is None:
                raise
            return made
        splits, atoms = pieces_of(flat, ours, pieces)
        value = value.split(splits)
        groups = iter(tuple(atoms[p] for p in parts) for parts in theirs)
        return replace(value, axes=tuple(() if n == 1 else next(groups) for n in shape))

    def _counted_anew(self, value: TracedValue, shape: Sequence[sympy.Expr]) -> TracedValue | None:
        """Reshape across row boundaries, by reading at row-major positions; None if sizes differ.

        Leading and trailing axes that do not change stay as they are.
        """
        sizes = [sympy.prod([a.size for a in axis]) for axis in value.axes]
        first = 0
        while first < min(map(len, (sizes, shape))) and sizes[first] == shape[first]:
            first += 1
        last = 0
        while last < min(map(len, (sizes, shape))) - first and sizes[-1 - last] == shape[-1 - last]:
            last += 1
        end = len(sizes) - last
        inner = tuple(a for axis in value.axes[first:end] for a in axis)
        if not self.sizes.equal(
            sympy.prod(sizes[first:end]), sympy.prod(shape[first : len(shape) - last])
        ):
            return None
        axes = (*value.axes[:first], inner, *value.axes[end:])
        whole, atom = self.single(replace(value, axes=axes), first)
        new = [Atom.new(n) for n in shape[first : len(shape) - last] if n != 1]
        groups = iter((a,) for a in new)
        made = tuple(() if n == 1 else next(groups) for n in shape[first : len(shape) - last])
        node = substituted(whole.node, {atom: joined(new)})
        return TracedValue((*whole.axes[:first], *made, *whole.axes[first + 1 :]), node, value.kind)

    def single(self, value: TracedValue, dim: int) -> tuple[TracedValue, Atom]:
        """Merge the indices of an axis into one; return the value and that index."""
        axis = value.axes[dim]
        if len(axis) == 1:
            return value, axis[0]
        if not axis:
            raise DeriveError("an axis of size 1 is not supported here")
        if (left := infinite_choice(value.node)) is not None:
            return self._single_apart(value, left, dim)
        value = self.named(value, "joined")
        atom = Atom.new(sympy.prod([a.size for a in value.axes[dim]]))
        kept = [n for n, own in enumerate(value.axes) if own]
        assert isinstance(value.node, TracedRead)
        positions = list(value.node.positions)
        positions[kept.index(dim)] = Position(atom)
        axes = tuple((atom,) if n == dim else own for n, own in enumerate(value.axes))
        return replace(value, axes=axes, node=TracedRead(value.node.name, tuple(positions))), atom

    def _single_apart(
        self, value: TracedValue, left: InfiniteChoice, dim: int
    ) -> tuple[TracedValue, Atom]:
        """Merge the indices of an axis in a choice with an infinite branch.

        No equation can hold the infinite branch, so the finite branch and the condition are merged.
        """
        rest, atom = self.single(replace(value, node=left.rest), dim)
        there = position_map(
            dict(zip(_atoms_except(value, dim), _atoms_except(rest, dim), strict=True))
        )
        whole = joined(value.axes[dim])
        test = rewritten(left.condition, lambda x: Position(atom) if x == whole else x)
        if {x.atom for x in walk(test) if isinstance(x, Position)} & {*value.axes[dim]}:
            own, place = self.single(replace(value, node=left.condition, kind="bool"), dim)
            there = position_map(
                dict(zip(_atoms_except(own, dim), _atoms_except(rest, dim), strict=True))
            )
            test = substituted(own.node, {place: Position(atom)})
        return replace(
            rest, node=with_finite_branch(left, substituted(test, there), rest.node)
        ), atom


def with_finite_branch(left: InfiniteChoice, condition: TracedNode, rest: TracedNode) -> TracedNode:
    """Return the choice with another condition and another finite branch."""
    return replace(left, condition=condition).with_branches(
        TracedNumber(left.sign * sympy.oo), rest
    )


def _atoms_except(value: TracedValue, dim: int) -> list[Atom]:
    return [a for n, axis in enumerate(value.axes) for a in axis if n != dim]


def _with_fresh_atoms(value: TracedValue) -> TracedValue:
    return value.fresh()
