"""The algebra as SymPy expressions, for printing and for use elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import sympy

from derive.algebra import expr as e
from derive.algebra.functions import FUNCTIONS
from derive.algebra.reductions import CONDITIONS, REDUCTIONS
from derive.errors import DeriveError
from derive.notation import heads

_RELATIONS: dict[str, Any] = {
    "==": sympy.Eq,
    "!=": sympy.Ne,
    "<": sympy.Lt,
    "<=": sympy.Le,
    ">": sympy.Gt,
    ">=": sympy.Ge,
}


def to_sympy(node: e.Expr) -> Any:
    """Return the SymPy expression of a node, with derive's heads where SymPy lacks one."""
    write = _TABLE.get(type(node))
    if write is None:
        raise DeriveError(f"{type(node).__name__} cannot be written in SymPy: {node!r}")
    return write(node)


def _all_to_sympy(nodes: Iterable[e.Expr]) -> Iterator[Any]:
    return map(to_sympy, nodes)


def _access(node: e.Access) -> Any:
    if not node.positions:
        return sympy.Symbol(node.tensor)
    return sympy.IndexedBase(node.tensor)[tuple(_all_to_sympy(node.positions))]


def _as_piecewise(condition: e.Expr, then: e.Expr, other: e.Expr) -> Any:
    return sympy.Piecewise((to_sympy(then), _condition(condition)), (to_sympy(other), True))


def _sympy_function(function: str) -> Callable[..., Any]:
    if function == "floordiv":
        return lambda a, b: sympy.floor(a / b)
    row = FUNCTIONS[function]
    return getattr(sympy, row.sympy) if row.sympy else getattr(heads, row.head)  # type: ignore[no-any-return]


def _condition(condition: e.Expr) -> Any:
    """Return a condition; an element of a bool tensor is wrapped in Holds."""
    found = to_sympy(condition)
    return heads.Holds(found) if isinstance(condition, e.Access) else found


def _reduce_to_sympy(node: e.Reduce) -> Any:
    kind, indices, body, condition = node.kind, node.indices, node.body, node.condition
    inner = to_sympy(body) if kind not in CONDITIONS else _condition(body)
    symbols = tuple(map(to_sympy, indices))
    if kind in ("sum", "prod"):
        if condition is not None:
            neutral = REDUCTIONS[kind].neutral
            inner = sympy.Piecewise((inner, _condition(condition)), (neutral, True))
        limits = [
            (symbol, 0, to_sympy(e.Size(index.extent)) - 1)
            for symbol, index in zip(symbols, indices, strict=True)
        ]
        return (sympy.Sum if kind == "sum" else sympy.Product)(inner, *limits)
    where = True if condition is None else _condition(condition)
    return getattr(heads, REDUCTIONS[kind].head)(inner, *symbols, where=where)


_TABLE: dict[type[e.Expr], Callable[[Any], Any]] = {
    e.Num: lambda n: sympy.Rational(n.value.numerator, n.value.denominator),
    e.Const: lambda n: sympy.oo if n.name == "inf" else sympy.pi,
    e.Index: lambda n: heads.group(n.name) if n.group else sympy.Symbol(n.name, integer=True),
    e.Size: lambda n: heads.size(n.extent),
    e.Param: lambda n: sympy.Symbol(n.name),
    e.Access: _access,
    e.Composite: lambda n: heads.Composite(*_all_to_sympy(n.args)),
    e.Guard: lambda n: _as_piecewise(n.condition, n.position, e.num(0)),
    e.Add: lambda n: sympy.Add(*_all_to_sympy(n.args)),
    e.Mul: lambda n: sympy.Mul(*_all_to_sympy(n.args)),
    e.Pow: lambda n: sympy.Pow(to_sympy(n.base), to_sympy(n.exponent)),
    e.Call: lambda n: _sympy_function(n.function)(*_all_to_sympy(n.args)),
    e.Reduce: _reduce_to_sympy,
    e.Rel: lambda n: _RELATIONS[n.op](to_sympy(n.left), to_sympy(n.right)),
    e.And: lambda n: sympy.And(*map(_condition, n.args)),
    e.Or: lambda n: sympy.Or(*map(_condition, n.args)),
    e.Not: lambda n: sympy.Not(_condition(n.arg)),
    e.Iverson: lambda n: heads.Iverson(_condition(n.condition)),
    e.Where: lambda n: _as_piecewise(n.condition, n.then, n.other),
    e.Delta: lambda n: sympy.KroneckerDelta(to_sympy(n.axis), to_sympy(n.position)),
}
"""Node class to its translation."""
