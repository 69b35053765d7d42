"""Names of values: which values are worth an equation, and when two are the same."""

from __future__ import annotations

import keyword
from typing import Any

from derive.notation.names import CONSTANTS
from derive.tracing.values import (
    Atom,
    Position,
    TracedNode,
    TracedRead,
    TracedReduce,
    TracedValue,
    walk,
)

_FEW = 16
"""Maximum number of nodes in an expression of positions and numbers that gets no name."""


def is_simple(node: TracedNode) -> bool:
    """True if the expression is a read, a number or little more."""
    if isinstance(node, TracedRead):
        return all(isinstance(p, Position) or not _has_read(p) for p in node.positions)
    parts = list(walk(node))
    return len(parts) <= _FEW and not any(isinstance(x, TracedRead | TracedReduce) for x in parts)


def _has_read(node: TracedNode) -> bool:
    return any(isinstance(x, TracedRead) for x in walk(node))


def value_key(value: TracedValue) -> tuple[Any, ...]:
    """Return a key that is equal for values that differ only in their indices."""
    numbers: dict[Atom, int] = {}

    def number(a: Atom) -> int:
        return numbers.setdefault(a, len(numbers))

    def said(node: TracedNode) -> tuple[Any, ...]:
        match node:
            case Position(atom):
                return "at", number(atom)
            case TracedReduce(kind, atoms):
                return kind, tuple(map(number, atoms)), *map(said, node.parts())
        own = [v for v in vars(node).values() if not isinstance(v, tuple)]
        return type(node).__name__, *map(str, own), *map(said, node.parts())

    axes = tuple(tuple((number(a), a.size) for a in axis) for axis in value.axes)
    return axes, value.kind, said(value.node)


def notation_name(name: str) -> str:
    """Return a name of the user as one of the notation, where no name begins with _."""
    made = name.lstrip("_") or "x"
    if made[0].isdigit():
        return f"m{made}"
    return f"{made}_" if made in CONSTANTS or keyword.iskeyword(made) else made


def fresh_name(stem: str, taken: set[str]) -> str:
    """Return an unused name, and add it to the names taken."""
    stem = "".join(c if c.isalnum() or c == "_" else "_" for c in stem).strip("_") or "part"
    if stem[0].isdigit() or keyword.iskeyword(stem) or stem in _WORDS:
        stem = f"{stem}_" if not stem[0].isdigit() else f"v{stem}"
    name, n = stem, 2
    while name in taken:
        name, n = f"{stem}{n}", n + 1
    taken.add(name)
    return name


_WORDS = frozenset(
    "op size mean sum prod max min amax amin softmax logsumexp where concat exp log sqrt int "
    "any all argmax argmin detach inf pi True False".split()
)
