"""Elements selected by a boolean mask, x[m], whose number depends on the mask's values.

(x[m] - y[m])**2  has the axes of m, and is defined where m holds
x[m].mean()       is mean[n,c | m[n,c]](x[n,c])
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from derive.errors import DeriveError
from derive.tracing.values import TracedApply, TracedNode, TracedValue, apply, reduced

MANY = (
    "the number of elements depends on the values of a mask, which is not supported; use "
    "torch.where, or sum or average over all elements"
)


def of_mask(x: Any) -> tuple[TracedNode, TracedNode] | None:
    """Return (mask, element) of a value that has selected elements, else None."""
    match getattr(x, "node", None):
        case TracedApply("masked", (mask, node)):
            return mask, node
    return None


def masked(reader: Any, x: TracedValue, mask: TracedValue) -> TracedValue:
    """Return the elements of x where a mask of its first axes holds."""
    for a, b in zip(x.axes, mask.axes, strict=False):
        if bool(a) != bool(b):
            raise DeriveError(MANY)
    if of_mask(x) is not None:
        raise DeriveError(MANY)
    wide = replace(mask, axes=(*mask.axes, *((),) * (len(x.axes) - len(mask.axes))))
    x, wide = reader.aligned(x, wide)
    return replace(x, node=apply("masked", wide.node, x.node))


def elementwise(f: Callable[..., TracedNode], values: list[TracedValue]) -> TracedNode:
    """Apply f to elements; selected ones may meet numbers, and others of the same mask."""
    found = [of_mask(v) for v in values]
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
    found = of_mask(x)
    if found is None or dim not in (None, [], ()) or kind.startswith("arg") or kind == "norm2":
        raise DeriveError(MANY)
    return TracedValue((), reduced(kind, x.atoms, found[1], found[0]), x.kind)
