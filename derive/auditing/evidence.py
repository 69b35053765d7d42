"""The given and the right gradient of one argument at several points."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import combinations, product
from math import isclose, isfinite
from typing import Any

import numpy as np

from derive.algebra.expr import Expr
from derive.algebra.interpret import Array
from derive.auditing.gradients import Outcome
from derive.auditing.model import Model, PointValues, without_ones
from derive.auditing.points import is_tensor
from derive.reports.formula import Formula

EXACT = 1e-6
_PLACES = 3


@dataclass(frozen=True)
class Evidence:
    """The gradient of argument ``n`` at several independent points."""

    n: int
    names: tuple[str, ...]
    cotangents: tuple[str, ...]
    outcomes: tuple[Outcome, ...]
    model: Model | None = None
    tolerance: float = EXACT
    are_all: bool = True
    """False if there are other points, where an explanation may not hold."""

    @property
    def has_right_shapes(self) -> bool:
        """True if both gradients have the same shape at every point."""
        return all(g.shape == r.shape for g, r in zip(self.given, self.right, strict=True))

    @cached_property
    def right(self) -> list[Array]:
        """The right gradient at each point."""
        return [self._fitted(_array(o.right[self.n])) for o in self.outcomes]

    def _fitted(self, array: Array) -> Array:
        """Drop axes of size 1 for which the derived gradient has no index."""
        derived = self._derived
        return array if derived is None else without_ones(array, derived.axes)

    @property
    def _derived(self) -> Formula | None:
        if self.model is None:
            return None
        name = self.model.inputs(self.outcomes[0].args).get(self.n)
        return self.model.derived.gradients.get(name or "")

    @cached_property
    def given(self) -> list[Array]:
        """The hand-written gradient at each point, as autograd takes it."""
        found = []
        for o, right in zip(self.outcomes, self.right, strict=True):
            raw, given = o.returned(self.n), o.given.get(self.n)
            given = raw if given is None and is_tensor(raw) else given
            found.append(np.zeros_like(right) if given is None else self._fitted(_array(given)))
        return found

    @cached_property
    def values(self) -> list[PointValues]:
        """The values of the operation at each point."""
        assert self.model is not None
        return [PointValues(self.model, o.args, o.cotangents) for o in self.outcomes]

    @cached_property
    def formula(self) -> Formula | None:
        """The derived gradient; None if it does not exist or differs from autograd's."""
        found = self._derived
        if found is None:
            return None
        for values, right in zip(self.values, self.right, strict=True):
            filled = values.filled(found.axes, found.body)
            if filled.shape != right.shape or not self.same(filled, right):
                return None
        return found

    def shown(self, e: Expr) -> str:
        """Print a part of the formula, with bound letters distinct from those of its axes."""
        assert self.model is not None
        formula = self.formula
        return self.model.shown(e, () if formula is None else formula.axes)

    def same(self, a: Array, b: Array) -> bool:
        """True if two arrays are equal up to rounding."""
        if a.shape != b.shape or not np.isfinite(a).all():
            return False
        scale = max(float(np.abs(b).max(initial=0.0)), 1e-2)
        return bool(np.abs(a - b).max(initial=0.0) <= self.tolerance * scale)

    @cached_property
    def places(self) -> list[list[tuple[int, ...]]]:
        """The positions that are tested first for each candidate: the largest differences."""
        found = []
        for given, right in zip(self.given, self.right, strict=True):
            order = np.argsort(-np.abs(given - right), axis=None)
            flat = [*order[:_PLACES], *order[-1:]]
            found.append([tuple(map(int, np.unravel_index(p, right.shape))) for p in flat])
        return found

    def fits(self, axes: Sequence[Expr], body: Expr, wanted: Sequence[Array]) -> bool:
        """True if the expression has the wanted values at every point."""
        try:
            with np.errstate(all="ignore"):
                for values, places, array in zip(self.values, self.places, wanted, strict=True):
                    scale = max(float(np.abs(array).max(initial=0.0)), 1e-2)
                    for place in places:
                        found = values.at(axes, place, body)
                        if not abs(found - array[place]) <= self.tolerance * scale:
                            return False
                return all(
                    self.same(values.filled(axes, body), array)
                    for values, array in zip(self.values, wanted, strict=True)
                )
        except (ValueError, IndexError, KeyError, ArithmeticError, TypeError, AssertionError):
            return False

    @cached_property
    def sizes(self) -> dict[str, list[float]]:
        """Sizes by name at every point; index letters are the names if the model is known."""
        found: dict[str, list[float]] = {}
        if self.model is not None:
            names = self.model.letters
            for extent in self.values[0].sizes:
                every = [v.sizes[extent] for v in self.values]
                if extent in names and all(isinstance(s, int) for s in every):
                    found[f"size({names[extent]})"] = [float(s) for s in every]  # type: ignore[arg-type]
        else:
            for n, arg in enumerate(self.outcomes[0].args):
                for axis in range(arg.ndim if is_tensor(arg) else 0):
                    sizes = [float(o.args[n].shape[axis]) for o in self.outcomes]
                    if sizes not in found.values():
                        found[f"{self.names[n]}.shape[{axis}]"] = sizes
        less = {f"({name} − 1)": [s - 1 for s in sizes] for name, sizes in found.items()}
        return {**found, **less}

    @cached_property
    def numbers(self) -> dict[str, list[float]]:
        """Scalar tensors, scalar cotangents and varying float arguments, by name."""
        found: dict[str, list[float]] = {}
        first = self.outcomes[0]
        for n, arg in enumerate(first.args):
            every = [o.args[n] for o in self.outcomes]
            if is_tensor(arg) and arg.is_floating_point() and not arg.ndim:
                found[self.names[n]] = [float(a) for a in every]
            if type(arg) is float and len(set(every)) > 1:
                found[self.names[n]] = every
        for n, given in enumerate(first.cotangents):
            if given is not None and not given.ndim:
                found[self.cotangents[n]] = [float(o.cotangents[n]) for o in self.outcomes]
        return found

    @property
    def numerals(self) -> list[int]:
        """The positive number arguments that are equal at every point."""
        return [
            n
            for n, a in enumerate(self.outcomes[0].args)
            if type(a) in (int, float) and a > 0 and all(o.args[n] == a for o in self.outcomes)
        ]

    @property
    def chunks(self) -> list[int]:
        """The integer arguments among `numerals`."""
        return [n for n in self.numerals if type(self.outcomes[0].args[n]) is int]

    @property
    def symbols(self) -> Mapping[str, Sequence[float]]:
        """The named values that a ratio may be a product of."""
        return {**self.sizes, **self.numbers}


def has_other_name(told: str, evidence: Evidence) -> bool:
    """True if a number in the text equals a size or a constant argument at every point."""
    found = re.findall(r"(?:factor|where) (\d+)(?:/(\d+))? (?:is|should)", told)
    numbers = {int(part) for pair in found for part in pair if part} - {1}
    args = evidence.outcomes[0].args
    known = [a for n, a in enumerate(args) if n in evidence.numerals]
    for n, arg in enumerate(args):
        for axis in range(arg.ndim if is_tensor(arg) else 0):
            sizes = {o.args[n].shape[axis] for o in evidence.outcomes}
            known += sizes if len(sizes) == 1 else ()
    return bool(numbers & {*known, *(a * b for a in known for b in known)})


def _array(tensor: Any) -> Array:
    return np.asarray(tensor.detach().cpu().double().numpy())


# ---------------------------------------------------------------------------------------- ratio fit
# Fit a ratio that several points share: a number, or a product of sizes and numbers.

_EXACT = 1e-6
_LARGEST = 16
_POWERS = (1.0, -1.0, 2.0, -2.0, 0.5, -0.5)


def as_number(values: Sequence[float]) -> Fraction | None:
    """Return the simple fraction that equals all values; None if there is none."""
    if not values or not all(map(isfinite, values)):
        return None
    found = Fraction(values[0]).limit_denominator(_LARGEST)
    if all(isclose(v, float(found), rel_tol=_EXACT, abs_tol=_EXACT) for v in values):
        return found
    return None


def as_product(values: Sequence[float], symbols: Mapping[str, Sequence[float]]) -> str | None:
    """Return the product of powers of up to three symbols, times a small number, that fits."""
    if len(values) < 2 or not all(isfinite(v) and v for v in values):
        return None
    known = {
        name: given
        for name, given in symbols.items()
        if all(isfinite(v) and v != 0 for v in given) and any(v != given[0] for v in given)
    }
    for many in (1, 2, 3):
        powers = _POWERS if many < 3 else (1.0, -1.0)
        for names in combinations(known, many):
            for chosen in product(powers, repeat=many):
                number = _simple_factor(values, [known[n] for n in names], chosen)
                if number is not None:
                    return _product_text(number, names, chosen)
    return None


def _simple_factor(
    values: Sequence[float], given: Sequence[Sequence[float]], powers: Sequence[float]
) -> Fraction | None:
    ratios = []
    for n, value in enumerate(values):
        for symbol, power in zip(given, powers, strict=True):
            if symbol[n] < 0 and power % 1:
                return None
            value /= symbol[n] ** power
        ratios.append(value)
    found = as_number(ratios)
    return found if found in (1, -1, 2, -2, Fraction(1, 2), Fraction(-1, 2), 4) else None


def _product_text(number: Fraction, names: Sequence[str], powers: Sequence[float]) -> str:
    above = [_power_text(n, p) for n, p in zip(names, powers, strict=True) if p > 0]
    below = [_power_text(n, -p) for n, p in zip(names, powers, strict=True) if p < 0]
    if abs(number.numerator) != 1 or not above:
        above.insert(0, str(abs(number.numerator)))
    if number.denominator != 1:
        below.insert(0, str(number.denominator))
    text = ("−" if number < 0 else "") + "·".join(above)
    if not below:
        return text
    return f"{text}/{below[0]}" if len(below) == 1 else f"{text}/({'·'.join(below)})"


def _power_text(name: str, power: float) -> str:
    if power == 1:
        return name
    return f"√{name}" if power == 0.5 else f"{name}²"
