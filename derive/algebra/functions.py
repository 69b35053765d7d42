"""The table of scalar functions: values, derivatives, names and ranges.

`FUNCTIONS` holds everything the engine knows of a scalar function. At a kink or a tie, the
derivative is by torch's convention. The derivatives are closed: each consists of powers and of
functions in the table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

from derive.algebra.expr import (
    Access,
    And,
    Call,
    Const,
    Expr,
    Guard,
    Iverson,
    Mul,
    Not,
    Num,
    Or,
    Pow,
    Rel,
    num,
)
from derive.algebra.poly import Poly, as_atom
from derive.algebra.reference_values import (
    clamp,
    digamma,
    elementwise,
    erfinv,
    lgamma,
    logsigmoid,
    np,
    polygamma,
    quiet,
    sigmoid,
    sign,
    softplus,
)
from derive.errors import DeriveError

# ----------------------------------------------------------------------------------------- partials
# Partial derivatives of functions, by the conventions of torch.autograd.
#
# At each kink, tie and singular point they are what torch has there.

Partial = Callable[..., Expr]


def relation(op: str, left: Expr, right: Expr | int) -> Expr:
    return Rel(op, left, num(right) if isinstance(right, int) else right)


def bracket(op: str, left: Expr, right: Expr | int) -> Expr:
    return Iverson(relation(op, left, right))


def zero(*_: Expr) -> Expr:
    return num(0)


def one(*_: Expr) -> Expr:
    return num(1)


def minus_quotient(rounding: str) -> Partial:
    """-floor(x/y), as torch.remainder, or -trunc(x/y), as torch.fmod."""
    return lambda x, y, _: Mul((num(-1), Call(rounding, (Mul((x, Pow(y, num(-1)))),))))


def chosen(op: str) -> tuple[Partial, Partial]:
    """[a > b] + [a == b]/2 and [b > a] + [b == a]/2, as torch.maximum: ties share evenly."""
    return both(lambda a, b: bracket(op, a, b) + Fraction(1, 2) * bracket("==", a, b))


def clamp_x(x: Expr, lo: Expr, hi: Expr, _: Expr) -> Expr:
    """[lo <= x and x <= hi], as torch.clamp: on a bound the gradient goes to x."""
    return Iverson(And((relation("<=", lo, x), relation("<=", x, hi))))


def clamp_lo(x: Expr, lo: Expr, hi: Expr, _: Expr) -> Expr:
    """[x < lo and lo < hi], as torch.clamp with tensor bounds."""
    return Iverson(And((relation("<", x, lo), relation("<", lo, hi))))


def clamp_hi(x: Expr, lo: Expr, hi: Expr, _: Expr) -> Expr:
    """[x > hi or lo > hi], as torch.clamp with tensor bounds: hi wins where they cross."""
    return Iverson(Or((relation(">", x, hi), relation(">", lo, hi))))


def off_origin(numerator: Expr, y: Expr, x: Expr) -> Expr:
    """numerator/(x^2 + y^2), and 0 at the origin, as torch.atan2."""
    square = x**2 + y**2
    return Mul((bracket("!=", square, 0), numerator, Pow(square, num(-1))))


def both(first: Callable[[Expr, Expr], Expr]) -> tuple[Partial, Partial]:
    """Both partials of a function that is symmetric in its two arguments."""
    return (lambda a, b, _: first(a, b)), (lambda a, b, _: first(b, a))


def relu_slope(x: Expr, value: Expr) -> Expr:
    """[x > 0], or [relu(x) > 0] if x is computed, so that only the value need be saved."""
    read = isinstance(as_atom(x) if isinstance(x, Poly) else x, Access)
    return Iverson(Not(relation("<=", x if read else value, 0)))


def over_hypot(x: Expr, _: Expr, value: Expr) -> Expr:
    """x/hypot(x, y), as torch.hypot: nan at the origin."""
    return Mul((x, Pow(value, num(-1))))


def on_circle(x: Expr, _: Expr) -> Expr:
    """1/sqrt(1 - x^2)."""
    return inverse_root(1 - x**2)


def inverse_root(x: Expr) -> Expr:
    """1/sqrt(x)."""
    return Pow(x, num(Fraction(-1, 2)))


def bell(factor: int) -> Partial:
    """factor/sqrt(pi) exp(-x^2)."""
    root = Pow(Const("pi"), num(Fraction(-1, 2)))
    return lambda x, _: Mul((num(factor), root, Call("exp", (-(x**2),))))


def exp2_slope(x: Expr, y: Expr) -> Expr:
    """2^x log 2."""
    return Mul((Call("log", (num(2),)), y))


def erfinv_slope(x: Expr, y: Expr) -> Expr:
    """sqrt(pi)/2 exp(y^2)."""
    root = Pow(Const("pi"), num(Fraction(1, 2)))
    return Mul((num(Fraction(1, 2)), root, Call("exp", (y**2,))))


def logarithm_of(base: int) -> Partial:
    """1/(x log base)."""
    return lambda x, y: Mul((Pow(x, num(-1)), Pow(Call("log", (num(base),)), num(-1))))


def pow_base(x: Expr, y: Expr, _: Expr) -> Expr:
    """y x^(y - 1), as torch.pow: 0 where y is 0, whatever x is."""
    return Mul((bracket("!=", y, 0), y, Call("pow", (x, y - 1))))


def pow_exponent(x: Expr, y: Expr, value: Expr) -> Expr:
    """x^y log x, as torch.pow: 0 where x is 0 and y >= 0."""
    regular = Not(And((relation("==", x, 0), relation(">=", y, 0))))
    # The bracket may have indices that x lacks, as in x[n]**y[q].
    return Mul((Iverson(regular), value, Call("log", (Guard(regular, x, num(1)),))))


def polygamma_x(n: Expr, x: Expr, _: Expr) -> Expr:
    """polygamma(n + 1, x), as torch.polygamma."""
    following = num(n.value + 1) if isinstance(n, Num) else n + 1
    return Call("polygamma", (following, x))


# ---------------------------------------------------------------------------------------- functions


@dataclass(frozen=True)
class ScalarFunction:
    """A scalar function f(x0, ..., xn) of scalars.

    ``torch`` is its name under ``torch.``, and ``torch_method`` the tensor method if code usually
    calls that. ``numpy`` evaluates it on float64 scalars or arrays, at kinks as torch does.
    ``partials`` has for each argument a function of (arguments..., value) that returns d f/d
    argument. ``sympy`` is its name in SymPy. If SymPy has no such function, or not under this
    name, ``head`` is its class in `derive.notation.heads`, with docstring ``about``. A function
    that is not ``written`` is not part of the notation.

    Its values lie between ``least`` and ``most``, exclusive if ``open``. Its first argument must
    lie within ``domain``, and its last must not be 0 if it ``divides``. Its ``parity`` is 1 if
    f(-x) = f(x), and -1 if f(-x) = -f(x). It is ``total`` if value and derivatives are finite at
    all real arguments, except where it ``overflows`` at arguments of moderate size. It is
    ``linear`` if it grows no faster than its arguments. It is ``whole`` if its value is an integer
    for integer arguments, and ``steps`` if it always is.
    """

    name: str
    arity: int
    torch: str
    numpy: Callable[..., Any]
    partials: tuple[Partial, ...]
    sympy: str | None = None
    torch_method: str | None = None
    least: float = -math.inf
    most: float = math.inf
    open: bool = False
    total: bool = True
    domain: tuple[float, float] | None = None
    divides: bool = False
    parity: int = 0
    overflows: bool = False
    linear: bool = False
    whole: bool = False
    steps: bool = False
    head: str = ""
    about: str = ""
    written: bool = True

    @property
    def in_math(self) -> bool:
        """True if Python's math module has the function."""
        return self.name in _IN_MATH


_IN_MATH = frozenset(
    "exp expm1 tanh tan exp2 log2 log10 log sin cos asin acos atan sinh cosh asinh acosh atanh erf "
    "erfc lgamma log1p atan2 hypot".split()
)

POWERS: Mapping[str, Fraction] = {
    "sqrt": Fraction(1, 2),
    "rsqrt": Fraction(-1, 2),
    "square": Fraction(2),
}
"""The functions that are a power of their argument, with the exponent."""


def _unary(
    name: str,
    numpy: Callable[..., Any],
    derivative: Partial,
    about: str = "",
    *,
    sympy: str | None = None,
    torch: str | None = None,
    head: str = "",
    **facts: Any,
) -> ScalarFunction:
    """A function of one argument; a tensor method unless ``torch`` gives another name."""
    method = name if torch is None else None
    facts |= {"head": head or ("" if sympy else name), "about": about}
    return ScalarFunction(
        name, 1, torch or name, quiet(numpy), (derivative,), sympy, method, **facts
    )


def _n_ary(
    name: str, numpy: Callable[..., Any], partials: Sequence[Partial], about: str = "", **facts: Any
) -> ScalarFunction:
    """A function of several arguments."""
    facts |= {"about": about, "head": name if about else ""}
    torch = facts.pop("torch", name)
    return ScalarFunction(name, len(partials), torch, quiet(numpy), tuple(partials), **facts)


_RIGHT = math.pi / 2
_UNIT: Mapping[str, Any] = {"least": -1, "most": 1}
_GROWS: Mapping[str, Any] = {"overflows": True}
_EVEN: Mapping[str, Any] = {"parity": 1}
_ODD: Mapping[str, Any] = {"parity": -1}
_POSITIVE: Mapping[str, Any] = {"least": 0, "open": True}
_ABOVE_0: Mapping[str, Any] = {"total": False, "domain": (0, math.inf)}
_WITHIN_1: Mapping[str, Any] = {"total": False, "domain": (-1, 1)}
_DIVIDES: Mapping[str, Any] = {"total": False, "divides": True}
_KEEPS: Mapping[str, Any] = {"linear": True, "whole": True}
_STEPS: Mapping[str, Any] = {**_KEEPS, "steps": True}
_LARGER = "The larger of two numbers; in a tie both have half of the gradient."
_SMALLER = "The smaller of two numbers; in a tie both have half of the gradient."
_LOGARITHM = "The logarithm of x to the base {}."
_LONG = "An integral value as an integer, to_int(floor(x)); ``int`` in the text notation."

_ROWS = (
    # Own value: torch.exp, torch.expm1, torch.tanh, torch.tan, torch.sigmoid save their result.
    _unary("exp", np.exp, lambda x, y: y, sympy="exp", **_POSITIVE, **_GROWS),
    _unary("expm1", np.expm1, lambda x, y: y + 1, "exp(x) - 1.", least=-1, **_GROWS),
    _unary("tanh", np.tanh, lambda x, y: 1 - y**2, sympy="tanh", **_UNIT, **_ODD),
    _unary("tan", np.tan, lambda x, y: 1 + y**2, sympy="tan", **_ODD),
    _unary("sigmoid", sigmoid, lambda x, y: y * (1 - y), "1/(1 + exp(-x)).", most=1, **_POSITIVE),
    _unary("exp2", np.exp2, exp2_slope, "2**x.", **_POSITIVE, **_GROWS),
    _unary("log2", np.log2, logarithm_of(2), _LOGARITHM.format(2), **_ABOVE_0),
    _unary("log10", np.log10, logarithm_of(10), _LOGARITHM.format(10), **_ABOVE_0),
    # Smooth, by the argument.
    _unary("log", np.log, lambda x, y: Pow(x, num(-1)), sympy="log", **_ABOVE_0),
    _unary("sin", np.sin, lambda x, y: Call("cos", (x,)), sympy="sin", **_UNIT, **_ODD),
    _unary("cos", np.cos, lambda x, y: -Call("sin", (x,)), sympy="cos", **_UNIT, **_EVEN),
    _unary(
        "asin", np.arcsin, on_circle, sympy="asin", least=-_RIGHT, most=_RIGHT, **_WITHIN_1, **_ODD
    ),
    _unary(
        *("acos", np.arccos, lambda x, y: -on_circle(x, y)),
        sympy="acos",
        least=0,
        most=2 * _RIGHT,
        **_WITHIN_1,
    ),
    _unary(
        *("atan", np.arctan, lambda x, y: Pow(x**2 + 1, num(-1))),
        sympy="atan",
        parity=-1,
        least=-_RIGHT,
        most=_RIGHT,
    ),
    _unary("sinh", np.sinh, lambda x, y: Call("cosh", (x,)), sympy="sinh", **_GROWS, **_ODD),
    _unary(
        "cosh", np.cosh, lambda x, y: Call("sinh", (x,)), sympy="cosh", least=1, **_GROWS, **_EVEN
    ),
    _unary(
        "asinh", np.arcsinh, lambda x, y: inverse_root(x**2 + 1), sympy="asinh", linear=True, **_ODD
    ),
    _unary(
        *("acosh", np.arccosh, lambda x, y: inverse_root(x**2 - 1)),
        sympy="acosh",
        least=0,
        total=False,
        domain=(1, math.inf),
    ),
    _unary("atanh", np.arctanh, lambda x, y: 1 / (1 - x**2), sympy="atanh", **_WITHIN_1, **_ODD),
    _unary("erf", elementwise(math.erf), bell(2), sympy="erf", **_UNIT, **_ODD),
    _unary("erfc", elementwise(math.erfc), bell(-2), sympy="erfc", least=0, most=2),
    _unary(
        *("lgamma", elementwise(lgamma), lambda x, y: Call("digamma", (x,))),
        "log |Gamma(x)|, like SymPy's ``loggamma``.",
        sympy="loggamma",
        head="lgamma",
        **_ABOVE_0,
    ),
    _unary(
        *("digamma", elementwise(digamma), lambda x, y: Call("polygamma", (num(1), x))),
        sympy="digamma",
        **_ABOVE_0,
    ),
    _unary("erfinv", elementwise(erfinv), erfinv_slope, sympy="erfinv", **_WITHIN_1, **_ODD),
    # Smooth, without a name of its own in SymPy. torch's softplus is x itself above 20.
    _unary(
        *("log1p", np.log1p, lambda x, y: 1 / (1 + x), "log(1 + x)."),
        total=False,
        domain=(-1, math.inf),
    ),
    _unary(
        *("softplus", softplus, lambda x, y: Call("sigmoid", (x,)), "log(1 + exp(x))."),
        torch="nn.functional.softplus",
        linear=True,
        **_POSITIVE,
    ),
    _unary(
        *("logsigmoid", logsigmoid, lambda x, y: Call("sigmoid", (-x,)), "log sigmoid(x)."),
        torch="nn.functional.logsigmoid",
        most=0,
        linear=True,
    ),
    # Kinks and steps: torch.relu is 0 at 0, not at nan, torch.abs is sign(0) = 0, steps are flat.
    _unary(
        *("relu", lambda x: np.maximum(x, 0), relu_slope),
        "max(x, 0); its gradient is 0 at x = 0.",
        least=0,
        **_KEEPS,
    ),
    _unary("abs", np.abs, lambda x, y: Call("sign", (x,)), sympy="Abs", least=0, **_KEEPS, **_EVEN),
    _unary("sign", sign, zero, sympy="sign", **_UNIT, **_STEPS, **_ODD),
    _unary("floor", np.floor, zero, sympy="floor", **_STEPS),
    _unary("ceil", np.ceil, zero, sympy="ceiling", **_STEPS),
    _unary(
        "trunc", np.trunc, zero, "x without what comes after the point; slope 0.", **_STEPS, **_ODD
    ),
    _unary(
        *("round", np.round, zero, "The nearest whole number, of two the even one; slope 0."),
        head="round_half_even",
        parity=-1,
        **_STEPS,
    ),
    _unary(
        "frac",
        lambda x: x - np.trunc(x),
        one,
        "x - trunc(x), with the sign of x.",
        linear=True,
        parity=-1,
    ),
    _n_ary(
        *("remainder", np.mod, (one, minus_quotient("floor"))),
        "x - y*floor(x/y), which has the sign of y.",
        **_DIVIDES,
    ),
    _n_ary(
        *("fmod", np.fmod, (one, minus_quotient("trunc"))),
        "x - y*trunc(x/y), which has the sign of x.",
        **_DIVIDES,
    ),
    _unary(
        "detach",
        lambda x: x,
        zero,
        "x with gradient 0, like torch.Tensor.detach.",
        **_KEEPS,
        **_ODD,
    ),
    _n_ary("maximum", np.maximum, chosen(">"), _LARGER, **_KEEPS),
    _n_ary("minimum", np.minimum, chosen("<"), _SMALLER, **_KEEPS),
    _n_ary(
        *("clamp", clamp, (clamp_x, clamp_lo, clamp_hi)),
        "clamp(x, lo, hi): x limited to the range from lo to hi.",
        torch_method="clamp",
        **_KEEPS,
    ),
    _n_ary(
        *("atan2", np.arctan2),
        (lambda y, x, _: off_origin(x, y, x), lambda y, x, _: off_origin(-y, y, x)),
        sympy="atan2",
        least=-2 * _RIGHT,
        most=2 * _RIGHT,
    ),
    _n_ary(
        *("hypot", np.hypot, (over_hypot, lambda x, y, value: over_hypot(y, x, value))),
        "sqrt(x**2 + y**2).",
        least=0,
        linear=True,
        total=False,
    ),
    _n_ary(
        # The slope is nan where both are the same infinity, as torch's.
        *("logaddexp", np.logaddexp, both(lambda a, b: Call("sigmoid", (a - b,)))),
        "log(exp(a) + exp(b)).",
        linear=True,
        total=False,
    ),
    _n_ary("pow", np.float_power, (pow_base, pow_exponent), sympy="Pow", written=False, **_ABOVE_0),
    # polygamma(n, x) is the n-th derivative of digamma; n is an integer, with no derivative.
    _n_ary(
        *("polygamma", elementwise(polygamma), (zero, polygamma_x)),
        sympy="polygamma",
        written=False,
        **_DIVIDES,
    ),
    # Of integers only, rounded towards minus infinity; a step, so its slope is 0.
    _n_ary("floordiv", np.floor_divide, (zero, zero), torch="floor_divide", written=False),
    # Of whole numbers only, which become integers.
    _unary("int", elementwise(lambda x: x), zero, _LONG, torch="long", head="to_int", linear=True),
)

FUNCTIONS: Mapping[str, ScalarFunction] = {row.name: row for row in _ROWS}
"""Every function that a `Call` may name."""

OF_INTEGERS = frozenset(row.name for row in _ROWS if row.whole)
"""The functions with integer values at integer arguments."""

STEPS = frozenset(row.name for row in _ROWS if row.steps)
"""The functions with integer values everywhere."""

WRITTEN = (*POWERS, *(row.name for row in _ROWS if row.written))
"""The functions that are words of the notation."""


def partial(call: Call, n: int) -> Expr:
    """d f(x0, x1, ...)/d xn, an expression in the arguments and the value of f itself."""
    row = FUNCTIONS.get(call.function)
    if row is None:
        raise DeriveError(
            f"{call.function} is not a known function; the functions are "
            f"{', '.join(sorted(FUNCTIONS))}",
            kind="unknown-function",
        )
    return row.partials[n](*call.args, call)


def derivative_copies(function: str) -> int:
    """The most copies of an argument in one derivative of f, outside of f itself; at least 1."""
    arguments = map(_argument, range(FUNCTIONS[function].arity))
    return max(1, _argument_copies(function, tuple(arguments)))


def derives_from_value(function: str) -> bool:
    """True if the derivatives of f depend only on its value, like those of exp and relu."""
    computed = (_argument(n) + num(1) for n in range(FUNCTIONS[function].arity))
    return _argument_copies(function, tuple(computed)) == 0


def _argument(n: int) -> Access:
    return Access(f"x{n}", ())


@cache
def _argument_copies(function: str, arguments: tuple[Expr, ...]) -> int:
    """The most copies of an argument in one derivative of f, outside of f itself."""
    call = Call(function, arguments)

    def count(e: Expr, x: Expr) -> int:
        return 0 if e is call else (1 if e is x else sum(count(part, x) for part in e.parts()))

    partials = [partial(call, n) for n in range(len(arguments))]
    return max(count(e, x) for e in partials for x in arguments)
