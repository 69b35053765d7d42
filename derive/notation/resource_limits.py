"""Size limits of specs, each with its error.

They are far above hand-written specs. They are low enough that the engine, which recurses over
expressions, stays within Python's own limits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import log10
from typing import TYPE_CHECKING, Any

from derive.errors import SpecError
from derive.notation.syntax import Item, NumberSyntax, OperationSyntax, Power, SourcePlace, fail

if TYPE_CHECKING:
    from lark import Token

DEPTH = 64
"""Levels of one expression. A sum, a product or a chain of ``and`` is one level."""

POWERS = 3
"""Powers in nested exponents, x**y**z: a derivative repeats each of them."""

AXES = 64
"""Axes of one tensor, parts of composites included: the limit of torch."""

NODES = 50_000
"""Names, numbers, functions and operators of one equation."""

TEXT = 500_000
"""Characters of a text."""

OPERATIONS = 2_000
"""Operations of one text."""

JOINED = 40
"""Arguments of one ``concat``, each a level of a nested choice."""

STATEMENT = 100_000
"""Characters of one statement."""


def check_length(text: str) -> None:
    """Refuse a text that is too long."""
    if len(text) > TEXT:
        raise SpecError(
            f"the text is too long ({len(text)} characters; the limit is {TEXT}): split it into "
            "several files",
            kind="spec-too-large",
        )


def check_count(operations: int) -> None:
    """Refuse a text with too many operations."""
    if operations > OPERATIONS:
        raise SpecError(
            f"the text has {operations} operations (the limit is {OPERATIONS}): split it into "
            "several files",
            kind="spec-too-large",
        )


def check_statement(first: Token, last: Token) -> None:
    """Refuse a statement that is too long."""
    characters = (last.start_pos or 0) - (first.start_pos or 0)
    if characters > STATEMENT:
        raise SpecError(
            f"the statement is too long ({characters} characters; the limit is {STATEMENT}): "
            "split it into named equations",
            line=first.line,
            column=first.column,
            kind="spec-too-large",
        )


def check_size(written: OperationSyntax) -> None:
    """Refuse an equation that is too deep or too long."""
    whole = (*written.equations, *written.parameters, *written.bounds, *(written.inputs or ()))
    for e in whole:
        for part in e.parts():
            check_depth(part, lambda inner: inner.parts(), e.at)


def check_depth(
    e: Any, parts: Callable[[Any], Iterable[Any]], at: SourcePlace | None, limit: int = DEPTH
) -> None:
    """Refuse an expression with too many levels, nested powers or parts.

    A shared part counts once per occurrence.
    """
    if _is_small(e, parts, min(limit, DEPTH)):
        return
    levels: dict[int, int] = {}
    nodes: dict[int, int] = {}
    powers: dict[int, int] = {}
    pending: list[tuple[Any, tuple[Any, ...] | None]] = [(e, None)]
    while pending:
        inner, below = pending.pop()
        if id(inner) in levels:
            continue
        if below is None:
            below = tuple(parts(inner))
            pending.append((inner, below))
            pending += ((part, None) for part in below)
        else:
            levels[id(inner)] = 1 + max((levels[id(part)] for part in below), default=0)
            nodes[id(inner)] = 1 + sum(nodes[id(part)] for part in below)
            # A power of names counts one more than a power of numbers.
            least = int(isinstance(inner, Item) or not (below or isinstance(inner, NumberSyntax)))
            powers[id(inner)] = max((least, *(powers[id(p)] for p in below)))
            if isinstance(inner, Power) and powers[id(inner.exponent)]:
                powers[id(inner)] = max(powers[id(inner.base)], 1 + powers[id(inner.exponent)])
    if levels[id(e)] > limit:
        fail(
            at,
            "spec-too-large",
            f"the expression is nested too deeply ({levels[id(e)]} levels; the limit is {limit}): "
            "give a part its own equation",
        )
    if powers[id(e)] > POWERS + 1:
        fail(
            at,
            "spec-too-large",
            f"{powers[id(e)] - 1} powers are nested in exponents (the limit is {POWERS}): give a "
            "part its own equation",
        )
    if nodes[id(e)] > NODES:
        n = nodes[id(e)]
        count = str(n) if n < 10**12 else f"about 10**{int(log10(n))}"
        fail(
            at,
            "spec-too-large",
            f"the expression is too long ({count} parts; the limit is {NODES}): "
            "give a repeated part its own equation",
        )


def _is_small(e: Any, parts: Callable[[Any], Iterable[Any]], limit: int) -> bool:
    """True if e has fewer parts than the level limit, and few powers: a fast path."""
    pending, met, powers = [e], 0, 0
    while pending and met <= limit and powers <= POWERS:
        part = pending.pop()
        pending += parts(part)
        met += 1
        powers += isinstance(part, Power)
    return not pending and met <= limit and powers <= POWERS
