"""Indices and nodes put in place of others, in expressions whose parts may be shared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from derive.algebra.expr import Expr, Index, Node, free_indices

__all__ = ["fresh", "replace", "replace_inside_out", "substitute"]

_Node = TypeVar("_Node", bound=Node)


def fresh(index: Index, taken: Iterable[Index]) -> Index:
    """An index like ``index`` whose name none of ``taken`` has: k, k', k'', ..."""
    names = {other.name for other in taken}
    name = index.name
    while name in names:
        name += "'"
    return Index(name, index.extent, index.group)


def substitute(e: Expr, mapping: Mapping[Index, Expr]) -> Expr:
    """e with free indices replaced, renaming bound ones that would capture.

    The result is canonical again where e was (a flat polynomial re-sorts itself).
    """
    return _substituted(e, mapping, {})


def _substituted(e: Expr, mapping: Mapping[Index, Expr], known: dict[Expr, Expr]) -> Expr:
    """As `substitute`; ``known`` has what is already found for this mapping."""
    found = known.get(e)
    if found is not None:
        return found
    free = free_indices(e)
    live = {i: new for i, new in mapping.items() if i in free and i is not new}
    if not live:
        return e
    if isinstance(e, Index):
        return live[e]
    binders = e.bound()
    inside = mapping, known
    if binders:
        incoming = frozenset().union(*(free_indices(new) for new in live.values()))
        clash = [i for i in binders if i in incoming]
        if clash:
            taken = [*incoming, *free, *binders, *live]
            renaming: dict[Index, Expr] = {}
            for i in clash:
                renamed = fresh(i, taken)
                taken.append(renamed)
                renaming[i] = renamed
            # One map for both: a flat term chooses new names for its binders as it is rebuilt,
            # and may choose only when the incoming indices are in place. Binders are children.
            live |= renaming
        inside = live, {}
    result: Expr = e.map(lambda part: _substituted(part, *inside))
    known[e] = result
    return result


def replace(e: _Node, f: Callable[[_Node], _Node | None]) -> _Node:
    """e with every node for which f gives a new one replaced, outermost first."""
    known: dict[_Node, _Node] = {}

    def visit(part: _Node) -> _Node:
        found = known.get(part)
        if found is None:
            new = f(part)
            found = known[part] = part.map(visit) if new is None else new
        return found

    return visit(e)


def replace_inside_out(e: Expr, f: Callable[[Expr], Expr]) -> Expr:
    """e with every node, after its parts, replaced by what f makes of it."""
    known: dict[Expr, Expr] = {}

    def visit(part: Expr) -> Expr:
        found = known.get(part)
        if found is None:
            found = known[part] = f(part.map(visit))
        return found

    return visit(e)
