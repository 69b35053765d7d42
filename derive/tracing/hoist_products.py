"""Hoist matrix products out of sums, into equations of their own.

    y[n,m] = sum[k](h[n,k]*sum[c](x[n,c]*up[k,c])*down[m,k])

is    up2[n,k] = sum[c](x[n,c]*up[k,c])
      y[n,m] = sum[k](h[n,k]*up2[n,k]*down[m,k])

A named product is computed once, and saved for the backward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from derive.tracing.context import TracedEquation
from derive.tracing.names import value_key
from derive.tracing.values import (
    Atom,
    Position,
    TracedNode,
    TracedRead,
    TracedReduce,
    TracedValue,
    joined,
    walk,
)

_OF_A_MODULE = "_weight"


def hoisted_products(
    equations: Sequence[TracedEquation], fresh: Callable[[str], str]
) -> list[TracedEquation]:
    """Return the equations with hoisted products, each before the equations that read it."""
    named: dict[tuple[Any, ...], str] = {}
    found: list[TracedEquation] = []

    def visit(node: TracedNode, inside: bool, place: TracedEquation) -> TracedNode:
        is_sum = isinstance(node, TracedReduce)
        parts = tuple(visit(part, inside or is_sum, place) for part in node.parts())
        node = node.with_parts(parts) if parts else node
        if not (inside and isinstance(node, TracedReduce) and _sums_product(node)):
            return node
        axes = tuple((atom,) for atom in _free(node))
        said = value_key(TracedValue(axes, node))
        if said not in named:
            named[said] = fresh(_stem(node))
            found.append(TracedEquation(named[said], axes, node, "float", place.place))
        return TracedRead(named[said], tuple(map(joined, axes)))

    for equation in equations:
        body = visit(equation.body, False, equation)
        found.append(replace(equation, body=body))
    return found


def _sums_product(node: TracedReduce) -> bool:
    """True if the indices of a sum occur in at least two reads."""
    if node.kind != "sum":
        return False
    summed = set(node.atoms)
    read = {part for part in walk(node.body) if isinstance(part, TracedRead)}
    return len([r for r in read if not summed.isdisjoint(_positions(r))]) > 1


def _positions(node: TracedNode) -> Iterator[Atom]:
    return (part.atom for part in walk(node) if isinstance(part, Position))


def _free(node: TracedReduce) -> list[Atom]:
    """Return the free indices of a sum, in order of occurrence."""
    bound = {a for part in walk(node) if isinstance(part, TracedReduce) for a in part.atoms}
    return [a for a in dict.fromkeys(_positions(node)) if a not in bound]


def _stem(node: TracedNode) -> str:
    """Return the name of the module whose weight is read, else "h"."""
    names = [part.name for part in walk(node) if isinstance(part, TracedRead)]
    own = [n.removesuffix(_OF_A_MODULE) for n in names if n.endswith(_OF_A_MODULE)]
    return own[-1] if own else "h"
