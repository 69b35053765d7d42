"""Conversions between bool, int and float.

A bool is the number [c]. A float that becomes an integer loses its fraction by trunc, which makes
it an integer by its form: x.long() is int(trunc(x)).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import sympy

from derive.algebra.functions import STEPS
from derive.tracing.choices import sign_of
from derive.tracing.values import (
    Position,
    TracedApply,
    TracedNode,
    TracedNumber,
    TracedRead,
    TracedValue,
    apply,
)

_KEEP = ("+", "-", "*", "neg", "abs", "sign", "maximum", "minimum", "clamp", "where", "%", "//")
"""Operations that map integers to integers."""


def as_number(x: Any) -> Any:
    """Return a bool as 1 or 0; anything else as it is."""
    if not isinstance(x, TracedValue) or x.kind != "bool":
        return x
    return replace(x, node=_bool_as_int(x.node), kind="int")


def _bool_as_int(node: TracedNode) -> TracedNode:
    match node:
        case TracedRead():
            return node
        case TracedNumber(value):
            return TracedNumber(int(bool(value)))
        case TracedApply("masked", (mask, element)):
            return apply("masked", mask, _bool_as_int(element))
    return apply("truth", node)


def as_truth(x: TracedValue) -> TracedValue:
    """Return x != 0 as a bool."""
    return x if x.kind == "bool" else replace(x, node=apply("!=", x.node, 0), kind="bool")


def is_whole(node: TracedNode, equations: Sequence[Any]) -> bool:
    """True if an expression is an integer by its form."""
    match node:
        case TracedNumber(value):
            return not isinstance(value, float) and bool(sympy.sympify(value).is_integer)
        case Position() | TracedApply("int" | "truth"):
            return True
        case TracedApply(name) if name in STEPS:
            return True
        case TracedRead(name):
            body = next((e for e in equations if e.name == name), None)
            return body is not None and (body.kind != "float" or is_whole(body.body, equations))
        case TracedApply("where", (_, a, b)):
            return is_whole(a, equations) and is_whole(b, equations)
        case TracedApply("clamp", (x, *bounds)):
            finite = [b for b in bounds if not sign_of(b)]
            return all(is_whole(part, equations) for part in (x, *finite))
        case TracedApply(name, args) if name in _KEEP:
            return all(is_whole(part, equations) for part in args)
    return False
