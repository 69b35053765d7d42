"""f, its derivative and its names: the scalar functions of scalars, as data.

Everything the engine knows of a scalar function stands in `FUNCTIONS`. A derivative is taken
from SymPy; the table gives one itself only where the function has a kink or a tie (torch's
convention is kept), or where the derivative is best written with the function's own value.
The derivatives are closed: each is made of powers and of functions that are in the table too.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

from derive.algebra.expr import (
    Access,
    And,
    Call,
    Const,
    Expr,
    Iverson,
    Mul,
    Not,
    Num,
    Or,
    Pow,
    Rel,
    num,
)
from derive.algebra.scalars import (
    clamp,
    digamma,
    elementwise,
    erfinv,
    lgamma,
    logsigmoid,
    polygamma,
    quiet,
    sign,
    softplus,
)
from derive.errors import DeriveError

__all__ = [
    "FUNCTIONS",
    "OF_INTEGERS",
    "POWERS",
    "RELATIONS",
    "UNBOUNDED",
    "UNDEFINED_SOMEWHERE",
    "Function",
    "partial",
    "repeats",
]

Partial = Callable[..., Expr]

RELATIONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
"""What the op of a `Rel` asks of two numbers, or of two tensors elementwise."""


@dataclass(frozen=True)
class Function:
    """A scalar function f(x0, ..., xn) of scalars.

    ``torch`` is its name under ``torch.`` and ``torch_method`` the tensor method, where code is
    usually written with one. ``numpy`` evaluates it on float64 scalars or arrays, at kinks as
    torch does. ``partials`` has for each argument a function of (arguments..., value) that gives
    d f/d argument, or None where ``sympy``, the name of the function in SymPy, differentiates it.

    Its values, where it has one, lie between ``least`` and ``most``. It is ``total`` if value and
    derivatives are finite at all real arguments but for those at which it ``overflows``, which are
    of moderate size, and ``linear`` if it grows no faster than its arguments. It is ``whole`` if
    its value is an integer where the arguments are, and ``in_math`` if Python's module has it.
    """

    name: str
    arity: int
    torch: str
    numpy: Callable[..., Any]
    partials: tuple[Partial | None, ...] = (None,)
    sympy: str | None = None
    torch_method: str | None = None
    least: float = -math.inf
    most: float = math.inf
    total: bool = True
    overflows: bool = False
    linear: bool = False
    whole: bool = False
    in_math: bool = False


POWERS: Mapping[str, Fraction] = {
    "sqrt": Fraction(1, 2),
    "rsqrt": Fraction(-1, 2),
    "square": Fraction(2),
}
"""The functions that are written as a power of their argument, and the exponent."""


def _relation(op: str, left: Expr, right: Expr | int) -> Expr:
    return Rel(op, left, num(right) if isinstance(right, int) else right)


def _bracket(op: str, left: Expr, right: Expr | int) -> Expr:
    return Iverson(_relation(op, left, right))


def _zero(*_: Expr) -> Expr:
    return num(0)


# The conventions below are those of torch.autograd at each kink, tie and singular point.


def _larger(a: Expr, b: Expr) -> Expr:
    """d max(a, b)/da = [a > b] + [a == b]/2, as torch.maximum: a tie is shared evenly."""
    return _bracket(">", a, b) + Fraction(1, 2) * _bracket("==", a, b)


def _smaller(a: Expr, b: Expr) -> Expr:
    """d min(a, b)/da = [a < b] + [a == b]/2, as torch.minimum: a tie is shared evenly."""
    return _bracket("<", a, b) + Fraction(1, 2) * _bracket("==", a, b)


def _clamp_x(x: Expr, lo: Expr, hi: Expr, _: Expr) -> Expr:
    """[lo <= x and x <= hi], as torch.clamp: on a bound the gradient goes to x."""
    return Iverson(And((_relation("<=", lo, x), _relation("<=", x, hi))))


def _clamp_lo(x: Expr, lo: Expr, hi: Expr, _: Expr) -> Expr:
    """[x < lo and lo < hi], as torch.clamp with tensor bounds."""
    return Iverson(And((_relation("<", x, lo), _relation("<", lo, hi))))


def _clamp_hi(x: Expr, lo: Expr, hi: Expr, _: Expr) -> Expr:
    """[x > hi or lo > hi], as torch.clamp with tensor bounds: hi wins where they cross."""
    return Iverson(Or((_relation(">", x, hi), _relation(">", lo, hi))))


def _off_origin(numerator: Expr, y: Expr, x: Expr) -> Expr:
    """numerator/(x^2 + y^2), and 0 at the origin."""
    square = x**2 + y**2
    return Mul((_bracket("!=", square, 0), numerator, Pow(square, num(-1))))


def _atan2_y(y: Expr, x: Expr, _: Expr) -> Expr:
    """x/(x^2 + y^2), as torch.atan2: 0 at the origin."""
    return _off_origin(x, y, x)


def _atan2_x(y: Expr, x: Expr, _: Expr) -> Expr:
    """-y/(x^2 + y^2), as torch.atan2: 0 at the origin."""
    return _off_origin(-y, y, x)


def _logaddexp(a: Expr, b: Expr) -> Expr:
    """exp(a)/(exp(a) + exp(b)), as torch.logaddexp: nan where both are the same infinity."""
    return Call("sigmoid", (a - b,))


def _over_hypot(x: Expr, value: Expr) -> Expr:
    """x/hypot(x, y), as torch.hypot: nan at the origin."""
    return Mul((x, Pow(value, num(-1))))


def _logarithm_of(base: int) -> Partial:
    """1/(x log base)."""
    return lambda x, y: Mul((Pow(x, num(-1)), Pow(Call("log", (num(base),)), num(-1))))


def _pow_base(x: Expr, y: Expr, _: Expr) -> Expr:
    """y x^(y - 1), as torch.pow: 0 where y is 0, whatever x is."""
    return Mul((_bracket("!=", y, 0), y, Call("pow", (x, y - 1))))


def _pow_exponent(x: Expr, y: Expr, value: Expr) -> Expr:
    """x^y log x, as torch.pow: 0 where x is 0 and y >= 0."""
    singular = And((_relation("==", x, 0), _relation(">=", y, 0)))
    return Mul((Iverson(Not(singular)), value, Call("log", (x,))))


def _polygamma_x(n: Expr, x: Expr, _: Expr) -> Expr:
    """polygamma(n + 1, x), as torch.polygamma."""
    following = num(n.value + 1) if isinstance(n, Num) else n + 1
    return Call("polygamma", (following, x))


def _unary(
    name: str,
    numpy: Callable[..., Any],
    own: Partial | None = None,
    *,
    sympy: str | None = None,
    torch: str | None = None,
    **facts: Any,
) -> Function:
    """A function of one argument; a tensor method unless ``torch`` names it elsewhere."""
    derivative = None if own is None else (lambda x, value: own(x, value))
    method = name if torch is None else None
    return Function(name, 1, torch or name, quiet(numpy), (derivative,), sympy, method, **facts)


_RIGHT = math.pi / 2

_ROWS = (
    # Own value: torch.exp, torch.expm1, torch.tanh, torch.tan, torch.sigmoid save their result.
    _unary("exp", np.exp, lambda x, y: y, sympy="exp", least=0, overflows=True, in_math=True),
    _unary("expm1", np.expm1, lambda x, y: y + 1, least=-1, overflows=True, in_math=True),
    _unary("tanh", np.tanh, lambda x, y: 1 - y**2, sympy="tanh", least=-1, most=1, in_math=True),
    _unary("tan", np.tan, lambda x, y: 1 + y**2, sympy="tan", in_math=True),
    _unary(
        "sigmoid",
        lambda x: 1 / (1 + np.exp(-np.asarray(x)[()])),
        lambda x, y: y * (1 - y),
        least=0,
        most=1,
    ),
    _unary(
        "exp2",
        np.exp2,
        lambda x, y: Mul((Call("log", (num(2),)), y)),
        least=0,
        overflows=True,
        in_math=True,
    ),
    _unary("log2", np.log2, _logarithm_of(2), total=False, in_math=True),
    _unary("log10", np.log10, _logarithm_of(10), total=False, in_math=True),
    # Smooth, differentiated by SymPy.
    _unary("log", np.log, sympy="log", total=False, in_math=True),
    _unary("sin", np.sin, sympy="sin", least=-1, most=1, in_math=True),
    _unary("cos", np.cos, sympy="cos", least=-1, most=1, in_math=True),
    _unary("asin", np.arcsin, sympy="asin", least=-_RIGHT, most=_RIGHT, total=False, in_math=True),
    _unary("acos", np.arccos, sympy="acos", least=0, most=2 * _RIGHT, total=False, in_math=True),
    _unary("atan", np.arctan, sympy="atan", least=-_RIGHT, most=_RIGHT, in_math=True),
    _unary("sinh", np.sinh, sympy="sinh", overflows=True, in_math=True),
    _unary("cosh", np.cosh, sympy="cosh", least=1, overflows=True, in_math=True),
    _unary("erf", elementwise(math.erf), sympy="erf", least=-1, most=1, in_math=True),
    _unary("erfc", elementwise(math.erfc), sympy="erfc", least=0, most=2, in_math=True),
    _unary("lgamma", elementwise(lgamma), sympy="loggamma", total=False, in_math=True),
    _unary(
        "digamma", elementwise(digamma), lambda x, y: Call("polygamma", (num(1), x)), total=False
    ),
    _unary(
        "erfinv",
        elementwise(erfinv),
        lambda x, y: Mul(
            (num(Fraction(1, 2)), Pow(Const("pi"), num(Fraction(1, 2))), Call("exp", (y**2,)))
        ),
        total=False,
    ),
    # Smooth, without a name of its own in SymPy. torch's softplus is x itself above 20.
    _unary("log1p", np.log1p, lambda x, y: 1 / (1 + x), total=False, in_math=True),
    _unary(
        "softplus",
        softplus,
        lambda x, y: Call("sigmoid", (x,)),
        torch="nn.functional.softplus",
        least=0,
        linear=True,
    ),
    _unary(
        "logsigmoid",
        logsigmoid,
        lambda x, y: Call("sigmoid", (-x,)),
        torch="nn.functional.logsigmoid",
        most=0,
        linear=True,
    ),
    # Kinks and steps: torch.relu is 0 at 0, torch.abs is sign(0) = 0, steps have slope 0.
    _unary(
        "relu",
        lambda x: np.maximum(x, 0),
        lambda x, y: _bracket(">", x, 0),
        least=0,
        linear=True,
        whole=True,
    ),
    _unary("abs", np.abs, lambda x, y: Call("sign", (x,)), least=0, linear=True, whole=True),
    _unary("sign", sign, _zero, least=-1, most=1, linear=True, whole=True),
    _unary("floor", np.floor, _zero, linear=True, whole=True),
    _unary("detach", lambda x: x, _zero, linear=True, whole=True),
    Function(
        "maximum",
        2,
        "maximum",
        quiet(np.maximum),
        (lambda a, b, y: _larger(a, b), lambda a, b, y: _larger(b, a)),
        linear=True,
        whole=True,
    ),
    Function(
        "minimum",
        2,
        "minimum",
        quiet(np.minimum),
        (lambda a, b, y: _smaller(a, b), lambda a, b, y: _smaller(b, a)),
        linear=True,
        whole=True,
    ),
    Function(
        "clamp",
        3,
        "clamp",
        quiet(clamp),
        (_clamp_x, _clamp_lo, _clamp_hi),
        torch_method="clamp",
        linear=True,
        whole=True,
    ),
    Function(
        "atan2",
        2,
        "atan2",
        quiet(np.arctan2),
        (_atan2_y, _atan2_x),
        least=-2 * _RIGHT,
        most=2 * _RIGHT,
        in_math=True,
    ),
    Function(
        "hypot",
        2,
        "hypot",
        quiet(np.hypot),
        (lambda x, y, value: _over_hypot(x, value), lambda x, y, value: _over_hypot(y, value)),
        least=0,
        linear=True,
        total=False,
        in_math=True,
    ),
    Function(
        "logaddexp",
        2,
        "logaddexp",
        quiet(np.logaddexp),
        (lambda a, b, _: _logaddexp(a, b), lambda a, b, _: _logaddexp(b, a)),
        linear=True,
        total=False,
    ),
    Function("pow", 2, "pow", quiet(np.float_power), (_pow_base, _pow_exponent), total=False),
    # polygamma(n, x) is the n-th derivative of digamma; n is an integer, with no derivative.
    Function(
        "polygamma", 2, "polygamma", elementwise(polygamma), (_zero, _polygamma_x), total=False
    ),
    # Of integers only, rounded towards minus infinity; a step, so its slope is 0.
    Function("floordiv", 2, "floor_divide", np.floor_divide, (_zero, _zero)),
    # Of whole numbers only, which become integers.
    _unary("int", elementwise(lambda x: x), _zero, torch="long", linear=True),
)

FUNCTIONS: Mapping[str, Function] = {row.name: row for row in _ROWS}
"""Every function that a `Call` may name."""

OF_INTEGERS = frozenset(row.name for row in _ROWS if row.whole)
"""The functions that are integers where their arguments are."""

UNDEFINED_SOMEWHERE = frozenset(row.name for row in _ROWS if not row.total)
"""The functions with no finite value, or no finite derivative, at some real arguments."""

UNBOUNDED = frozenset(row.name for row in _ROWS if row.overflows)
"""The functions that overflow at arguments of moderate size."""

_FROM_SYMPY = {row.sympy: row.name for row in _ROWS if row.sympy is not None}
"""The function of each SymPy name that a derivative may contain."""


def partial(call: Call, n: int) -> Expr:
    """d f(x0, x1, ...)/d xn, an expression in the arguments and the value of f itself."""
    row = FUNCTIONS.get(call.function)
    if row is None:
        raise DeriveError(
            f"{call.function} is not a known function; known are {', '.join(sorted(FUNCTIONS))}"
        )
    given = row.partials[n]
    if given is not None:
        return given(*call.args, call)
    return _convert(_fdiff(row.sympy, row.arity, n), call.args)


@cache
def repeats(function: str) -> int:
    """How often one derivative of f(x0, x1, ...) has one of these, beside the value of f; or 1."""
    arguments = tuple(Access(f"x{n}", ()) for n in range(FUNCTIONS[function].arity))
    call = Call(function, arguments)

    def count(e: Expr, x: Expr) -> int:
        return 0 if e is call else (1 if e is x else sum(count(part, x) for part in e.parts()))

    partials = [partial(call, n) for n in range(len(arguments))]
    return max(1, *(count(e, x) for e in partials for x in arguments))


@cache
def _fdiff(name: str, arity: int, n: int) -> Any:
    """SymPy's derivative of the function ``name`` of the symbols x0, x1, ... by xn."""
    import sympy

    variables = [sympy.Symbol(f"x{i}") for i in range(arity)]
    return getattr(sympy, name)(*variables).fdiff(n + 1)


def _convert(e: Any, args: tuple[Expr, ...]) -> Expr:
    """A scalar SymPy expression in x0, x1, ... with the arguments in their place."""
    import sympy

    if isinstance(e, sympy.Symbol):
        return args[int(e.name[1:])]
    if isinstance(e, sympy.Rational):
        return num(Fraction(int(e.p), int(e.q)))
    if e is sympy.pi:
        return Const("pi")
    if isinstance(e, sympy.Add):
        first, *rest = (_convert(part, args) for part in e.as_ordered_terms())
        return sum(rest, start=first)
    if isinstance(e, sympy.Mul):
        coefficient, rest = e.as_coeff_Mul()
        factors = rest.as_ordered_factors()
        if coefficient != 1:
            factors = [coefficient, *factors]
        return Mul(tuple(_convert(part, args) for part in factors))
    if isinstance(e, sympy.Pow):
        return Pow(_convert(e.base, args), _convert(e.exp, args))
    inside = tuple(_convert(part, args) for part in e.args)
    name = type(e).__name__
    if name == "polygamma" and inside[0] is num(0):  # SymPy's digamma
        return Call("digamma", inside[1:])
    if name in _FROM_SYMPY:
        return Call(_FROM_SYMPY[name], inside)
    raise DeriveError(
        f"SymPy's derivative {e} has no form here: add {name} to derive/algebra/functions.py, "
        "or give the derivative in the table"
    )
