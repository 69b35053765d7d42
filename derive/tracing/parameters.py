"""Find float arguments of a function among the constants of its trace.

The function is traced again with another number. The constants that change are the parameter, or
what Python computes from it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import Any

import sympy

from derive.notation.advice import WORDS
from derive.tracing.context import TracedEquation
from derive.tracing.values import (
    Position,
    TracedApply,
    TracedNode,
    TracedNumber,
    TracedParameter,
    TracedReduce,
    apply,
)

_WAYS: tuple[tuple[Callable[[float], float], Callable[[TracedNode], TracedNode]], ...] = (
    (lambda v: v, lambda p: p),
    (lambda v: -v, lambda p: -p),
    (lambda v: 1 - v, lambda p: 1 - p),
    (lambda v: 1 + v, lambda p: 1 + p),
    (lambda v: 1 / v, lambda p: 1 / p),
    (lambda v: v - 1, lambda p: p - 1),
    (lambda v: 2 * v, lambda p: 2 * p),
    (lambda v: 0.5 * v, lambda p: p / 2),
    (lambda v: v * v, lambda p: p**2),
)
"""Expressions that Python may compute from a number before torch sees it: of floats, of nodes."""


_INVERSE = _WAYS[4][0]


def perturbed_number(value: float) -> float:
    """Return another number of the same sign."""
    return value * 1.0625 + (0.0009765625 if value >= 0 else -0.0009765625)


def with_parameter(
    equations: Sequence[TracedEquation],
    others: Sequence[TracedEquation],
    name: str,
    value: float,
    stay: Collection[float] = (),
    known: Mapping[str, float] | None = None,
) -> list[TracedEquation] | None:
    """Return the equations with a parameter; None if its role is unclear.

    Numbers in ``stay`` cannot be a parameter, as other values would change the equations. ``known``
    are the parameters that the equations already have.
    """
    if [e.name for e in equations] != [e.name for e in others]:
        return None

    def anti_unified(one: TracedNode, other: TracedNode) -> TracedNode | None:
        """Return the expression that equals both for two values of a parameter."""
        if isinstance(one, TracedNumber) and isinstance(other, TracedNumber):
            a, b = one.value, other.value
            # Each reading has its own symbols, so their floats are compared.
            has_sizes = isinstance(a, sympy.Expr) and a.free_symbols
            if _float_atoms(a) == _float_atoms(b) if has_sizes else a == b:
                return one
            return None if a in stay else _parameter_in_number(one, other, name, value)
        if isinstance(other, TracedNumber):
            # An expression that has another parameter stays as it is.
            found = _value_from_parameters(one, known or {})
            return one if found is not None and _floats_agree(found, float(other.value)) else None
        if type(one) is not type(other):
            return None
        if isinstance(one, Position):
            return one
        if _label(one) != _label(other) or len(one.parts()) != len(other.parts()):
            return None
        parts = list(map(anti_unified, one.parts(), other.parts()))
        if any(p is None for p in parts):
            return None
        return one.with_parts([p for p in parts if p is not None]) if parts else one

    made = []
    for e, other in zip(equations, others, strict=True):
        body = anti_unified(e.body, other.body)
        if body is None:
            return None
        made.append(replace(e, body=body))
    return made if made != list(equations) else None


_MADE: dict[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "**": operator.pow,
}


def _value_from_parameters(node: TracedNode, known: Mapping[str, float]) -> float | None:
    """Evaluate an expression of parameters, as `_WAYS` makes them; None if it is another one."""
    match node:
        case TracedNumber(value) if not isinstance(value, sympy.Expr):
            return float(value)
        case TracedParameter(name):
            return known.get(name)
        case TracedApply("neg", (a,)):
            found = _value_from_parameters(a, known)
            return None if found is None else -found
        case TracedApply(name, (a, b)) if name in _MADE:
            x, y = _value_from_parameters(a, known), _value_from_parameters(b, known)
            return None if x is None or y is None else _MADE[name](x, y)
    return None


def _label(node: TracedNode) -> Any:
    if isinstance(node, TracedReduce):
        return node.kind, len(node.atoms), node.condition is None
    return getattr(node, "name", None)


def _float_atoms(e: Any) -> list[float]:
    return sorted(map(float, e.atoms(sympy.Float))) if isinstance(e, sympy.Expr) else [float(e)]


def _parameter_in_number(
    one: TracedNumber, other: TracedNumber, name: str, value: float
) -> TracedNode | None:
    if isinstance(one.value, sympy.Expr) and one.value.free_symbols:
        return _parameter_in_sizes(one.value, sympy.sympify(other.value), name, value)
    try:
        a, b = float(one.value), float(other.value)
    except (TypeError, ValueError):
        return None
    return _way(a, b, name, value)


def _parameter_in_sizes(one: sympy.Expr, other: Any, name: str, value: float) -> TracedNode | None:
    """Return a number made of a parameter and sizes: p/size(c), 1 - p/size(c)."""
    if _float_atoms(one) == _float_atoms(other):
        is_whole = one.is_number and float(one).is_integer()
        return TracedNumber(sympy.Integer(one) if is_whole else one)
    if one.is_number and other.is_number:
        return _way(float(one), float(other), name, value)
    if one.func is not other.func or len(one.args) != len(other.args):
        return None
    pairs = zip(one.args, other.args, strict=True)
    found = [_parameter_in_sizes(a, b, name, value) for a, b in pairs]
    parts = [p for p in found if p is not None]
    symbol = _OF_SIZES.get(one.func)
    if len(parts) < len(found) or symbol is None:
        return None
    match symbol, parts:
        case "*", [TracedApply("neg", (first,)), *rest]:
            return -_product_of_parts([first, *rest])
        case "*", _:
            return _product_of_parts(parts)
    parts.sort(key=_is_below_zero)
    return reduce(partial(apply, symbol), parts)


def _product_of_parts(parts: Sequence[TracedNode]) -> TracedNode:
    """Return the product of the parts; a factor 1/n is a division by n."""
    below = [p for p in parts if isinstance(p, TracedNumber) and sympy.fraction(p.value)[0] == 1]
    made = reduce(partial(apply, "*"), [p for p in parts if p not in below])
    return reduce(lambda a, p: a / (1 / p.value), below, made)


def _is_below_zero(node: TracedNode) -> bool:
    match node:
        case TracedNumber(value):
            return bool(sympy.sympify(value).is_negative)
        case TracedApply("neg"):
            return True
    return False


_OF_SIZES = {sympy.Add: "+", sympy.Mul: "*", sympy.Pow: "**"}


def _way(a: float, b: float, name: str, value: float) -> TracedNode | None:
    """Return an expression that is a for the parameter, and b for the perturbed parameter."""
    for number, node in _WAYS:
        if value == 0 and number is _INVERSE:
            continue
        if _floats_agree(number(value), a) and _floats_agree(number(perturbed_number(value)), b):
            return node(TracedParameter(name))
    return None


def _floats_agree(a: float, b: float) -> bool:
    return abs(a - b) <= 1e-12 * max(abs(a), abs(b))


class Watched(float):
    """A float that records whether it was compared: another value may take another branch."""

    asked: list[bool]

    @staticmethod
    def of(value: float, asked: list[bool]) -> Watched:
        made = Watched(value)
        made.asked = asked
        return made


def _watch() -> None:
    """Make comparisons of `Watched` record themselves, and arithmetic return `Watched`."""

    def compared(name: str) -> Any:
        plain = getattr(float, name)

        def method(self: Watched, *others: Any) -> Any:
            self.asked.append(True)
            return plain(self, *others)

        return method

    def computed(name: str) -> Any:
        plain = getattr(float, name)
        reflected = name.startswith("__r")
        plainly = name.replace("__r", "__")

        def method(self: Watched, *others: Any) -> Any:
            made = plain(self, *others)
            if made is NotImplemented and hasattr(others[0], "node"):
                # Sizes take plain numbers only.
                pair = (*others, float(self)) if reflected else (float(self), *others)
                return getattr(operator, plainly)(*pair)
            return Watched.of(made, self.asked) if type(made) is float else made

        return method

    for name in ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__bool__"):
        setattr(Watched, name, compared(name))
    for name in "add radd sub rsub mul rmul truediv rtruediv pow rpow neg abs".split():
        setattr(Watched, f"__{name}__", computed(f"__{name}__"))
    Watched.__hash__ = float.__hash__  # type: ignore[method-assign]


_watch()


def numbers_in(arguments: Mapping[str, Any]) -> dict[str, float]:
    """Return the arguments that are floats and whose name is valid in the notation."""
    return {
        k: v
        for k, v in arguments.items()
        if type(v) is float and k.isidentifier() and k not in WORDS and k[0] != "_"
    }
