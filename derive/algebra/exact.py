"""Scalar functions in arbitrary precision, and the values of constant expressions.

    exp(0) + 2 = 3,   log(0) = -inf,   sqrt(-1) is not a real number: nan

The functions are those of mpmath, a dependency of SymPy; NumPy is not needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import mpmath
from mpmath import mp, mpc, mpf

from derive.algebra.expr import Add, Call, Const, Expr, Mul, Num, Pow, walk
from derive.algebra.reference_functions import digamma, lgamma, polygamma

_DIGITS = 30
"""Enough digits for the result to be rounded only once, to a float64."""


def _logarithm_of_gamma(x: Any) -> Any:
    return mp.log(abs(mp.gamma(x)))


def _exact_sigmoid(x: Any) -> Any:
    return 1 / (1 + mp.exp(-x))


def truncated(x: Any) -> Any:
    """x without its fraction."""
    return mpmath.floor(x) if x > 0 else mpmath.ceil(x)


EXACT: Mapping[str, Callable[..., Any]] = {
    **{name: getattr(mpmath, name) for name in ("exp", "expm1", "log", "log1p", "atan2")},
    **{name: getattr(mpmath, name) for name in ("sin", "cos", "tan", "asin", "acos", "atan")},
    **{name: getattr(mpmath, name) for name in ("sinh", "cosh", "tanh", "erf", "erfc")},
    **{name: getattr(mpmath, name) for name in ("sign", "floor", "ceil", "digamma")},
    **{name: getattr(mpmath, name) for name in ("log10", "hypot", "erfinv")},
    "abs": abs,
    "trunc": truncated,
    "round": mpmath.nint,
    "frac": lambda x: x - truncated(x),
    "remainder": lambda x, y: x - y * mpmath.floor(x / y),
    "fmod": lambda x, y: x - y * truncated(x / y),
    "log2": lambda x: mp.log(x, 2),
    "exp2": lambda x: mp.power(2, x),
    "logaddexp": lambda x, y: max(x, y) + mp.log1p(mp.exp(-abs(x - y))),
    "lgamma": _logarithm_of_gamma,
    "polygamma": lambda n, x: mp.psi(int(n), x),
    "sigmoid": _exact_sigmoid,
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

_POLES: Mapping[str, Callable[..., float]] = {
    "lgamma": lgamma,
    "digamma": digamma,
    "polygamma": polygamma,
}
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
