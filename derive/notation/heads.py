"""What SymPy lacks: unevaluated heads for reductions, groups, run-time axes and functions.

``Mean(x[i, k], k)`` and its like take their indices last and ``where=`` a condition; the
functions in lower case are scalar. None of them is ever evaluated by SymPy.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sympy import Basic, Expr, Function, Symbol, Tuple
from sympy.core.sympify import _sympify  # strict: a string is refused, never evaluated
from sympy.logic.boolalg import Boolean

__all__ = [
    "AllOf",
    "AnyOf",
    "ArgMax",
    "ArgMin",
    "Composite",
    "Concat",
    "Group",
    "Head",
    "Holds",
    "Iverson",
    "LogSoftmax",
    "LogSumExp",
    "Mean",
    "OfIndex",
    "Options",
    "Prod",
    "ReduceAmax",
    "ReduceAmin",
    "ReduceMax",
    "ReduceMin",
    "SizeSymbol",
    "Softmax",
    "SpecialInput",
    "Total",
    "axis",
    "boolean",
    "choice",
    "clamp",
    "detach",
    "exp2",
    "expm1",
    "group",
    "hypot",
    "integer",
    "keep",
    "lgamma",
    "log1p",
    "log2",
    "log10",
    "logaddexp",
    "logsigmoid",
    "maximum",
    "minimum",
    "optional",
    "relu",
    "sigmoid",
    "size",
    "softplus",
    "to_int",
]


class Head:
    """Mixin: kind over the indices of f, where the condition holds."""

    kind = ""
    args: tuple[Any, ...]

    def __new__(cls, f: Any, *indices: Any, where: Any = True) -> Any:
        """``cls(f, k, ..., where=condition)``; SymPy itself passes back ``args``."""
        if len(indices) == 2 and isinstance(indices[0], Tuple):
            return super().__new__(cls, f, *indices)  # type: ignore[call-arg]
        condition = _sympify(where)
        return super().__new__(cls, _sympify(f), Tuple(*indices), condition)  # type: ignore[call-arg]

    def _sympystr(self, printer: Any) -> str:
        f, indices, condition = self.args
        text = ", ".join(printer.doprint(e) for e in (f, *indices))
        where = "" if condition == True else f", where={printer.doprint(condition)}"  # noqa: E712
        return f"{type(self).__name__}({text}{where})"


class Mean(Head, Expr):  # type: ignore[misc]
    """The mean; of the values taken, under a condition."""

    kind = "mean"
    is_commutative = True


class Total(Head, Expr):  # type: ignore[misc]
    """The sum under a condition; without one SymPy's ``Sum`` says the same."""

    kind = "sum"
    is_commutative = True


class Prod(Head, Expr):  # type: ignore[misc]
    """The product under a condition; without one SymPy's ``Product`` says the same."""

    kind = "prod"
    is_commutative = True


class ReduceMax(Head, Expr):  # type: ignore[misc]
    """The maximum; its gradient goes to the first winner (torch.max)."""

    kind = "max"
    is_commutative = True


class ReduceMin(Head, Expr):  # type: ignore[misc]
    """The minimum; its gradient goes to the first winner (torch.min)."""

    kind = "min"
    is_commutative = True


class ReduceAmax(Head, Expr):  # type: ignore[misc]
    """The maximum; ties share its gradient evenly (torch.amax)."""

    kind = "amax"
    is_commutative = True


class ReduceAmin(Head, Expr):  # type: ignore[misc]
    """The minimum; ties share its gradient evenly (torch.amin)."""

    kind = "amin"
    is_commutative = True


class LogSumExp(Head, Expr):  # type: ignore[misc]
    """log Sum exp."""

    kind = "logsumexp"
    is_commutative = True


class ArgMax(Head, Expr):  # type: ignore[misc]
    """The position of the first maximum."""

    kind = "argmax"
    is_commutative = True
    is_integer = True


class ArgMin(Head, Expr):  # type: ignore[misc]
    """The position of the first minimum."""

    kind = "argmin"
    is_commutative = True
    is_integer = True


class Softmax(Head, Expr):  # type: ignore[misc]
    """exp(f)/Sum exp(f); keeps its index."""

    kind = "softmax"
    is_commutative = True


class LogSoftmax(Head, Expr):  # type: ignore[misc]
    """f - log Sum exp(f); keeps its index."""

    kind = "log_softmax"
    is_commutative = True


class AnyOf(Head, Boolean):  # type: ignore[misc]
    """Whether the condition holds for one value of the indices."""

    kind = "any"


class AllOf(Head, Boolean):  # type: ignore[misc]
    """Whether the condition holds for all values of the indices."""

    kind = "all"


class Iverson(Expr):  # type: ignore[misc]
    """[condition]: 1 where it holds, else 0; as a factor it guards the others."""

    is_commutative = True

    def __new__(cls, condition: Any) -> Any:
        return Expr.__new__(cls, _sympify(condition))


class Holds(Boolean):  # type: ignore[misc]
    """An element of a bool tensor as a condition."""

    def __new__(cls, element: Any) -> Any:
        return Boolean.__new__(cls, _sympify(element))


class Composite(Expr):  # type: ignore[misc]
    """A composite axis position (t d), row-major."""

    is_commutative = True

    def __new__(cls, *parts: Any) -> Any:
        return Expr.__new__(cls, *map(_sympify, parts))


class Concat(Expr):  # type: ignore[misc]
    """``Concat(k, a[n, k], b[n, k])``: a and b joined along k."""

    is_commutative = True

    def __new__(cls, index: Any, *parts: Any) -> Any:
        return Expr.__new__(cls, _sympify(index), *map(_sympify, parts))


class expm1(Function):  # type: ignore[misc]
    """exp(x) - 1."""

    nargs = 1


class log1p(Function):  # type: ignore[misc]
    """log(1 + x)."""

    nargs = 1


class sigmoid(Function):  # type: ignore[misc]
    """1/(1 + exp(-x))."""

    nargs = 1


class softplus(Function):  # type: ignore[misc]
    """log(1 + exp(x))."""

    nargs = 1


class logsigmoid(Function):  # type: ignore[misc]
    """log sigmoid(x)."""

    nargs = 1


class relu(Function):  # type: ignore[misc]
    """max(x, 0), with slope 0 at 0."""

    nargs = 1


class lgamma(Function):  # type: ignore[misc]
    """log |Gamma(x)|; SymPy's loggamma says the same."""

    nargs = 1


class maximum(Function):  # type: ignore[misc]
    """The larger of two numbers; a tie shares the gradient."""

    nargs = 2


class minimum(Function):  # type: ignore[misc]
    """The smaller of two numbers; a tie shares the gradient."""

    nargs = 2


class clamp(Function):  # type: ignore[misc]
    """x kept within lo and hi: clamp(x, lo, hi)."""

    nargs = 3


class detach(Function):  # type: ignore[misc]
    """x, with no gradient."""

    nargs = 1


class exp2(Function):  # type: ignore[misc]
    """2**x."""

    nargs = 1


class log2(Function):  # type: ignore[misc]
    """The logarithm of x to the base 2."""

    nargs = 1


class log10(Function):  # type: ignore[misc]
    """The logarithm of x to the base 10."""

    nargs = 1


class hypot(Function):  # type: ignore[misc]
    """sqrt(x**2 + y**2)."""

    nargs = 2


class logaddexp(Function):  # type: ignore[misc]
    """log(exp(a) + exp(b))."""

    nargs = 2


class to_int(Function):  # type: ignore[misc]
    """``int`` of the text: a whole number, to_int(floor(x)), as an integer that is a position."""

    nargs = 1
    is_integer = True


class Group(Symbol):  # type: ignore[misc]
    """A group of any number of axes: ``A[*p, k, *q]``."""

    __slots__ = ()

    def __iter__(self) -> Iterator[Group]:
        return iter((self,))


def group(name: str) -> Group:
    """The group of axes with this name."""
    return Group(name, integer=True)


class SizeSymbol(Symbol):  # type: ignore[misc]
    """The number of values of an index."""

    __slots__ = ()

    @property
    def letter(self) -> str:
        """The index."""
        return str(self.name)[len("size(") : -1]


@dataclass(frozen=True)
class OfIndex:
    """A parameter that an index gives: its run-time axis, whether it is kept, its size."""

    function: str
    index: Basic
    default: int | None = None


@dataclass(frozen=True)
class Options:
    """A parameter that is one of several words, the first its default."""

    options: tuple[str, ...]


@dataclass(frozen=True)
class SpecialInput:
    """An input with a kind, or one that may be None and then stands for a constant."""

    tensor: Any
    kind: str | None = None
    default: Any = None


def axis(index: Basic, default: int | None = None) -> OfIndex:
    """``parameters={"dim": axis(k)}``: the run-time position of axis k."""
    return OfIndex("axis", index, default)


def keep(index: Basic) -> OfIndex:
    """``parameters={"keepdim": keep(k)}``: outputs that lost axis k keep it with size 1."""
    return OfIndex("keep", index)


def size(index: Any, default: int | None = None) -> Any:
    """The number of values of an index, in expressions and as ``parameters={"n": size(k, 4)}``."""
    if default is not None:
        return OfIndex("size", index, default)
    label = getattr(index, "label", index)
    return SizeSymbol(f"size({label})", integer=True, nonnegative=True)


def choice(*options: str) -> Options:
    """``parameters={"reduction": choice("mean", "sum")}``."""
    return Options(options)


def optional(tensor: Any, default: Any) -> SpecialInput:
    """An input that may be None, which stands for the constant ``default``."""
    inner = _special(tensor)
    return SpecialInput(inner.tensor, inner.kind, default)


def integer(tensor: Any) -> SpecialInput:
    """An integer tensor."""
    inner = _special(tensor)
    return SpecialInput(inner.tensor, "int", inner.default)


def boolean(tensor: Any) -> SpecialInput:
    """A bool tensor."""
    inner = _special(tensor)
    return SpecialInput(inner.tensor, "bool", inner.default)


def _special(tensor: Any) -> SpecialInput:
    return tensor if isinstance(tensor, SpecialInput) else SpecialInput(tensor)
