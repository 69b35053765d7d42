"""Truths and floats as numbers and as integers.

A truth is the number [c]; a float that becomes an integer loses what comes after its point, which
trunc says, so that it is whole by its form: x.long() is int(trunc(x)).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import sympy

from derive.algebra.functions import STEPS
from derive.tracing.values import Apply, Node, Number, Position, Read, Value, apply

_KEEP = ("+", "-", "*", "neg", "abs", "sign", "maximum", "minimum", "clamp", "where", "%", "//")
"""What makes a whole number of whole numbers."""


def as_number(x: Any) -> Any:
    """A truth as the number 1 where it holds, else 0; anything else as it is."""
    if not isinstance(x, Value) or x.kind != "bool":
        return x
    return replace(x, node=_number(x.node), kind="int")


def _number(node: Node) -> Node:
    match node:
        case Read():
            return node
        case Number(value):
            return Number(int(bool(value)))
        case Apply("masked", (mask, element)):
            return apply("masked", mask, _number(element))
    return apply("truth", node)


def as_truth(x: Value) -> Value:
    """Whether a number is not 0."""
    return x if x.kind == "bool" else replace(x, node=apply("!=", x.node, Number(0)), kind="bool")


def towards_zero(node: Node) -> Node:
    """The whole number of a float without what comes after its point."""
    return apply("trunc", node)


def is_whole(node: Node, equations: Sequence[Any]) -> bool:
    """Whether an expression is a whole number by its form."""
    match node:
        case Number(value):
            return not isinstance(value, float) and bool(sympy.sympify(value).is_integer)
        case Position() | Apply("int" | "truth"):
            return True
        case Apply(name) if name in STEPS:
            return True
        case Read(name):
            body = next((e for e in equations if e.name == name), None)
            return body is not None and (body.kind != "float" or is_whole(body.body, equations))
        case Apply("where", (_, a, b)):
            return is_whole(a, equations) and is_whole(b, equations)
        case Apply("clamp", (x, *bounds)):
            finite = [b for b in bounds if not _is_infinite(b)]
            return all(is_whole(part, equations) for part in (x, *finite))
        case Apply(name, args) if name in _KEEP:
            return all(is_whole(part, equations) for part in args)
    return False


def _is_infinite(node: Node) -> bool:
    return isinstance(node, Number) and node.value in (
        *(sympy.oo, -sympy.oo),
        *(float("inf"), float("-inf")),
    )
