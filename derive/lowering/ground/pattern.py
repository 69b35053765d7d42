"""Patterns as data: what each is called, the identity that it states, and what applies it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Concatenate, Generic, ParamSpec, TypeVar

from derive.lowering.ground.context import Scope

_Given = ParamSpec("_Given")
_Made = TypeVar("_Made")


@dataclass(frozen=True)
class Pattern(Generic[_Given, _Made]):
    """``apply`` gives the code of what has the form of the left side, None for anything else."""

    name: str
    states: str
    apply: Callable[Concatenate[Scope, _Given], _Made | None]


def recognised(
    patterns: Sequence[Pattern[_Given, _Made]],
    scope: Scope,
    /,
    *given: _Given.args,
    **named: _Given.kwargs,
) -> _Made | None:
    """What the first of the patterns that has this form makes of it."""
    for pattern in patterns:
        made = pattern.apply(scope, *given, **named)
        if made is not None:
            scope.note(pattern.name, pattern.states)
            return made
    return None
