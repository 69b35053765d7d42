"""The largest range of an index that keeps an affine position in bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from derive.algebra.affine import Affine, Polynomial
from derive.algebra.expr import Call, Expr, Size, num, walk
from derive.notation.operation import Extent
from derive.notation.smart_constructors import total
from derive.notation.syntax import SourcePlace, fail


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
            fail(at, f"the sign of the coefficient of {index.name} on {where} is unknown")
        same = root(index.extent) == own
        if sign > 0:
            plus = plus + coefficient if same else plus
            if not same:
                greatest = greatest + coefficient * (Polynomial.of(Size(root(index.extent))) - one)
        else:
            minus = minus - coefficient if same else minus
            if not same:
                least = least + coefficient * (Polynomial.of(Size(root(index.extent))) - one)
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
            fail(at, f"{where} is read out of bounds for every size of {name}; add a condition")
        elif sign is None:
            fail(at, f"{where} does not determine the range of {own}; declare {own}")


def _linear_in_size(
    e: Polynomial, own: str, at: SourcePlace | None, where: str
) -> tuple[Polynomial, Polynomial]:
    """(rest, factor) with e = rest + factor*size(own)."""
    rest, factor = Polynomial({}), Polynomial({})
    size = Size(own)
    for key, value in e.terms.items():
        n = key.count(size)
        if n > 1:
            fail(at, f"the position on {where} is not linear in size({own}); declare {own}")
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
