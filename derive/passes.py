"""Passes: the steps of the pipeline, each a pure function with a name and a statement."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Pass(Generic[T]):
    """A step of a pipeline: a function from a unit to a new one, which changes no argument."""

    name: str
    states: str
    """The identity that the pass applies, or what holds after it."""
    run: Callable[[T], T]


def as_pass(f: Callable[[T], T]) -> Pass[T]:
    """Return the pass of a function: its name, and its docstring as the statement.

    >>> @as_pass
    ... def double(n: int) -> int:
    ...     "2·n."
    ...     return 2 * n
    >>> double.name, double.states, double.run(3)
    ('double', '2·n', 6)
    """
    return Pass(f.__name__.replace("_", " "), statement(f), f)


def statement(f: Callable[..., object]) -> str:
    """Return what the docstring of a function states: its first paragraph, on one line."""
    return " ".join((f.__doc__ or "").partition("\n\n")[0].split()).rstrip(".")


def stages(passes: Iterable[Pass[T]], unit: T) -> Iterator[tuple[Pass[T], T]]:
    """Yield each pass with the unit after it."""
    for step in passes:
        unit = step.run(unit)
        yield step, unit


def run(passes: Iterable[Pass[T]], unit: T) -> T:
    """Return the unit after all passes."""
    for _, made in stages(passes, unit):
        unit = made
    return unit
