"""kind over indices, its gradient and its names: the reductions, as data.

Everything that the engine knows of a reduction stands in `REDUCTIONS`. What one *is* stands in
`derive.algebra.reference_reductions` too, for the oracle, which shares nothing with this table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from derive.algebra.expr import Call, Expr, Iverson, Mul, Pow, Rel, num

Slope = Callable[[Expr, Expr], Expr]
"""d reduction / d element, made of the element and of the value of the reduction."""


@dataclass(frozen=True)
class Reduction:
    """kind over indices of a body, where a condition (if any) holds.

    ``head`` is its class in SymPy form and ``about`` what that says of itself; ``stem`` begins the
    name of one that the engine makes. ``torch`` is the method of a tensor or, with a dot, the
    function that takes it, the numbers in ``order`` and the axes; ``part`` is what of its result is
    meant, ``cumulative`` the function of torch up to each position, ``any_axes`` says that torch's
    reduces all axes where none is given.

    ``neutral`` may stand where nothing is taken without a change of the result; nothing at all has
    the value ``of_nothing``. ``sign`` is 1 for a largest and -1 for a smallest element, or its
    place. Of several axes it is one reduction of all, or ``nested``: of each by itself. ``dtype``
    is that of the value, None where it is that of the elements.

    The gradient goes by the ``slope``; or to the winner of an extremum, of equal ones to the
    ``first``, or ``shared`` evenly; or for each element it is the reduction of all ``others``.
    ``linear`` says that it grows no faster than its elements.
    """

    name: str
    head: str
    about: str
    stem: str
    neutral: float
    of_nothing: float
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
        """Whether its value is made of those of its elements: no position, no truth value."""
        return self.dtype not in ("int", "bool")

    @property
    def is_infinite_of_nothing(self) -> bool:
        """Whether a condition that excludes all makes it infinite."""
        return math.isinf(self.of_nothing)


def _share(x: Expr, value: Expr) -> Expr:
    """d log Sum exp(x) = exp(x - logsumexp x) dx."""
    return Call("exp", (x - value,))


def _over_norm(x: Expr, value: Expr) -> Expr:
    """x/norm, and 0 where all is 0, as torch.linalg.vector_norm."""
    return Mul((Iverson(Rel("!=", value, num(0))), x, Pow(value, num(-1))))


_INF = math.inf

_ROWS = (
    Reduction(
        *(
            "sum",
            "Total",
            "The sum of f over the indices, like SymPy's ``Sum``, or under a condition.",
        ),
        *("u", 0, 0),
        any_axes=True,
    ),
    Reduction(
        *(
            "prod",
            "Prod",
            "The product of f over the indices, like SymPy's ``Product``, or under a condition.",
        ),
        *("product", 1, 1),
        cumulative="cumprod",
        nested=True,
        gradient="others",
    ),
    Reduction(
        *(
            "mean",
            "Mean",
            "The mean of f over the indices; with a condition, over the values where it holds.",
        ),
        *("mean", math.nan, math.nan),
        any_axes=True,
        dtype="float",
    ),
    Reduction(
        *(
            "max",
            "ReduceMax",
            "The maximum of f; its gradient goes to the first maximum, as in torch.max.",
        ),
        *("top", -_INF, -_INF),
        part="values",
        sign=1,
        nested=True,
        gradient="first",
        linear=True,
    ),
    Reduction(
        *(
            "min",
            "ReduceMin",
            "The minimum of f; its gradient goes to the first minimum, as in torch.min.",
        ),
        *("bottom", _INF, _INF),
        part="values",
        sign=-1,
        nested=True,
        gradient="first",
        linear=True,
    ),
    Reduction(
        *(
            "amax",
            "ReduceAmax",
            "The maximum of f; ties share its gradient evenly, as in torch.amax.",
        ),
        *("top", -_INF, -_INF),
        any_axes=True,
        sign=1,
        gradient="shared",
        linear=True,
    ),
    Reduction(
        *(
            "amin",
            "ReduceAmin",
            "The minimum of f; ties share its gradient evenly, as in torch.amin.",
        ),
        *("bottom", _INF, _INF),
        any_axes=True,
        sign=-1,
        gradient="shared",
        linear=True,
    ),
    Reduction(
        *("logsumexp", "LogSumExp", "log Sum exp(f) over the indices."),
        *("lse", -_INF, -_INF),
        torch="torch.logsumexp",
        cumulative="logcumsumexp",
        dtype="float",
        slope=_share,
        linear=True,
    ),
    Reduction(
        *(
            "norm2",
            "Norm2",
            "sqrt Sum f**2 over the indices; its gradient is 0 where all values are 0.",
        ),
        *("norm", 0, 0),
        torch="torch.linalg.vector_norm",
        order=(2,),
        dtype="float",
        slope=_over_norm,
        linear=True,
    ),
    Reduction(
        *("argmax", "ArgMax", "The position of the first maximum."),
        *("winner", -_INF, 0),
        torch="max",
        part="indices",
        sign=1,
        dtype="int",
    ),
    Reduction(
        *("argmin", "ArgMin", "The position of the first minimum."),
        *("winner", _INF, 0),
        torch="min",
        part="indices",
        sign=-1,
        dtype="int",
    ),
    Reduction(
        *("any", "AnyOf", "Whether the condition holds for at least one value of the indices."),
        *("some", False, False),
        dtype="bool",
    ),
    Reduction(
        *("all", "AllOf", "Whether the condition holds for all values of the indices."),
        *("every", True, True),
        dtype="bool",
    ),
)

REDUCTIONS: Mapping[str, Reduction] = {row.name: row for row in _ROWS}
"""Every reduction that a `Reduce` may name, in the order in which they are told."""

OTHERS = Reduction("others", "", "The product of all but one, for each of them.", "others", 1, 1)
"""What the gradient of a product is made of, which the notation has no word for."""

KINDS: Mapping[str, Reduction] = {**REDUCTIONS, OTHERS.name: OTHERS}

CONDITIONS = frozenset(row.name for row in _ROWS if row.dtype == "bool")
"""Those of conditions, which are conditions themselves."""

POSITIONS = frozenset(row.name for row in _ROWS if row.dtype == "int")
"""Those whose value is a position."""
