"""The axes of each tensor, and which of them are groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from derive.algebra.expr import Composite, Expr, Index, num, walk
from derive.notation import syntax
from derive.notation.resource_limits import AXES
from derive.notation.scope import AccessSite
from derive.notation.symbols import Declared
from derive.notation.syntax import fail


@dataclass(frozen=True)
class Shapes:
    """``declared`` has the axes from the op line and left sides, ``axes`` those of every tensor."""

    declared: Mapping[str, tuple[Expr, ...]]
    axes: Mapping[str, tuple[Expr, ...]]

    @staticmethod
    def of(
        declared: Declared, left: Mapping[str, tuple[Expr, ...]], readings: Sequence[AccessSite]
    ) -> Shapes:
        """Return all axes; raise an error if two accesses disagree."""
        known: dict[str, tuple[Expr, ...]] = {}
        for tensor in declared.tensors.values():
            if tensor.axes is not None:
                known[tensor.name] = tuple(filter(None, map(axis_of, tensor.axes)))
        known.update(left)
        axes = dict(known)
        for reading in readings:
            first = axes.setdefault(reading.tensor, reading.positions)
            if len(first) != len(reading.positions):
                fail(
                    reading.at,
                    f"{reading.tensor} has {_axes_count_text(first)} but is read here with "
                    f"{len(reading.positions)}",
                )
            for n, (a, b) in enumerate(zip(first, reading.positions, strict=True)):
                if _is_group_axis(a) != _is_group_axis(b):
                    one, other = (
                        ("a group", "no group") if _is_group_axis(a) else ("no group", "a group")
                    )
                    fail(
                        reading.at,
                        f"axis {n} of {reading.tensor} is {one} of axes but is read here as "
                        f"{other}",
                    )
        for tensor in declared.tensors.values():
            axes.setdefault(tensor.name, ())
        for name, own in axes.items():
            if sum(len(e.args) if isinstance(e, Composite) else 1 for e in own) > AXES:
                at = (declared.tensors.get(name) or declared.equations[name]).at
                fail(at, f"{name} has more than {AXES} axes, the limit of torch tensors")
        return Shapes(known, axes)

    def letters(self, equation: str) -> set[str]:
        """Return the letters on the left of an equation."""
        return {i.extent for e in self.axes[equation] for i in walk(e) if isinstance(i, Index)}


def axis_of(axis: syntax.Raw) -> Expr | None:
    """Return the axis of an op line or left side, or None if it is not a valid axis."""
    match axis:
        case syntax.NameSyntax(name):
            return Index(name, name)
        case syntax.Star(name):
            return Index(name, name, True)
        case syntax.NumberSyntax(value) if value == 0:
            return num(0)
        case syntax.CompositeSyntax(args):
            parts = tuple(p for p in map(axis_of, args) if isinstance(p, Index))
            return Composite(parts) if len(parts) > 1 else parts[0] if parts else num(0)
    return None


def _is_group_axis(e: Expr) -> bool:
    return isinstance(e, Index) and e.group


def _axes_count_text(axes: tuple[Expr, ...]) -> str:
    groups = sum(map(_is_group_axis, axes))
    n = len(axes) - groups
    text = f"{n} {'axis' if n == 1 else 'axes'}"
    return text if not groups else f"{text} and {groups} group{'s' if groups > 1 else ''}"
