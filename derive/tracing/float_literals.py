"""Write floats as people do: sqrt(2) for 1.4142135623730951, 1e-6 for 9.999999974752427e-07.

A number with as many digits as its dtype holds is usually a rounded shorter expression: a root, a
logarithm, a multiple of pi, a fraction, or a decimal in float32.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache

_LONG = 15
"""Number of digits from which a float is no literal that somebody has written."""
_MOST = 12
"""Largest denominator of a fraction; bound of integers under a root."""
_SHORTER = 4
"""A float32 decimal is used if it is more than this many characters shorter."""
_EXACT = 2.3e-16

_PRODUCT, _POWER, _ATOM = 6, 8, 9
"""Precedence of a text, as in the text of an expression."""


def spelled(value: float) -> tuple[str, int] | None:
    """Return (text, precedence) of a positive float; None if the float itself is as short."""
    if not math.isfinite(value) or value <= 0 or _digits(value) < _LONG:
        return None
    for exact in (True, False):
        if not exact and _single(value) != value:
            return None
        for text, level, form in _literal_forms():
            if math.isclose(value, form, rel_tol=_EXACT) if exact else _single(form) == value:
                return text, level
    short = _shortest_float32(value)
    if float(short) > _LARGEST:
        return None
    return (short, _ATOM) if len(short) + _SHORTER < len(repr(value)) else None


_LARGEST = float(2**128 - 2**104)
"""Largest float32. Its shortest decimal is larger, and torch reads that as an overflow."""


def _digits(value: float) -> int:
    return len(repr(value).partition("e")[0].replace(".", "").strip("0"))


def _single(value: float) -> float:
    """Round to the nearest float32."""
    import numpy as np

    with np.errstate(over="ignore"):
        return float(np.float32(value))


def _shortest_float32(value: float) -> str:
    """Return the shortest decimal whose nearest float32 is this value."""
    import numpy as np

    return repr(float(str(np.float32(value))))


@cache
def _literal_forms() -> tuple[tuple[str, int, float], ...]:
    """Return (text, precedence, value) of each candidate, the simplest first."""
    return tuple(_literal_candidates())


def _literal_candidates() -> Iterator[tuple[str, int, float]]:
    yield "pi", _ATOM, math.pi
    for n in range(2, _MOST):
        yield f"{n}*pi", _PRODUCT, n * math.pi
        yield f"pi/{n}", _PRODUCT, math.pi / n
        yield f"{n}/pi", _PRODUCT, n / math.pi
    yield "1/pi", _PRODUCT, 1 / math.pi
    yield "pi/180", _PRODUCT, math.pi / 180
    yield "180/pi", _PRODUCT, 180 / math.pi
    yield "pi**2", _POWER, math.pi**2
    yield "exp(1)", _ATOM, math.e
    inside = [(f"{n}", float(n)) for n in range(2, _MOST) if math.isqrt(n) ** 2 != n]
    inside += [("pi", math.pi), ("2*pi", 2 * math.pi), ("pi/2", math.pi / 2), ("2/pi", 2 / math.pi)]
    for text, x in inside:
        yield f"sqrt({text})", _ATOM, math.sqrt(x)
    for text, x in inside:
        yield f"1/sqrt({text})", _PRODUCT, 1 / math.sqrt(x)
    yield "2/sqrt(pi)", _PRODUCT, 2 / math.sqrt(math.pi)
    for text, x in [*((f"{n}", float(n)) for n in (2, 3, 10)), *inside[-4:]]:
        if x > 1:
            yield f"log({text})", _ATOM, math.log(x)
            yield f"1/log({text})", _PRODUCT, 1 / math.log(x)
            yield f"log({text})/2", _PRODUCT, math.log(x) / 2
    for below in range(3, _MOST + 1):
        for above in range(1, 2 * _MOST):
            if math.gcd(above, below) == 1:
                yield f"{above}/{below}", _PRODUCT, above / below
