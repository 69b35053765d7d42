"""What SymPy lacks: unevaluated heads for reductions, groups, run-time axes and functions.

``Mean(x[i, k], k)`` and its like take their indices last and ``where=`` a condition; the
functions in lower case are scalar. None of them is ever evaluated by SymPy.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import new_class
from typing import Any

import sympy
from sympy import Basic, Expr, Function, Symbol, Tuple
from sympy.core.sympify import _sympify  # strict: a string is refused, never evaluated
from sympy.logic.boolalg import Boolean

from derive.algebra.functions import FUNCTIONS
from derive.algebra.functions import Function as Scalar
from derive.algebra.reductions import POSITIONS, REDUCTIONS, Reduction


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


class Softmax(Head, Expr):  # type: ignore[misc]
    """exp(f)/Sum exp(f); keeps its index."""

    kind = "softmax"
    is_commutative = True


class LogSoftmax(Head, Expr):  # type: ignore[misc]
    """f - log Sum exp(f); keeps its index."""

    kind = "log_softmax"
    is_commutative = True


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


def __getattr__(name: str) -> Any:
    """The class of a reduction, or of a function, that SymPy lacks: made of its row."""
    row: Reduction | Scalar
    bases: tuple[Any, ...]
    facts: dict[str, Any]
    if name in _REDUCTIONS:
        row = _REDUCTIONS[name]
        bases = (Head, Boolean if row.dtype == "bool" else Expr)
        facts = {"kind": row.name} | ({} if row.dtype == "bool" else {"is_commutative": True})
    elif name in _FUNCTIONS:
        row = _FUNCTIONS[name]
        bases, facts = (Function,), {"nargs": row.arity}
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in _WHOLE:
        facts["is_integer"] = True
    facts |= {"__doc__": row.about, "__module__": __name__}
    made = new_class(name, bases, exec_body=lambda body: body.update(facts))
    return globals().setdefault(name, made)


_REDUCTIONS = {row.head: row for row in REDUCTIONS.values()}
_FUNCTIONS = {row.head: row for row in FUNCTIONS.values() if row.head}
_WHOLE = (FUNCTIONS["int"].head, *(REDUCTIONS[name].head for name in POSITIONS))

MADE = (*_REDUCTIONS, *_FUNCTIONS)
"""The classes that are made of rows."""


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


def Eq(left: Any, right: Any) -> Any:
    """SymPy's, as it stands: whether an equation holds is not asked, which takes SymPy a while."""
    return sympy.Eq(left, right, evaluate=False)


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
