"""Numbers that are arguments of a function, found among the constants of what was read.

The function is read again with another number: the constants that move are the parameter, or what
Python makes of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import sympy

from derive.tracing.reader import Equation
from derive.tracing.values import Node, Number, Parameter, Position, Reduce, apply

_WAYS: tuple[tuple[Callable[[float], float], Callable[[Node], Node]], ...] = (
    (lambda v: v, lambda p: p),
    (lambda v: -v, lambda p: apply("neg", p)),
    (lambda v: 1 - v, lambda p: apply("-", Number(1), p)),
    (lambda v: 1 / v, lambda p: apply("/", Number(1), p)),
    (lambda v: v - 1, lambda p: apply("-", p, Number(1))),
    (lambda v: 2 * v, lambda p: apply("*", Number(2), p)),
    (lambda v: 0.5 * v, lambda p: apply("/", p, Number(2))),
    (lambda v: v * v, lambda p: apply("**", p, Number(2))),
)
"""What may be made of a number before torch sees it, and the same of a parameter."""


def moved(value: float) -> float:
    """Another number of the same sign."""
    return value * 1.0625 + (0.0009765625 if value >= 0 else -0.0009765625)


def with_parameter(
    equations: Sequence[Equation], others: Sequence[Equation], name: str, value: float
) -> list[Equation] | None:
    """The equations with a parameter; None where it is not seen what becomes of it."""
    if [e.name for e in equations] != [e.name for e in others]:
        return None
    made = []
    for e, other in zip(equations, others, strict=True):
        body = _merged(e.body, other.body, name, value)
        if body is None:
            return None
        made.append(replace(e, body=body))
    return made if made != list(equations) else None


def _merged(one: Node, other: Node, name: str, value: float) -> Node | None:
    """The expression that is the one and the other for two values of a parameter."""
    if isinstance(one, Number) and isinstance(other, Number):
        return one if _same(one.value, other.value) else _of(one, other, name, value)
    if type(one) is not type(other):
        return None
    if isinstance(one, Position):
        return one
    if _label(one) != _label(other) or len(one.parts()) != len(other.parts()):
        return None
    parts = [_merged(a, b, name, value) for a, b in zip(one.parts(), other.parts(), strict=True)]
    if any(p is None for p in parts):
        return None
    return one.with_parts([p for p in parts if p is not None]) if parts else one


def _label(node: Node) -> Any:
    if isinstance(node, Reduce):
        return node.kind, len(node.atoms), node.condition is None
    return getattr(node, "name", None)


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, sympy.Expr) and a.free_symbols:
        return True
    return bool(a == b)


def _of(one: Number, other: Number, name: str, value: float) -> Node | None:
    try:
        a, b = float(one.value), float(other.value)
    except (TypeError, ValueError):
        return None
    for number, node in _WAYS:
        if value == 0 and number is _WAYS[3][0]:
            continue
        if _near(number(value), a) and _near(number(moved(value)), b):
            return node(Parameter(name))
    return None


def _near(a: float, b: float) -> bool:
    return abs(a - b) <= 1e-12 * max(abs(a), abs(b))


class Watched(float):
    """A number that notes whether it was compared: then another may take another branch."""

    asked: list[bool]

    @staticmethod
    def of(value: float, asked: list[bool]) -> Watched:
        made = Watched(value)
        made.asked = asked
        return made


def _watch() -> None:
    """Comparisons are noted; what arithmetic makes is watched too."""

    def compared(name: str) -> Any:
        plain = getattr(float, name)

        def method(self: Watched, *others: Any) -> Any:
            self.asked.append(True)
            return plain(self, *others)

        return method

    def computed(name: str) -> Any:
        plain = getattr(float, name)

        def method(self: Watched, *others: Any) -> Any:
            made = plain(self, *others)
            return Watched.of(made, self.asked) if type(made) is float else made

        return method

    for name in ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__bool__"):
        setattr(Watched, name, compared(name))
    for name in "add radd sub rsub mul rmul truediv rtruediv pow rpow neg abs".split():
        setattr(Watched, f"__{name}__", computed(f"__{name}__"))
    Watched.__hash__ = float.__hash__  # type: ignore[method-assign]


_watch()


def numbers_in(arguments: Mapping[str, Any]) -> dict[str, float]:
    """The arguments that are floats."""
    return {k: v for k, v in arguments.items() if type(v) is float and k.isidentifier()}
