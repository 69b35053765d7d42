"""Elements that a boolean mask selects, whose number depends on the mask's values.

(x[m] - y[m])**2  has the axes of m, and is defined where m holds: `masked`
x[m].mean()       is mean[n,c | m[n,c]](x[n,c])
x[:, m]           has all elements of the axis, under the axis's mask: `held`
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from derive.errors import DeriveError
from derive.tracing.values import (
    Atom,
    Position,
    TracedApply,
    TracedNode,
    TracedReduce,
    TracedValue,
    apply,
    reduced,
    walk,
)

MANY = (
    "the number of elements depends on the values of a mask, which is not supported; use "
    "torch.where, or sum or average over all elements"
)


def selection(x: Any) -> tuple[TracedNode, TracedNode] | None:
    """Return (mask, element) of a value that has selected elements, else None."""
    match getattr(x, "node", None):
        case TracedApply("masked", (mask, node)):
            return mask, node
    return None


def elementwise(f: Callable[..., TracedNode], values: list[TracedValue]) -> TracedNode:
    """Apply f to elements; selected ones may meet numbers, and others of the same mask."""
    found = [selection(v) for v in values]
    masks = [m[0] for m in found if m is not None]
    if not masks:
        return f(*(v.node for v in values))
    alone = [v for v, m in zip(values, found, strict=True) if m is None and any(v.axes)]
    if alone or any(m != masks[0] for m in masks):
        raise DeriveError(MANY)
    nodes = [v.node if m is None else m[1] for v, m in zip(values, found, strict=True)]
    return apply("masked", masks[0], f(*nodes))


def over_all(kind: str, x: TracedValue, dim: Any) -> TracedValue:
    """Reduce all selected elements."""
    found = selection(x)
    if found is None or dim not in (None, [], ()) or kind.startswith("arg") or kind == "norm2":
        raise DeriveError(MANY)
    return TracedValue((), reduced(kind, x.atoms, found[1], found[0]), x.kind)


# -------------------------------------------------------------------- the mask of an axis


def under_mask(mask: TracedNode, node: TracedNode) -> TracedNode:
    return apply("held", mask, node)


def lifted_mask(value: TracedValue) -> tuple[TracedNode | None, TracedValue]:
    """Return (the mask in a value, the value without it)."""
    if not any(isinstance(x, TracedApply) and x.name == "held" for x in walk(value.node)):
        return None, value
    found: list[TracedNode] = []

    def without(node: TracedNode, bound: frozenset[Atom]) -> TracedNode:
        if isinstance(node, TracedApply) and node.name == "held":
            mask, inner = node.args
            if any(isinstance(x, Position) and x.atom in bound for x in walk(mask)):
                raise DeriveError(MANY)
            found.append(mask)
            return without(inner, bound)
        if isinstance(node, TracedReduce):
            bound = bound | set(node.atoms)
        parts = node.parts()
        return node.with_parts([without(p, bound) for p in parts]) if parts else node

    node = without(value.node, frozenset())
    if any(mask != found[0] for mask in found):
        raise DeriveError(MANY)
    if not any(isinstance(x, Position) and x.atom in value.atoms for x in walk(found[0])):
        # A single selected element: which one depends on the values of the mask.
        raise DeriveError(MANY)
    return found[0], replace(value, node=node)


def with_outer_mask(value: TracedValue) -> TracedValue:
    """Return the value with its mask outermost."""
    mask, plain = lifted_mask(value)
    return plain if mask is None else replace(plain, node=under_mask(mask, plain.node))
