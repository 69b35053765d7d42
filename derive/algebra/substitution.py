"""Substitution of indices and nodes, in expressions with shared subexpressions."""

from __future__ import annotations

from collections.abc import (
    Callable,
    Container,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
)
from itertools import count
from typing import Any, Generic, TypeVar, cast

from derive.algebra.expr import Expr, Index, Node, free_indices

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
    if free_indices(e).isdisjoint(mapping):
        return e
    return cast(_Expr, substitution(mapping)(e))


def substitution(replacements: Mapping[Index, Expr]) -> Callable[[Expr], Expr]:
    """`substitute` as a function of the expression, memoized."""
    mapping = {i: new for i, new in replacements.items() if i is not new}
    known: dict[Expr, Expr] = {}

    def visit(e: Expr) -> Expr:
        if e not in known:
            if free_indices(e).isdisjoint(mapping):
                return e
            known[e] = mapping[e] if isinstance(e, Index) else e.map(inside(e))
        return known[e]

    def inside(e: Expr) -> Callable[[Expr], Expr]:
        binders = e.bound()
        if not binders:
            return visit
        free = free_indices(e)
        live = {i: new for i, new in mapping.items() if i in free}
        incoming = frozenset().union(*map(free_indices, live.values()))
        clash = [i for i in binders if i in incoming]
        if not clash and mapping.keys().isdisjoint(binders):
            return visit
        # Use one mapping for both. A flat term renames its binders as it is rebuilt, and may do so
        # only once the incoming indices are substituted. Binders are children.
        live |= zip(clash, rename_apart(clash, [*incoming, *free, *binders, *live]), strict=True)
        return substitution(live)

    return visit


def replace(e: _Node, f: Callable[[_Node], _Node | None]) -> _Node:
    """e with every node replaced for which f returns a new one, outermost first."""
    known: dict[_Node, _Node] = {}

    def visit(part: _Node) -> _Node:
        found = known.get(part)
        if found is None:
            found = f(part)
            if found is None:
                found = part.map(visit) if part.parts() else part
            known[part] = found
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


# --------------------------------------------------------------------------------------------- memo
# Memoized recursion of any depth, without Python's recursion limit.

_DEEPEST = 16
"""The maximum depth of nested calls."""

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


class _Pending(Exception):
    """A value that must be computed before the calls that need it."""

    def __init__(self, of: object, key: Any) -> None:
        super().__init__(of, key)
        self.of = of
        self.key = key


class Recursion(Generic[_Key, _Value]):
    """A memoized function that may call itself at other keys.

    Beyond the maximum depth, all pending calls are abandoned in favor of the innermost, and
    repeated when its value is known. So side effects of ``find`` before a recursive call may happen
    twice.

    >>> steps = Recursion(lambda n: 0 if n == 0 else steps(n - 1) + 1)
    >>> steps(5000)
    5000
    """

    def __init__(
        self, find: Callable[[_Key], _Value], known: MutableMapping[_Key, _Value] | None = None
    ) -> None:
        self._find = find
        self._known: MutableMapping[_Key, _Value] = {} if known is None else known
        self._depth = 0

    def __call__(self, key: _Key) -> _Value:
        if key not in self._known:
            if self._depth == _DEEPEST:
                raise _Pending(self, key)
            pending = [key]
            while pending:
                try:
                    self._depth += 1
                    self._known[pending[-1]] = self._find(pending[-1])
                    pending.pop()
                except _Pending as later:
                    if later.of is not self or self._depth > 1:
                        raise
                    pending.append(later.key)
                finally:
                    self._depth -= 1
        return self._known[key]
