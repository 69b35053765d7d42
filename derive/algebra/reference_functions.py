"""Reference values of scalar functions that NumPy lacks, at kinks and poles as in torch."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, partial, wraps
from typing import Any


class _LazyNumpy:
    """NumPy's functions by name; numpy is imported when the first of them is called."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return partial(_of_numpy, name)


def _of_numpy(name: str, *args: Any, **kwargs: Any) -> Any:
    import numpy

    return getattr(numpy, name)(*args, **kwargs)


np = _LazyNumpy()


def quiet(f: Callable[..., Any]) -> Callable[..., Any]:
    """f with IEEE results (nan, inf) and no warnings."""

    @wraps(f)
    def quiet(*args: Any) -> Any:
        with np.errstate(all="ignore"):
            return f(*args)

    return quiet


def elementwise(f: Callable[..., float]) -> Callable[..., Any]:
    """f of Python floats applied to each element."""
    loop = cache(lambda: np.vectorize(f, otypes=[float]))

    def elementwise(*args: Any) -> Any:
        return loop()(*args)[()]

    return elementwise


def lgamma(x: float) -> float:
    """log |Gamma(x)|, which is inf at the poles 0, -1, -2, ..."""
    try:
        return math.lgamma(x)
    except ValueError:
        return math.inf


def digamma(x: float) -> float:
    """d lgamma(x)/dx: -inf at 0, inf at -0, nan at the other poles."""
    if x == 0:
        return -math.copysign(math.inf, x)
    if not math.isfinite(x):
        return x if x > 0 else math.nan
    return math.nan if x < 0 and x == math.floor(x) else polygamma(0, x)


def polygamma(n: float, x: float) -> float:
    """d^n digamma(x)/dx^n; (-1)**(n + 1) * inf at the poles."""
    import mpmath

    if int(n) == 0 and (x <= 0 and x == math.floor(x)):
        return digamma(x)
    if not math.isfinite(x):
        return 0.0 if x > 0 else math.nan
    if x <= 0 and x == math.floor(x):
        return math.inf if int(n) % 2 else -math.inf
    return float(mpmath.psi(int(n), x))


def erfinv(y: float) -> float:
    """x with erf(x) = y, by Halley's steps from Winitzki's estimate."""
    if not abs(y) < 1:
        return math.copysign(math.inf, y) if abs(y) == 1 else math.nan
    a = abs(y)
    logarithm = math.log1p(-a * a)
    half = 2 / (math.pi * 0.147) + logarithm / 2
    x = math.sqrt(math.sqrt(half * half - logarithm / 0.147) - half)
    for _ in range(4):
        # 1 - a is exact where erf would lose the digits of its distance from 1.
        error = math.erf(x) - a if a < 0.5 else (1 - a) - math.erfc(x)
        step = error * math.sqrt(math.pi) / 2 * math.exp(x * x)
        x -= step / (1 + x * step)
    return math.copysign(x, y)


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-np.asarray(x)[()]))


def softplus(x: Any) -> Any:
    return np.where(np.greater(x, 20), x, np.log1p(np.exp(x)))[()]


def logsigmoid(x: Any) -> Any:
    return np.minimum(x, 0) - np.log1p(np.exp(-np.abs(x)))


def sign(x: Any) -> Any:
    """1, 0 or -1; 0 for nan, as torch."""
    return np.subtract(np.greater(x, 0), np.less(x, 0), dtype=float)


def clamp(x: Any, lo: Any, hi: Any) -> Any:
    return np.minimum(np.maximum(x, lo), hi)
