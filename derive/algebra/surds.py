"""Powers of rationals: exact values, and roots as roots of integers."""

from __future__ import annotations

from fractions import Fraction

_LARGEST_POWER = 1024
"""Larger powers are not evaluated: their digits would fill the memory."""


def is_root(value: Fraction, exponent: Fraction) -> bool:
    """True if the power can be written with roots of integers."""
    return value > 0 and exponent.denominator > 1 and abs(exponent) < _LARGEST_POWER


def add_root(roots: dict[int, Fraction], value: Fraction, exponent: Fraction) -> None:
    """Multiply by value ** exponent: (2/3)**e is 2**e * 3**-e."""
    for n, e in ((value.numerator, exponent), (value.denominator, -exponent)):
        if n > 1:
            roots[n] = roots.get(n, Fraction(0)) + e


def rational_power(value: Fraction, exponent: Fraction) -> Fraction | None:
    """value ** exponent if it is rational, else None."""
    if abs(exponent.numerator) > _LARGEST_POWER:
        return None
    if exponent.denominator == 1:
        if value == 0 and exponent < 0:
            return None
        return Fraction(value**exponent.numerator)
    if value <= 0:
        return Fraction(0) if value == 0 and exponent > 0 else None
    n = _exact_root(value.numerator, exponent.denominator)
    d = _exact_root(value.denominator, exponent.denominator)
    return None if n is None or d is None else Fraction(n, d) ** exponent.numerator


def _exact_root(n: int, k: int) -> int | None:
    """The integer k-th root of n >= 1, or None, by Newton's steps from above."""
    if n.bit_length() <= k:
        return 1 if n == 1 else None
    root = 1 << -(-n.bit_length() // k)
    while (nearer := ((k - 1) * root + n // root ** (k - 1)) // k) < root:
        root = nearer
    return root if root**k == n else None
