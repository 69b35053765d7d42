"""The largest range of an index that keeps an affine position in bounds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from derive.algebra.affine import Affine, Polynomial, affine
from derive.algebra.expr import Call, Composite, Expr, Index, Iverson, Num, Size, num, walk
from derive.notation.advice import no_number
from derive.notation.operation import Extent
from derive.notation.shapes import Shapes
from derive.notation.smart_constructors import LARGEST, total
from derive.notation.symbols import Declared
from derive.notation.syntax import AccessSite, SourcePlace, fail


@dataclass(frozen=True)
class SizeBound:
    """size <= (upper - step)//step + 1 = upper//step."""

    upper: Polynomial
    step: Polynomial
    shifted: bool

    def expr(self) -> Expr:
        """Return the bound as an expression."""
        if self.step.number == 1:
            return self.upper.expr()
        if self.shifted:
            inner = Call("floordiv", ((self.upper - self.step).expr(), self.step.expr()))
            return total((inner, num(1)))
        return Call("floordiv", (self.upper.expr(), self.step.expr()))


def bound(
    position: Affine,
    own: str,
    axis: str,
    root: Callable[[str], str],
    at: SourcePlace | None,
    where: str,
) -> Iterable[SizeBound]:
    """Return the bounds on the size S of ``own`` from 0 <= position < size(axis).

    With the other indices at their extremes, the position ranges from minus*(1 - S) + least to
    plus*(S - 1) + greatest; least and greatest may contain a multiple of S.
    """
    one = Polynomial.of(1)

    def canonical(e: Expr) -> Expr:
        return Size(root(e.extent)) if isinstance(e, Size) else e

    plus = minus = Polynomial({})
    greatest = least = position.constant.map(canonical)
    for index, coefficient in position.coefficients.items():
        coefficient = coefficient.map(canonical)
        sign = coefficient.sign
        if sign is None:
            message = f"the sign of the coefficient of {index.name} on {where} is unknown"
            fail(at, "position-form", message)
        reach = coefficient * (Polynomial.of(Size(root(index.extent))) - one)
        is_own = root(index.extent) == own
        if is_own and sign > 0:
            plus += coefficient
        elif is_own:
            minus -= coefficient
        elif sign > 0:
            greatest += reach
        else:
            least += reach
    top, top_step = _linear_in_size(greatest, own, at, where)
    bottom, bottom_step = _linear_in_size(least, own, at, where)
    size = Polynomial.of(Size(axis)) if axis != own else Polynomial({})
    own_axis = one if axis == own else Polynomial({})
    # plus*(S - 1) + top + top_step*S <= size - 1, and minus*(1 - S) + bottom + bottom_step*S >= 0.
    pairs = (
        (plus + top_step - own_axis, size - one - top + plus, not top_step.terms),
        (minus - bottom_step, bottom + minus, not bottom_step.terms),
    )
    for step, upper, shifted in pairs:
        sign = step.sign
        number = upper.number
        if sign == 1:
            yield SizeBound(upper, step, shifted)
        elif sign == 0 and number is not None and number < 0:
            name = own.partition("@")[0]
            message = f"{where} is read out of bounds for every size of {name}; add a condition"
            fail(at, "out-of-bounds", message)
        elif sign is None:
            fail(
                at, "unknown-size", f"{where} does not determine the range of {own}; declare {own}"
            )


def _linear_in_size(
    e: Polynomial, own: str, at: SourcePlace | None, where: str
) -> tuple[Polynomial, Polynomial]:
    """(rest, factor) with e = rest + factor*size(own)."""
    rest, factor = Polynomial({}), Polynomial({})
    size = Size(own)
    for key, value in e.terms.items():
        n = key.count(size)
        if n > 1:
            message = f"the position on {where} is not linear in size({own}); declare {own}"
            fail(at, "position-form", message)
        if n:
            factor = factor + Polynomial({tuple(a for a in key if a is not size): value})
        else:
            rest = rest + Polynomial({key: value})
    return rest, factor


def smallest(bounds: Iterable[SizeBound]) -> Expr | None:
    """Return the minimum of all bounds; bounds with a constant difference are merged first."""
    kept: list[SizeBound] = []
    for new in bounds:
        for n, old in enumerate(kept):
            gap = (new.upper - old.upper).number
            if gap is not None and new.step == old.step and new.shifted == old.shifted:
                if gap < 0:
                    kept[n] = new
                break
        else:
            kept.append(new)
    if not kept:
        return None
    result, *rest = (b.expr() for b in kept)
    for other in rest:
        result = Call("minimum", (result, other))
    return result


def ordered(extents: Sequence[Extent]) -> Iterator[Extent]:
    """Yield the extents in dependency order: a computed size follows the sizes in it."""
    waiting = list(extents)
    done: set[str] = set()
    while waiting:
        for extent in waiting:
            parts = walk(extent.size) if extent.size is not None and not extent.sources else ()
            if all(part.extent in done for part in parts if isinstance(part, Size)):
                break
        waiting.remove(extent)
        done.add(extent.name)
        yield extent


# ---------------------------------------------------------------------------------- affine readings
# Find the indices whose size follows from affine positions, such as t in x[2*t + k].


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
                    "unknown-size",
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
                    message = f"{where}: a part of a composite must be an index or a number"
                    fail(reading.at, "not-an-index", message)
            return None
        if isinstance(position, Index):
            return None
        if isinstance(position, Iverson):
            message = f"{where}: {no_number('a bool', is_position=True)}"
            fail(reading.at, "number-or-condition", message)
        found = affine(position)
        if found is None:
            calls = [e.function for e in walk(position) if isinstance(e, Call)]
            floor = "floor" in calls and "int" not in calls
            how = "write the floor of a float as int(floor(...)), or " if floor else ""
            fail(
                reading.at,
                "position-form",
                f"{where} is read at a position that is not an integer combination of indices, "
                f"sizes, integer parameters and integer tensors; {how}give the position its own "
                "equation",
            )
        if found.largest > LARGEST:
            fail(
                reading.at,
                "position-form",
                f"{where} is read at a position with the number {found.largest}; the limit is "
                f"{LARGEST}",
            )
        if not found.coefficients and not found.tensors and isinstance(position, Num):
            if position.value < 0:
                fail(
                    reading.at,
                    "out-of-bounds",
                    f"{where} is read at position {position.value}; positions start at 0; "
                    f"from the end of an axis k, this is size(k) - {-position.value}",
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
