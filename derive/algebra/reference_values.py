"""Reference values: functions and reductions by loops, and functions in arbitrary precision."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial, wraps
from typing import Any, TypeAlias

import mpmath
from mpmath import mp, mpc, mpf

from derive.algebra.expr import Add, Call, Const, Expr, Mul, Num, Pow, walk

# ------------------------------------------------------------------------------ reference functions
# Reference values of scalar functions that NumPy lacks, at kinks and poles as in torch.


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


# ----------------------------------------------------------------------------- reference reductions
# Every reduction of the notation, by loops over Python numbers.

Taken: TypeAlias = Sequence[tuple[int, Any]]
"""(row-major position, value) of every element that is reduced, in order."""


def _best(sign: int, taken: Taken) -> tuple[int, Any] | None:
    """The first (position, value) with the largest sign*value; the first nan takes precedence."""
    best = None
    for at, value in taken:
        if value != value:
            return at, value
        if best is None or sign * value > sign * best[1]:
            best = at, value
    return best


def _reference_extremum(sign: int) -> Callable[[Taken], Any]:
    def extreme(taken: Taken) -> Any:
        best = _best(sign, taken)
        return -sign * math.inf if best is None else best[1]

    return extreme


def _reference_argextremum(sign: int) -> Callable[[Taken], int]:
    """The row-major position of the first winner; 0 for an empty selection."""

    def winner(taken: Taken) -> int:
        best = _best(sign, taken)
        return 0 if best is None else best[0]

    return winner


def _reference_mean(taken: Taken) -> float:
    values = [value for _, value in taken]
    return sum(values) / len(values) if values else math.nan


def _reference_logsumexp(taken: Taken) -> float:
    """m + log Sum exp(x - m) with m the largest x."""
    values = [float(value) for _, value in taken]
    best = _best(1, list(enumerate(values)))
    if best is None or math.isnan(best[1]) or math.isinf(best[1]):
        return -math.inf if best is None else float(best[1])
    return float(best[1]) + math.log(sum(math.exp(value - best[1]) for value in values))


REDUCTIONS: dict[str, Callable[[Taken], Any]] = {
    "sum": lambda taken: sum([value for _, value in taken]),
    "prod": lambda taken: math.prod([value for _, value in taken]),
    "mean": _reference_mean,
    "max": _reference_extremum(1),
    "amax": _reference_extremum(1),
    "min": _reference_extremum(-1),
    "amin": _reference_extremum(-1),
    "argmax": _reference_argextremum(1),
    "argmin": _reference_argextremum(-1),
    "logsumexp": _reference_logsumexp,
    "norm2": lambda taken: sum([value * value for _, value in taken]) ** 0.5,
    "any": lambda taken: any(value for _, value in taken),
    "all": lambda taken: all(value for _, value in taken),
}


# -------------------------------------------------------------------------------------------- exact
# Scalar functions in arbitrary precision, and the values of constant expressions.
#
#     exp(0) + 2 = 3,   log(0) = -inf,   sqrt(-1) is not a real number: nan
#
# The functions are those of mpmath, a dependency of SymPy; NumPy is not needed.

_DIGITS = 30
"""Enough digits for the result to be rounded only once, to a float64."""


def truncated(x: Any) -> Any:
    """x without its fraction."""
    return mpmath.floor(x) if x > 0 else mpmath.ceil(x)


EXACT: Mapping[str, Callable[..., Any]] = {
    **{name: getattr(mpmath, name) for name in ("exp", "expm1", "log", "log1p", "atan2")},
    **{name: getattr(mpmath, name) for name in ("sin", "cos", "tan", "asin", "acos", "atan")},
    **{name: getattr(mpmath, name) for name in ("sinh", "cosh", "tanh", "asinh", "acosh")},
    **{name: getattr(mpmath, name) for name in ("sign", "floor", "ceil", "digamma")},
    **{
        name: getattr(mpmath, name) for name in ("atanh", "erf", "erfc", "log10", "hypot", "erfinv")
    },
    "abs": abs,
    "trunc": truncated,
    "round": mpmath.nint,
    "frac": lambda x: x - truncated(x),
    "remainder": lambda x, y: x - y * mpmath.floor(x / y),
    "fmod": lambda x, y: x - y * truncated(x / y),
    "log2": lambda x: mp.log(x, 2),
    "exp2": lambda x: mp.power(2, x),
    "logaddexp": lambda x, y: max(x, y) + mp.log1p(mp.exp(-abs(x - y))),
    "lgamma": lambda x: mp.log(abs(mp.gamma(x))),
    "polygamma": lambda n, x: mp.psi(int(n), x),
    "sigmoid": lambda x: 1 / (1 + mp.exp(-x)),
    "softplus": lambda x: x if x > 20 else mp.log1p(mp.exp(x)),
    "logsigmoid": lambda x: -mp.log1p(mp.exp(-x)),
    "relu": lambda x: max(x, 0),
    "maximum": max,
    "minimum": min,
    "clamp": lambda x, low, high: min(max(x, low), high),
}
"""The scalar functions, by their names in `derive.algebra.functions`."""

_OF_WHOLE_NUMBERS: Mapping[str, Callable[..., Any]] = {
    "detach": lambda x: x,
    "int": truncated,
    "floordiv": lambda x, y: mpmath.floor(x / y),
    "pow": lambda x, y: _mpmath_power(x, y),
}

_POLES = {f.__name__: f for f in (lgamma, digamma, polygamma)}
"""Functions with poles at which mpmath raises an error."""


def constant_value(e: Expr) -> float | None:
    """The value of a constant expression as a float64; None for any other.

    It is nan without a real value, and infinite at a pole, as in IEEE arithmetic.
    """
    if not all(isinstance(part, Num | Const | Call | Pow | Add | Mul) for part in walk(e)):
        return None
    with mp.workdps(_DIGITS):
        return float(_exact_value(e))


def function_at(name: str, *arguments: float) -> float:
    """The value of a scalar function at numbers, as a float64."""
    with mp.workdps(_DIGITS):
        return float(_call(name, [mpf(x) for x in arguments]))


def _exact_value(e: Expr) -> Any:
    match e:
        case Num(value):
            return mpf(value.numerator) / value.denominator
        case Const(name):
            return {"pi": +mp.pi, "inf": mp.inf}[name]
        case Add(args):
            return mp.fsum(map(_exact_value, args))
        case Mul(args):
            return mp.fprod(map(_exact_value, args))
        case Pow(base, exponent):
            return _mpmath_power(_exact_value(base), _exact_value(exponent))
        case Call(function, args):
            return _call(function, [_exact_value(a) for a in args])
    raise TypeError(f"{e} is not a number")


def _call(name: str, arguments: list[Any]) -> Any:
    if any(map(mp.isnan, arguments)):
        return mp.nan
    function = _OF_WHOLE_NUMBERS.get(name) or EXACT[name]
    try:
        return _real(function(*arguments))
    except (ArithmeticError, ValueError):
        return _POLES[name](*map(float, arguments)) if name in _POLES else mp.nan


def _mpmath_power(base: Any, exponent: Any) -> Any:
    if base == 0 and exponent < 0:
        return mp.inf
    if base < 0 and exponent != mp.floor(exponent):
        return mp.nan
    return _real(base**exponent)


def _real(value: Any) -> Any:
    return mp.nan if isinstance(value, mpc) else value
