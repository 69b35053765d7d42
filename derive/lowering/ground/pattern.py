"""Patterns as data: a name, and the function that states an identity and applies it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Concatenate, Generic, ParamSpec, TypeVar

from derive.lowering.ground.context import Scope
from derive.passes import statement

_Given = ParamSpec("_Given")
_Made = TypeVar("_Made")


@dataclass(frozen=True)
class Pattern(Generic[_Given, _Made]):
    """A pattern. ``apply`` returns code for the left side of the identity, and None otherwise."""

    name: str
    apply: Callable[Concatenate[Scope, _Given], _Made | None]

    @cached_property
    def states(self) -> str:
        """The identity, which the docstring of ``apply`` states."""
        return statement(self.apply)


def first_match(
    patterns: Sequence[Pattern[_Given, _Made]],
    scope: Scope,
    /,
    *given: _Given.args,
    **named: _Given.kwargs,
) -> _Made | None:
    """Return the result of the first pattern that matches, or None."""
    for pattern in patterns:
        made = pattern.apply(scope, *given, **named)
        if made is not None:
            scope.note(pattern.name, pattern.states)
            return made
    return None
