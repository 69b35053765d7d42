"""Which index a letter stands for, and what is read where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from derive.algebra.expr import Expr, Index
from derive.notation.syntax import SourcePlace

Env = Mapping[str, Index]


@dataclass(frozen=True)
class AccessSite:
    """One access tensor[positions] in an equation; ``guarded`` if a condition stands over it."""

    tensor: str
    positions: tuple[Expr, ...]
    guarded: bool
    equation: str
    at: SourcePlace | None


def in_either(then: Sequence[AccessSite], other: Sequence[AccessSite]) -> list[AccessSite]:
    """What the branches of a choice read; guarded unless both do, whatever the condition says."""
    one, two = ({(r.tensor, r.positions) for r in b if not r.guarded} for b in (then, other))
    return [
        replace(r, guarded=r.guarded or (r.tensor, r.positions) not in one & two)
        for r in (*then, *other)
    ]


def enter(scope: dict[str, Index], name: str, index: Index) -> None:
    """Let name stand for index; what it stood for stays in the scope, so that none captures it."""
    if name in scope:
        scope[f"{name} outside {len(scope)}"] = scope[name]
    scope[name] = index


def letter_of(name: str, env: Env) -> str:
    """What a name stands for: in an argument of concat, the index that is its own."""
    return env[name].extent if name in env else name
