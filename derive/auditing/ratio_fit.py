"""Fit a ratio that several points share: a number, or a product of sizes and numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import combinations, product
from math import isclose, isfinite

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
