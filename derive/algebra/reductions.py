"""The table of reductions: values, gradients and names.

`REDUCTIONS` holds everything that the engine knows of a reduction.
`derive.algebra.reference_values` defines them again for the oracle, which shares nothing with
this table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from derive.algebra.expr import Call, Expr, Iverson, Mul, Pow, Rel, num

Slope = Callable[[Expr, Expr], Expr]
"""d reduction / d element, a function of the element and of the value of the reduction."""


@dataclass(frozen=True)
class Reduction:
    """kind over indices of a body, where a condition (if any) holds.

    ``head`` is its class in SymPy form and ``about`` its docstring; ``stem`` begins the name of a
    let that the engine makes. ``torch`` is a method of a tensor or, with a dot, a function of the
    tensor, the numbers in ``order`` and the axes. ``part`` selects a part of its result, and
    ``cumulative`` is torch's cumulative version. ``any_axes`` means that torch's function reduces
    all axes by default.

    ``neutral`` is the value that may replace excluded elements without changing the result; an
    empty selection has the value ``of_nothing``. ``sign`` is 1 for the largest and -1 for the
    smallest element, or its position. Over several axes it is one joint reduction, or ``nested``:
    one per axis. ``dtype`` is that of the value, None for that of the elements.

    The gradient is given by the ``slope``. For an extremum it goes to the ``first`` winner, or is
    ``shared`` evenly by ties. For a product it is the product of all ``others``. ``linear`` means
    that it grows no faster than its elements.
    """

    name: str
    head: str
    stem: str
    neutral: float
    of_nothing: float
    about: str
    torch: str = ""
    order: tuple[int, ...] = ()
    part: str = ""
    cumulative: str = ""
    any_axes: bool = False
    sign: int = 0
    nested: bool = False
    dtype: Literal["float", "int", "bool"] | None = None
    slope: Slope | None = None
    gradient: Literal["first", "shared", "others"] | None = None
    linear: bool = False

    @property
    def is_smooth(self) -> bool:
        """True if its value is a number computed from the elements: no position, no truth value."""
        return self.dtype not in ("int", "bool")

    @property
    def is_infinite_of_nothing(self) -> bool:
        """True if its value is infinite when the condition excludes every element."""
        return math.isinf(self.of_nothing)


def _logsumexp_slope(x: Expr, value: Expr) -> Expr:
    """d log Sum exp(x) = exp(x - logsumexp x) dx."""
    return Call("exp", (x - value,))


def _over_norm(x: Expr, value: Expr) -> Expr:
    """x/norm, and 0 if the norm is 0, as torch.linalg.vector_norm."""
    return Mul((Iverson(Rel("!=", value, num(0))), x, Pow(value, num(-1))))


_INF = math.inf

_ROWS = (
    Reduction(
        *("sum", "Total", "u", 0, 0),
        "The sum of f over the indices, like SymPy's ``Sum``, or under a condition.",
        any_axes=True,
    ),
    Reduction(
        *("prod", "Prod", "product", 1, 1),
        "The product of f over the indices, like SymPy's ``Product``, or under a condition.",
        cumulative="cumprod",
        nested=True,
        gradient="others",
    ),
    Reduction(
        *("mean", "Mean", "mean", math.nan, math.nan),
        "The mean of f over the indices; with a condition, over the values where it holds.",
        any_axes=True,
        dtype="float",
    ),
    Reduction(
        *("max", "ReduceMax", "top", -_INF, -_INF),
        "The maximum of f; its gradient goes to the first maximum, as in torch.max.",
        cumulative="rt.running_max",
        part="values",
        sign=1,
        nested=True,
        gradient="first",
        linear=True,
    ),
    Reduction(
        *("min", "ReduceMin", "bottom", _INF, _INF),
        "The minimum of f; its gradient goes to the first minimum, as in torch.min.",
        cumulative="rt.running_max",
        part="values",
        sign=-1,
        nested=True,
        gradient="first",
        linear=True,
    ),
    Reduction(
        *("amax", "ReduceAmax", "top", -_INF, -_INF),
        "The maximum of f; ties share its gradient evenly, as in torch.amax.",
        cumulative="rt.running_amax",
        any_axes=True,
        sign=1,
        gradient="shared",
        linear=True,
    ),
    Reduction(
        *("amin", "ReduceAmin", "bottom", _INF, _INF),
        "The minimum of f; ties share its gradient evenly, as in torch.amin.",
        cumulative="rt.running_amax",
        any_axes=True,
        sign=-1,
        gradient="shared",
        linear=True,
    ),
    Reduction(
        *("logsumexp", "LogSumExp", "lse", -_INF, -_INF),
        "log Sum exp(f) over the indices.",
        torch="torch.logsumexp",
        cumulative="logcumsumexp",
        dtype="float",
        slope=_logsumexp_slope,
        linear=True,
    ),
    Reduction(
        *("norm2", "Norm2", "norm", 0, 0),
        "sqrt Sum f**2 over the indices; its gradient is 0 where all values are 0.",
        torch="torch.linalg.vector_norm",
        order=(2,),
        dtype="float",
        slope=_over_norm,
        linear=True,
    ),
    Reduction(
        *("argmax", "ArgMax", "winner", -_INF, 0),
        "The position of the first maximum.",
        cumulative="rt.running_argmax",
        torch="max",
        part="indices",
        sign=1,
        dtype="int",
    ),
    Reduction(
        *("argmin", "ArgMin", "winner", _INF, 0),
        "The position of the first minimum.",
        cumulative="rt.running_argmax",
        torch="min",
        part="indices",
        sign=-1,
        dtype="int",
    ),
    Reduction(
        *("any", "AnyOf", "some", False, False),
        "Whether the condition holds for at least one value of the indices.",
        dtype="bool",
    ),
    Reduction(
        *("all", "AllOf", "every", True, True),
        "Whether the condition holds for all values of the indices.",
        dtype="bool",
    ),
)

REDUCTIONS: Mapping[str, Reduction] = {row.name: row for row in _ROWS}
"""Every reduction that a `Reduce` may name, in order of presentation."""

OTHERS = Reduction("others", "", "others", 1, 1, "The product of all but one, for each of them.")
"""The product over all elements but one, for the gradient of a product; not in the notation."""

KINDS: Mapping[str, Reduction] = {**REDUCTIONS, OTHERS.name: OTHERS}

CONDITIONS = frozenset(row.name for row in _ROWS if row.dtype == "bool")
"""The reductions of conditions, which are conditions themselves."""

POSITIONS = frozenset(row.name for row in _ROWS if row.dtype == "int")
"""The reductions whose value is a position."""
