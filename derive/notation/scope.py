"""Scopes of letters, and the accesses of equations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from derive.algebra.expr import Expr, Index
from derive.notation.syntax import SourcePlace

Env = Mapping[str, Index]


@dataclass(frozen=True)
class AccessSite:
    """One access tensor[positions] in an equation; ``guarded`` if it is under a condition."""

    tensor: str
    positions: tuple[Expr, ...]
    guarded: bool
    equation: str
    at: SourcePlace | None


def in_either(then: Sequence[AccessSite], other: Sequence[AccessSite]) -> list[AccessSite]:
    """Return the accesses of both branches; one is unguarded only if both branches make it."""
    one, two = ({(r.tensor, r.positions) for r in b if not r.guarded} for b in (then, other))
    return [
        replace(r, guarded=r.guarded or (r.tensor, r.positions) not in one & two)
        for r in (*then, *other)
    ]


def enter(scope: dict[str, Index], name: str, index: Index) -> None:
    """Bind name to index; a shadowed index stays in the scope, to prevent capture."""
    if name in scope:
        scope[f"{name} outside {len(scope)}"] = scope[name]
    scope[name] = index


def letter_of(name: str, env: Env) -> str:
    """Return the letter of a name; in an argument of concat, that of the piece."""
    return env[name].extent if name in env else name
