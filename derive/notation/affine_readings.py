"""Find the indices whose size follows from affine positions, such as t in x[2*t + k]."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from derive.algebra.affine import Affine, affine
from derive.algebra.expr import Call, Composite, Expr, Index, Iverson, Num, walk
from derive.notation.advice import no_number
from derive.notation.scope import AccessSite
from derive.notation.shapes import Shapes
from derive.notation.smart_constructors import LARGEST
from derive.notation.symbols import Declared
from derive.notation.syntax import fail


@dataclass(frozen=True)
class AffineReading:
    """An unguarded access with an affine position on one axis."""

    position: Affine
    axis: str
    letters: tuple[str, ...]
    reading: AccessSite


@dataclass(frozen=True)
class Readings:
    """The accesses of the equations of one operation."""

    declared: Declared
    shapes: Shapes
    readings: Sequence[AccessSite]

    def derived(self, pinned: Mapping[str, Expr | None]) -> dict[str, list[AffineReading]]:
        """Return the indices sized by affine accesses, each with these accesses.

        Indices in ``pinned`` have their size from elsewhere.
        """
        single: list[AffineReading] = []
        several: list[AffineReading] = []
        for reading in self.readings:
            for n, position in enumerate(reading.positions):
                found = self._affine_of(reading, n, position)
                if found is None or reading.guarded or found.position.tensors:
                    continue
                (single if len(found.letters) == 1 else several).append(found)
        derived: dict[str, list[AffineReading]] = {}
        for found in single:
            if found.letters[0] not in pinned:
                derived.setdefault(found.letters[0], []).append(found)
        anchored = self._anchored()
        for found in several:
            letters = [x for x in found.letters if x not in pinned]
            loose = [x for x in letters if x not in anchored]
            if not loose:
                left = self.shapes.letters(found.reading.equation)
                loose = _window_shortened(letters, found.axis, anchored, left)
                if not loose:
                    continue
            undecided = [x for x in loose if x not in derived]
            if len(undecided) > 1:
                fail(
                    found.reading.at,
                    f"axis {found.axis.rpartition('@')[2]} of {found.reading.tensor} does not "
                    f"determine the sizes of {' and '.join(undecided)}; declare one of them "
                    f"{self.declared.how.axes}, or give {self.declared.how.size(undecided[0])}",
                )
            for letter in undecided or loose:
                derived.setdefault(letter, []).append(found)
        return derived

    def _affine_of(self, reading: AccessSite, n: int, position: Expr) -> AffineReading | None:
        """Return the position if it is affine and not an index, a number or a composite."""
        where = f"axis {n} of {reading.tensor}"
        if isinstance(position, Composite):
            for part in position.args:
                if not isinstance(part, Index | Num):
                    fail(reading.at, f"{where}: a part of a composite must be an index or a number")
            return None
        if isinstance(position, Index):
            return None
        if isinstance(position, Iverson):
            fail(reading.at, f"{where}: {no_number('a bool', is_position=True)}")
        found = affine(position)
        if found is None:
            calls = [e.function for e in walk(position) if isinstance(e, Call)]
            floor = "floor" in calls and "int" not in calls
            how = "write the floor of a float as int(floor(...)), or " if floor else ""
            fail(
                reading.at,
                f"{where} is read at a position that is not an integer combination of indices, "
                f"sizes, integer parameters and integer tensors; {how}give the position its own "
                "equation",
            )
        if found.largest > LARGEST:
            fail(
                reading.at,
                f"{where} is read at a position with the number {found.largest}; the limit is "
                f"{LARGEST}",
            )
        if not found.coefficients and not found.tensors and isinstance(position, Num):
            if position.value < 0:
                fail(
                    reading.at,
                    f"{where} is read at position {position.value}; positions start at 0",
                )
            return None
        letters = tuple(dict.fromkeys(i.extent for i in found.coefficients))
        return AffineReading(found, f"{reading.tensor}@{n}", letters, reading) if letters else None

    def _anchored(self) -> dict[str, set[str]]:
        """Return the indices that are whole positions, each with their axes.

        An equation's own axis, whose size comes from the index, does not count.
        """
        found: dict[str, set[str]] = {}
        for reading in self.readings:
            own = self.shapes.axes[reading.tensor]
            equation = reading.tensor in self.declared.equations
            for n, (position, axis) in enumerate(zip(reading.positions, own, strict=True)):
                if isinstance(position, Index):
                    same = isinstance(axis, Index) and axis.extent == position.extent
                    if not (equation and same):
                        found.setdefault(position.extent, set()).add(f"{reading.tensor}@{n}")
        return found


def _window_shortened(
    letters: Sequence[str], axis: str, anchored: Mapping[str, set[str]], left: Collection[str]
) -> list[str]:
    """Return the index that a window on this axis shortens, if every letter is anchored.

    In x[u]*x[u+k] it is u, which indexes the same axis. In x[t+k]*w[k] it is t, from the left side.
    """
    on_axis = [x for x in letters if axis in anchored[x]]
    return next((one for one in (on_axis, [x for x in letters if x in left]) if len(one) == 1), [])
