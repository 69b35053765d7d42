"""Matching up to index names: whether one flat expression is an instance of another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from derive.algebra.expr import Access, Delta, Expr, Index, free_indices
from derive.algebra.poly import Poly, Term
from derive.budget import tick

Binding = Mapping[Index, Expr]
Found = TypeVar("Found")
Bind = Callable[[Expr, Expr, Found], Iterator[Found]]
"""Every extension of what is found that makes a pattern equal a target."""


def match(
    pattern: Expr, target: Expr, free: frozenset[Index], found: Binding, in_position: bool = False
) -> Iterator[Binding]:
    """Every extension of ``found`` by indices of ``free`` that makes pattern equal target.

    Sums and products match in any order. An index may stand for an expression inside of a position
    alone: elsewhere it is a number, and a number that equals it, as a tensor's, is no position.
    """
    tick()
    if isinstance(pattern, Index) and pattern in free:
        if pattern in found:
            if found[pattern] is target:
                yield found
        elif target.extent == pattern.extent if isinstance(target, Index) else in_position:
            yield {**found, pattern: target}
        return
    if not free_indices(pattern) & free:
        if pattern is target:
            yield found
        return
    if type(pattern) is not type(target):
        return
    if isinstance(pattern, Term) and isinstance(target, Term):
        yield from _match_term(pattern, target, free, found, in_position)
        return
    bind = matcher(free, in_position or isinstance(pattern, Access | Delta))
    if isinstance(pattern, Poly) and isinstance(target, Poly):
        yield from bind_all(pattern.terms, target.terms, found, bind)
        return
    pairs = parts_in_pairs(pattern, target)
    if pairs is not None:
        yield from bind_pairs(pairs, found, bind)


def matcher(free: frozenset[Index], in_position: bool = False) -> Bind[Binding]:
    """`match` for these free indices."""
    return lambda pattern, target, found: match(pattern, target, free, found, in_position)


def parts_in_pairs(pattern: Expr, target: Expr) -> list[tuple[Expr, Expr]] | None:
    """The corresponding children of two nodes of one class; None if other content differs."""
    pairs: list[tuple[Expr, Expr]] = []
    for name in pattern.__match_args__:
        a, b = getattr(pattern, name), getattr(target, name)
        if isinstance(a, Expr) and isinstance(b, Expr):
            pairs.append((a, b))
        elif isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b):
            pairs.extend(zip(a, b, strict=True))
        elif a != b:
            return None
    return pairs


def _match_term(
    pattern: Term, target: Term, free: frozenset[Index], found: Binding, in_position: bool
) -> Iterator[Binding]:
    if pattern.coef != target.coef or len(pattern.binders) != len(target.binders):
        return
    binders = frozenset(pattern.binders)
    outer: Binding = {i: e for i, e in found.items() if i not in binders}
    bind = matcher(free | binders, in_position)
    for extended in bind_all(pattern.factors, target.factors, outer, bind):
        images = [extended.get(i) for i in pattern.binders]
        bijective = len({id(i) for i in images}) == len(images)
        if bijective and all(i in target.binders for i in images):
            result = {i: e for i, e in extended.items() if i not in binders or i in found}
            escaped = any(
                free_indices(e) & frozenset(target.binders)
                for i, e in result.items()
                if i not in found
            )
            if not escaped:
                yield {**found, **{i: e for i, e in result.items() if i not in binders}}


def bind_pairs(
    pairs: Sequence[tuple[Expr, Expr]], found: Found, bind: Bind[Found]
) -> Iterator[Found]:
    """Bind the pattern of each pair to its target."""
    if not pairs:
        yield found
        return
    (a, b), *rest = pairs
    for extended in bind(a, b, found):
        yield from bind_pairs(rest, extended, bind)


def bind_all(
    patterns: Sequence[Expr], targets: Sequence[Expr], found: Found, bind: Bind[Found]
) -> Iterator[Found]:
    """Bind each pattern to a distinct target, with all targets used, in any order."""
    if len(patterns) != len(targets):
        return
    if not patterns:
        yield found
        return
    first, *rest = patterns
    for n, target in enumerate(targets):
        for extended in bind(first, target, found):
            yield from bind_all(rest, [*targets[:n], *targets[n + 1 :]], extended, bind)
