"""Substitution of indices and nodes, in expressions with shared subexpressions."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from itertools import count
from typing import TypeVar, cast

from derive.algebra.expr import Expr, Index, free_indices
from derive.algebra.hashcons import Node

_Node = TypeVar("_Node", bound=Node)
_Expr = TypeVar("_Expr", bound=Expr)


def primed(name: str, taken: Container[str]) -> str:
    """The first of name, name', name'', ... that is not taken."""
    while name in taken:
        name += "'"
    return name


def numbers(stem: str) -> Iterator[str]:
    """stem, stem2, stem3, ..."""
    yield stem
    yield from (f"{stem}{n}" for n in count(2))


def fresh_numbered(stem: str, taken: Container[str]) -> str:
    """The first of stem, stem2, stem3, ... that is not taken."""
    return next(name for name in numbers(stem) if name not in taken)


def fresh(index: Index, taken: Iterable[Index]) -> Index:
    """An index like ``index`` whose name none of ``taken`` has: k, k', k'', ..."""
    name = primed(index.name, {other.name for other in taken})
    return Index(name, index.extent, index.group)


def rename_apart(indices: Iterable[Index], taken: Iterable[Index]) -> tuple[Index, ...]:
    """The indices, renamed to differ from ``taken`` and from each other."""
    used = list(taken)
    result = []
    for i in indices:
        result.append(fresh(i, used))
        used.append(result[-1])
    return tuple(result)


def substitute(e: _Expr, mapping: Mapping[Index, Expr]) -> _Expr:
    """e with free indices replaced, renaming bound ones that would capture.

    The result is canonical if e was: a flat polynomial stays one and is sorted again.
    """
    return cast(_Expr, _substituted(e, mapping, {}))


def _substituted(e: Expr, mapping: Mapping[Index, Expr], known: dict[Expr, Expr]) -> Expr:
    """`substitute` with ``known``, the memo of this mapping."""
    found = known.get(e)
    if found is not None:
        return found
    free = free_indices(e)
    if free.isdisjoint(mapping):
        return e
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
            renamed = rename_apart(clash, [*incoming, *free, *binders, *live])
            # Use one mapping for both. A flat term renames its binders as it is rebuilt, and may do
            # so only once the incoming indices are substituted. Binders are children.
            live |= zip(clash, renamed, strict=True)
        inside = live, {}
    result: Expr = e.map(lambda part: _substituted(part, *inside))
    known[e] = result
    return result


def replace(e: _Node, f: Callable[[_Node], _Node | None]) -> _Node:
    """e with every node replaced for which f returns a new one, outermost first."""
    known: dict[_Node, _Node] = {}

    def visit(part: _Node) -> _Node:
        found = known.get(part)
        if found is None:
            new = f(part)
            found = known[part] = part.map(visit) if new is None else new
        return found

    return visit(e)


def replace_inside_out(e: Expr, f: Callable[[Expr], Expr]) -> Expr:
    """e with f applied to every node, after its children."""
    known: dict[Expr, Expr] = {}

    def visit(part: Expr) -> Expr:
        found = known.get(part)
        if found is None:
            found = known[part] = f(part.map(visit))
        return found

    return visit(e)
