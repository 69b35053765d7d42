"""Names of values and letters of axes; which values get a name, and when two are the same."""

from __future__ import annotations

import ast
import inspect
import keyword
import textwrap
from collections.abc import Iterator, Mapping
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
        return all(
            isinstance(p, Position) or not any(isinstance(x, TracedRead) for x in walk(p))
            for p in node.positions
        )
    parts = list(walk(node))
    return len(parts) <= _FEW and not any(isinstance(x, TracedRead | TracedReduce) for x in parts)


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


# -------------------------------------------------------------------- letters


def letters_in(function: Any, ranks: Mapping[str, int]) -> dict[str, list[str | None]]:
    """Return the letters of the axes of inputs of these ranks, if the code names them."""
    import torch

    code = type(function).forward if isinstance(function, torch.nn.Module) else function
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(code)))
    except (OSError, TypeError, SyntaxError, ValueError):
        return {}
    found: dict[str, list[str | None]] = {}
    for tensor, place, name in _named_axes(tree, ranks):
        letter = name.lower()
        letters = found.setdefault(tensor, [None] * ranks[tensor])
        if len(letter) == 1 and letter.isascii() and letter.isalpha() and letter not in letters:
            if letters[place] is None:
                letters[place] = letter
    return found


def _named_axes(tree: ast.AST, ranks: Mapping[str, int]) -> Iterator[tuple[str, int, str]]:
    """Yield (input, axis, name)."""
    changed: set[str] = set()
    statements = [n for n in ast.walk(tree) if isinstance(n, ast.Assign)]
    for statement in sorted(statements, key=lambda n: n.lineno):
        match statement.targets:
            case [ast.Name(name)]:
                one = _axis_of(statement.value)
                if one is not None and one[0] in ranks and one[0] not in changed:
                    rank = ranks[one[0]]
                    if -rank <= one[1] < rank:
                        yield one[0], one[1] % rank, name
                changed.add(name)
            case [ast.Tuple(parts)]:
                several = _shape_of(statement.value)
                if several is not None and several[0] in ranks and several[0] not in changed:
                    yield from _unpacked_axes(several[0], parts, several[1], ranks[several[0]])
                changed |= {p.id for p in parts if isinstance(p, ast.Name)}


def _unpacked_axes(
    tensor: str, parts: list[ast.expr], part: slice, rank: int
) -> Iterator[tuple[str, int, str]]:
    places = list(range(rank))[part]
    star = next((n for n, p in enumerate(parts) if isinstance(p, ast.Starred)), None)
    if star is None and len(parts) != len(places):
        return
    for n, p in enumerate(parts):
        if isinstance(p, ast.Name):
            place = n if star is None or n < star else n - len(parts)
            if -len(places) <= place < len(places):
                yield tensor, places[place], p.id


def _shape_of(e: ast.expr) -> tuple[str, slice] | None:
    """Return (x, a slice of its axes) for x.shape, x.size() and x.shape[-2:]."""
    match e:
        case ast.Attribute(ast.Name(name), "shape"):
            return name, slice(None)
        case ast.Call(ast.Attribute(ast.Name(name), "size"), [], []):
            return name, slice(None)
        case ast.Subscript(inner, ast.Slice(low, high, None)):
            found = _shape_of(inner)
            bounds = [_integer_constant(b) if b is not None else None for b in (low, high)]
            if found is not None and not any(
                a is not None and b is None for a, b in zip((low, high), bounds, strict=True)
            ):
                return found[0], slice(*bounds)
    return None


def _axis_of(e: ast.expr) -> tuple[str, int] | None:
    """Return (x, one of its axes) for x.shape[0] and x.size(0)."""
    match e:
        case ast.Subscript(ast.Attribute(ast.Name(name), "shape"), index):
            place = _integer_constant(index)
        case ast.Call(ast.Attribute(ast.Name(name), "size"), [index], []):
            place = _integer_constant(index)
        case _:
            return None
    return None if place is None else (name, place)


def _integer_constant(e: ast.expr) -> int | None:
    match e:
        case ast.Constant(int() as value):
            return value
        case ast.UnaryOp(ast.USub(), ast.Constant(int() as value)):
            return -value
    return None
