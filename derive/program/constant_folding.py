"""Folds constants: integer arithmetic, constant conditions, and repeated tests.

    min(4 - 1, 3)            3
    a if 1 != 0 else b       a
    where(m, where(m, a, 0), c)   where(m, a, c)

Only integers are folded: a quotient or a root keeps the rounding of torch and Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from operator import add, mul, sub
from typing import Any

from derive.algebra.expr import RELATIONS
from derive.algebra.substitution import Recursion
from derive.program.torch_ir import (
    Binary,
    Code,
    Conditional,
    FunctionCall,
    Literal,
    MethodCall,
    Unary,
    literal,
    operands,
)

ARITHMETIC: Mapping[str, Callable[[Any, Any], Any]] = {"+": add, "-": sub, "*": mul}
"""The operators without a quotient, of numbers."""
_LARGEST = 2**53
_TRUE, _FALSE = Literal("True"), Literal("False")


@lru_cache(maxsize=2**12)
def folded(code: Code) -> Code:
    """Return the folded code, without recursion: a chain of operators may be of any length."""
    known: dict[Code, Code] = {}
    pending = [code]
    while pending:
        part = pending[-1]
        missing = [inner for inner in part.parts() if inner not in known]
        if missing:
            pending += missing
            continue
        pending.pop()
        if part not in known:
            known[part] = _folded(part.map(known.__getitem__))
    return known[code]


def _folded(code: Code) -> Code:
    match code:
        case Binary(op, Literal(), Literal()) if op in ARITHMETIC or op in RELATIONS:
            return _fold_binary(code, op)
        case Binary("and" | "or" as op, left, right):
            return _fold_truth(code, op, left, right)
        case Unary("~", Unary("~", operand)):
            return operand
        case MethodCall(MethodCall(x, "unsqueeze", (at,)), "squeeze", (again,)) if at == again:
            return x
        case Unary("not", Literal("True" | "False" as value)):
            return _FALSE if value == "True" else _TRUE
        case FunctionCall("min" | "max" as name, args):
            return _fold_extremum(name, args)
        case Conditional(Literal("True"), then, _):
            return then
        case Conditional(Literal("False"), _, other):
            return other
        case FunctionCall("torch.where" | "rt.where" as name, (mask, then, other)):
            return FunctionCall(name, (mask, *_resolve_branches(mask, then, other)))
    return code


def _resolve_branches(mask: Code, then: Code, other: Code) -> tuple[Code, Code]:
    """Return the branches of ``where``, with an inner ``where`` of the same mask resolved.

    The dropped branch must be a number, as a tensor may contribute axes to the result.
    """
    match then:
        case FunctionCall("torch.where" | "rt.where", (inner, taken, Literal())) if inner is mask:
            then = taken
    match other:
        case FunctionCall("torch.where" | "rt.where", (inner, Literal(), taken)) if inner is mask:
            other = taken
    return then, other


def _folded_integer(code: Code) -> int | None:
    if isinstance(code, Literal) and code.text.removeprefix("-").isdecimal():
        return int(code.text)
    return None


def _fold_binary(code: Binary, op: str) -> Code:
    a, b = _folded_integer(code.left), _folded_integer(code.right)
    if a is None or b is None:
        return code
    if op in RELATIONS:
        return _TRUE if RELATIONS[op](a, b) else _FALSE
    value = ARITHMETIC[op](a, b)
    return literal(value) if abs(value) < _LARGEST else code


def _fold_truth(code: Code, op: str, left: Code, right: Code) -> Code:
    """Simplify a Boolean operator; only the truthiness of the result matters."""
    neutral, other = (_TRUE, _FALSE) if op == "and" else (_FALSE, _TRUE)
    if left is neutral or left is right:
        return right
    if other in (left, right):
        return other
    return left if right is neutral else code


def _fold_extremum(name: str, args: Iterable[Code]) -> Code:
    """Return min or max of distinct arguments."""
    distinct = tuple(dict.fromkeys(args))
    return distinct[0] if len(distinct) == 1 else FunctionCall(name, distinct)


def asked_once(code: Code) -> Code:
    """Return the code without tests that an enclosing choice decides."""

    def asked(key: tuple[Code, frozenset[Code], frozenset[Code]]) -> Code:
        code, true, false = key
        if not isinstance(code, Conditional):
            return code.map(lambda part: visit((part, true, false)))  # type: ignore[no-any-return]
        test = visit((code.test, true, false))
        parts = frozenset(operands(test, "and"))
        if parts <= true:
            return visit((code.then, true, false))
        if parts & false:
            return visit((code.other, true, false))
        other = false | parts if len(parts) == 1 else false
        then = visit((code.then, true | parts, false))
        return Conditional(test, then, visit((code.other, true, other)))

    visit = Recursion(asked)
    return visit((code, frozenset(), frozenset()))
