"""SymPy classes for what SymPy lacks: reductions, groups, run-time axes, functions.

A reduction takes its indices last, and an optional condition: ``Mean(x[i, k], k, where=k <= i)``.
Functions in lower case are elementwise. SymPy never evaluates any of these heads.

>>> import derive
>>> from sympy import Eq, IndexedBase, symbols
>>> i, k = symbols("i k", integer=True)
>>> x, y = IndexedBase("x"), IndexedBase("y")
>>> print(derive.Operation("f", Eq(y[i], derive.Mean(derive.relu(x[i, k]), k, where=k <= i))))
op f(x[i, k]) -> y
y[i] = mean[k | k <= i](relu(x[i, k]))
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import new_class
from typing import Any

import sympy
from sympy import Basic, Expr, Function, Symbol, Tuple
from sympy.core.sympify import _sympify  # strict: a string is refused, never evaluated
from sympy.logic.boolalg import Boolean

from derive.algebra.functions import FUNCTIONS
from derive.algebra.functions import ScalarFunction as Scalar
from derive.algebra.reductions import POSITIONS, REDUCTIONS, Reduction


class Head:
    """Mixin of a reduction of f over its indices, restricted by a condition."""

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
    """``exp(f) / Sum_k exp(f)``, which keeps its index k; 0 where ``where=`` is false.

    >>> import derive
    >>> from sympy import Eq, IndexedBase, symbols
    >>> i, k = symbols("i k", integer=True)
    >>> x, p = IndexedBase("x"), IndexedBase("p")
    >>> print(derive.Operation("rows", Eq(p[i, k], derive.Softmax(x[i, k], k))))
    op rows(x[i, k]) -> p
    p[i, k] = softmax[k](x[i, k])
    """

    kind = "softmax"
    is_commutative = True


class LogSoftmax(Head, Expr):  # type: ignore[misc]
    """``f - log Sum_k exp(f)``, which keeps its index k; -inf where ``where=`` is false.

    >>> import derive
    >>> from sympy import Eq, IndexedBase, symbols
    >>> i, k = symbols("i k", integer=True)
    >>> x, p = IndexedBase("x"), IndexedBase("p")
    >>> print(derive.Operation("rows", Eq(p[i, k], derive.LogSoftmax(x[i, k], k))))
    op rows(x[i, k]) -> p
    p[i, k] = log_softmax[k](x[i, k])
    """

    kind = "log_softmax"
    is_commutative = True


class Iverson(Expr):  # type: ignore[misc]
    """``[condition]``: 1 where the condition holds, else 0.

    As a factor it guards the other factors: where it is 0 they are neither read nor differentiated.
    K. E. Iverson introduced the bracket; D. E. Knuth, "Two notes on notation" (1992), describes it.

    >>> import derive
    >>> from sympy import Eq, IndexedBase, symbols
    >>> i, k = symbols("i k", integer=True)
    >>> x, y = IndexedBase("x"), IndexedBase("y")
    >>> print(derive.Operation("lower", Eq(y[i, k], derive.Iverson(k <= i) * x[i, k])))
    op lower(x[i, k]) -> y
    y[i, k] = x[i, k]*[k <= i]
    """

    is_commutative = True

    def __new__(cls, condition: Any) -> Any:
        return Expr.__new__(cls, _sympify(condition))


class Condition(Boolean):  # type: ignore[misc]
    """A condition. SymPy asks for the set where it holds, and can do without."""

    def _eval_as_set(self) -> Any:
        raise NotImplementedError(self)


class Holds(Condition):
    """An element of a bool tensor as a condition: ``m[i]`` in ``where(m[i], x[i], 0)``.

    >>> import derive
    >>> from sympy import Eq, IndexedBase, symbols
    >>> i = symbols("i", integer=True)
    >>> m, x, y = map(IndexedBase, "mxy")
    >>> print(derive.Operation("kept", Eq(y[i], derive.Iverson(derive.Holds(m[i])) * x[i])))
    op kept(x[i], m[i]: bool) -> y
    y[i] = x[i]*[m[i]]
    """

    def __new__(cls, element: Any) -> Any:
        return Boolean.__new__(cls, _sympify(element))


class Composite(Expr):  # type: ignore[misc]
    """A composite axis position ``(t d)``: position ``t*size(d) + d``, in row-major order.

    >>> import derive
    >>> from sympy import Eq, IndexedBase, symbols
    >>> n, t, d = symbols("n t d", integer=True)
    >>> x, y = IndexedBase("x"), IndexedBase("y")
    >>> print(derive.Operation("flat", Eq(y[n, derive.Composite(t, d)], x[n, t, d])))
    op flat(x[n, t, d]) -> y
    y[n, (t d)] = x[n, t, d]
    """

    is_commutative = True

    def __new__(cls, *parts: Any) -> Any:
        return Expr.__new__(cls, *map(_sympify, parts))


class Concat(Expr):  # type: ignore[misc]
    """Parts joined along an index: ``Concat(k, a[n, k], b[n, k])``.

    >>> import derive
    >>> from sympy import Eq, IndexedBase, symbols
    >>> n, k = symbols("n k", integer=True)
    >>> a, b, y = map(IndexedBase, "aby")
    >>> print(derive.Operation("joined", Eq(y[n, k], derive.Concat(k, a[n, k], b[n, k]))))
    op joined(a[n, a1], b[n, b1]) -> y
    y[n, k] = concat[k](a[n, k], b[n, k])
    """

    is_commutative = True

    def __new__(cls, index: Any, *parts: Any) -> Any:
        return Expr.__new__(cls, _sympify(index), *map(_sympify, parts))


def __getattr__(name: str) -> Any:
    """Create, from its table row, the class of a reduction or function that SymPy lacks."""
    row: Reduction | Scalar
    bases: tuple[Any, ...]
    facts: dict[str, Any]
    if name in _REDUCTIONS:
        row = _REDUCTIONS[name]
        bases = (Head, Condition if row.dtype == "bool" else Expr)
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
"""The classes that are created from table rows."""


class Group(Symbol):  # type: ignore[misc]
    """A group of any number of axes: ``A[*p, k, *q]``."""

    __slots__ = ()

    def __iter__(self) -> Iterator[Group]:
        return iter((self,))


def group(name: str) -> Group:
    """Return an index for any number of axes, ``*p`` in the text notation.

    >>> import derive
    >>> from sympy import Eq, IndexedBase, symbols
    >>> k, p = symbols("k", integer=True), derive.group("p")
    >>> x, y = IndexedBase("x"), IndexedBase("y")
    >>> print(derive.Operation("rows", Eq(y[p], derive.Mean(x[p, k], k))))
    op rows(x[*p, k]) -> y
    y[*p] = mean[k](x[*p, k])
    """
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
    """A parameter about an index: its run-time axis, its keep flag, or its size."""

    function: str
    index: Basic
    default: int | None = None


@dataclass(frozen=True)
class Options:
    """A choice of words; the first is the default."""

    options: tuple[str, ...]


@dataclass(frozen=True)
class SpecialInput:
    """An input with a kind, or one that may be None and then means a constant."""

    tensor: Any
    kind: str | None = None
    default: Any = None


def axis(index: Basic, default: int | None = None) -> OfIndex:
    """Declare a parameter that sets the position of an axis at run time: ``dim=axis(k)``.

    Args:
        index: the index of the axis.
        default: its position if the argument is omitted; without it, the argument is required.

    >>> import derive
    >>> from sympy import Eq, IndexedBase, symbols
    >>> k, p, q = symbols("k", integer=True), derive.group("p"), derive.group("q")
    >>> x, y = IndexedBase("x"), IndexedBase("y")
    >>> total = Eq(y[p, q], derive.Total(x[p, k, q], k))
    >>> print(derive.Operation("total", total, parameters={"dim": derive.axis(k, -1)}))
    op total(x[*p, k, *q]; dim=axis(k,-1)) -> y
    y[*p, *q] = sum[k](x[*p, k, *q])
    """
    return OfIndex("axis", index, default)


def keep(index: Basic) -> OfIndex:
    """Declare a flag for a reduced axis: ``keepdim=keep(k)``, False unless given.

    If the flag is True, outputs without axis k keep this axis with size 1.

    >>> import derive
    >>> from sympy import Eq, IndexedBase, symbols
    >>> n, k = symbols("n k", integer=True)
    >>> x, y = IndexedBase("x"), IndexedBase("y")
    >>> mean = Eq(y[n], derive.Mean(x[n, k], k))
    >>> print(derive.Operation("mean", mean, parameters={"keepdim": derive.keep(k)}))
    op mean(x[n, k]; keepdim=keep(k)) -> y
    y[n] = mean[k](x[n, k])
    """
    return OfIndex("keep", index)


def size(index: Any, default: int | None = None) -> Any:
    """Return the number of values of an index, for expressions and for ``parameters=``.

    With a ``default``, declare a parameter for the size: ``groups=size(g, 4)``. As a key of
    ``parameters=`` it fixes the size: ``{size(k): 3}``.

    >>> import derive
    >>> from sympy import Eq, IndexedBase, Sum, symbols
    >>> n, k = symbols("n k", integer=True)
    >>> x, y = IndexedBase("x"), IndexedBase("y")
    >>> print(derive.Operation("mean", Eq(y[n], Sum(x[n, k], k) / derive.size(k))))
    op mean(x[n, k]) -> y
    y[n] = sum[k](x[n, k])/size(k)
    """
    if default is not None:
        return OfIndex("size", index, default)
    label = getattr(index, "label", index)
    return SizeSymbol(f"size({label})", integer=True, nonnegative=True)


def Eq(left: Any, right: Any) -> Any:
    """Return SymPy's Eq unevaluated, since evaluation is slow."""
    return sympy.Eq(left, right, evaluate=False)


def choice(*options: str) -> Options:
    """Declare a parameter with several options; the first one is the default.

    ``outputs=`` gives the output of each option.

    >>> import derive
    >>> from sympy import Eq, IndexedBase, Symbol, symbols
    >>> n, s = symbols("n", integer=True), Symbol("s")
    >>> x, y = IndexedBase("x"), IndexedBase("y")
    >>> op = derive.Operation(
    ...     "squares",
    ...     Eq(y[n], x[n] ** 2),
    ...     Eq(s, derive.Total(y[n], n)),
    ...     parameters={"reduction": derive.choice("sum", "none")},
    ...     outputs={"sum": s, "none": y},
    ... )
    >>> print(op)
    op squares(x[n]; reduction=sum|none) -> sum: s | none: y
    y[n] = x[n]**2
    s = sum[n](y[n])
    """
    return Options(options)


def optional(tensor: Any, default: Any) -> SpecialInput:
    """Declare an input that may be None, which means the constant ``default``.

    >>> import derive
    >>> from sympy import Eq, IndexedBase, symbols
    >>> n, c = symbols("n c", integer=True)
    >>> x, w, y = map(IndexedBase, "xwy")
    >>> scaled = Eq(y[n, c], w[c] * x[n, c])
    >>> print(derive.Operation("scaled", scaled, inputs=[x, derive.optional(w, 1)]))
    op scaled(x[n, c], w[c]=1) -> y
    y[n, c] = x[n, c]*w[c]
    """
    return replace(special(tensor), default=default)


def integer(tensor: Any) -> SpecialInput:
    """Declare an integer input, which has no gradient.

    A tensor that is used as an index needs no declaration.

    >>> import derive
    >>> from sympy import Eq, IndexedBase, symbols
    >>> n = symbols("n", integer=True)
    >>> x, T, y = map(IndexedBase, "xTy")
    >>> print(derive.Operation("scaled", Eq(y[n], T[n] * x[n]), inputs=[x, derive.integer(T)]))
    op scaled(x[n], T[n]: int) -> y
    y[n] = x[n]*T[n]
    """
    return replace(special(tensor), kind="int")


def boolean(tensor: Any) -> SpecialInput:
    """Declare a bool input, which has no gradient.

    A tensor that is used as a condition needs no declaration.

    >>> import derive
    >>> from sympy import Eq, IndexedBase, symbols
    >>> n = symbols("n", integer=True)
    >>> x, m, y = map(IndexedBase, "xmy")
    >>> print(derive.Operation("kept", Eq(y[n], m[n] * x[n]), inputs=[x, derive.boolean(m)]))
    op kept(x[n], m[n]: bool) -> y
    y[n] = x[n]*m[n]
    """
    return replace(special(tensor), kind="bool")


def special(tensor: Any) -> SpecialInput:
    """Return the input with its kind and default."""
    return tensor if isinstance(tensor, SpecialInput) else SpecialInput(tensor)
