"""The algebra as SymPy expressions, for printing and for use elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sympy

from derive.algebra import expr as e
from derive.errors import DeriveError
from derive.notation import heads

__all__ = ["to_sympy"]

_HEADS: dict[str, Any] = {
    head.kind: head
    for head in (
        heads.Mean,
        heads.ReduceMax,
        heads.ReduceMin,
        heads.ReduceAmax,
        heads.ReduceAmin,
        heads.LogSumExp,
        heads.ArgMax,
        heads.ArgMin,
        heads.AnyOf,
        heads.AllOf,
    )
}

_RELATIONS: dict[str, Any] = {
    "==": sympy.Eq,
    "!=": sympy.Ne,
    "<": sympy.Lt,
    "<=": sympy.Le,
    ">": sympy.Gt,
    ">=": sympy.Ge,
}

_CALLS: dict[str, Callable[..., Any]] = {
    "abs": sympy.Abs,
    "int": heads.to_int,
    "lgamma": sympy.loggamma,
    "pow": sympy.Pow,
    "floordiv": lambda a, b: sympy.floor(a / b),
}


def to_sympy(node: e.Expr) -> Any:
    """The SymPy expression that node stands for, with heads for what SymPy lacks."""
    match node:
        case e.Num(value):
            return sympy.Rational(value.numerator, value.denominator)
        case e.Const(name):
            return sympy.oo if name == "inf" else sympy.pi
        case e.Index(name, _, group):
            return heads.group(name) if group else sympy.Symbol(name, integer=True)
        case e.Size(extent):
            return heads.SizeSymbol(f"size({extent})", integer=True, nonnegative=True)
        case e.Param(name):
            return sympy.Symbol(name)
        case e.Access(tensor, positions):
            if not positions:
                return sympy.Symbol(tensor)
            return sympy.IndexedBase(tensor)[tuple(map(to_sympy, positions))]
        case e.Composite(args):
            return heads.Composite(*map(to_sympy, args))
        case e.Guard(condition, position):
            return sympy.Piecewise((to_sympy(position), _condition(condition)), (0, True))
        case e.Add(args):
            return sympy.Add(*map(to_sympy, args))
        case e.Mul(args):
            return sympy.Mul(*map(to_sympy, args))
        case e.Pow(base, exponent):
            return sympy.Pow(to_sympy(base), to_sympy(exponent))
        case e.Call(function, args):
            return _call(function)(*map(to_sympy, args))
        case e.Reduce(kind, indices, body, condition):
            return _reduce(kind, indices, body, condition)
        case e.Rel(op, left, right):
            return _relation(op, left, right)
        case e.And(args):
            return sympy.And(*map(_condition, args))
        case e.Or(args):
            return sympy.Or(*map(_condition, args))
        case e.Not(arg):
            return sympy.Not(_condition(arg))
        case e.Iverson(condition):
            return heads.Iverson(_condition(condition))
        case e.Where(condition, then, other):
            return sympy.Piecewise((to_sympy(then), _condition(condition)), (to_sympy(other), True))
        case e.Delta(axis, position):
            return sympy.KroneckerDelta(to_sympy(axis), to_sympy(position))
    raise DeriveError(f"{type(node).__name__} has no SymPy form: {node!r}")


def _call(function: str) -> Callable[..., Any]:
    found = _CALLS.get(function) or getattr(heads, function, None) or getattr(sympy, function, None)
    if found is None:
        raise DeriveError(f"{function} has no SymPy form")
    return found


def _condition(condition: e.Expr) -> Any:
    """A condition; an element of a bool tensor becomes one."""
    found = to_sympy(condition)
    return heads.Holds(found) if isinstance(condition, e.Access) else found


def _relation(op: str, left: e.Expr, right: e.Expr) -> Any:
    """The comparison, unless SymPy knows its value."""
    return _RELATIONS[op](to_sympy(left), to_sympy(right))


def _reduce(kind: str, indices: tuple[e.Index, ...], body: e.Expr, condition: e.Expr | None) -> Any:
    inner = to_sympy(body) if kind not in ("any", "all") else _condition(body)
    symbols = tuple(map(to_sympy, indices))
    if kind in ("sum", "prod"):
        if condition is not None:
            neutral = 0 if kind == "sum" else 1
            inner = sympy.Piecewise((inner, _condition(condition)), (neutral, True))
        limits = [
            (symbol, 0, to_sympy(e.Size(index.extent)) - 1)
            for symbol, index in zip(symbols, indices, strict=True)
        ]
        return (sympy.Sum if kind == "sum" else sympy.Product)(inner, *limits)
    where = True if condition is None else _condition(condition)
    return _HEADS[kind](inner, *symbols, where=where)
