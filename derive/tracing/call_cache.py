"""Repeat calls without binding their arguments again.

Binding arguments to a signature and naming each tensor takes longer than a small operation. For a
call with exact shapes, the cache records where each tensor and each number is in the arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

MOST = 512
"""Maximum number of cached calls; a full cache is cleared."""

Path = tuple[Any, ...]
"""(0, n, ..) for a positional argument, (1, name, ..) for a keyword; then keys inside of it."""


@dataclass(frozen=True)
class ValueSource:
    """Source of a value: a path into the arguments, a dotted name on the module, a default."""

    path: Path = ()
    held: Callable[[Any], Any] | None = None
    default: Any = None

    @staticmethod
    def on_module(name: str) -> ValueSource:
        return ValueSource(held=attrgetter(name))

    def of(self, owner: Any, arguments: tuple[Any, ...]) -> Any:
        """Return the value in a call."""
        if self.held is not None:
            return self.held(owner)
        if not self.path:
            return self.default
        x: Any = arguments
        for step in self.path:
            x = x[step]
        return x


@dataclass(frozen=True)
class BoundCall:
    """A callable, with the sources of its tensors and numbers."""

    made: Callable[..., Any]
    tensors: Mapping[str, ValueSource]
    numbers: Mapping[str, ValueSource]
    constants: Sequence[tuple[ValueSource, float]]
    """Numbers that must have the recorded values."""

    def fits(self, owner: Any, arguments: tuple[Any, ...]) -> bool:
        return all(s.of(owner, arguments) == value for s, value in self.constants)

    def __call__(self, owner: Any, arguments: tuple[Any, ...]) -> Any:
        tensors = {name: s.of(owner, arguments) for name, s in self.tensors.items()}
        numbers = {name: s.of(owner, arguments) for name, s in self.numbers.items()}
        return self.made(tensors, numbers)


def key_of(args: tuple[Any, ...], named: Mapping[str, Any]) -> Hashable | None:
    """Return the cache key of a call; None if an argument is no plain tensor, number or flag."""
    found = [_argument_key(x) for x in args]
    for name, x in named.items():
        found += [name, _argument_key(x)]
    return None if None in found else tuple(found)


def _argument_key(x: Any) -> Hashable | None:
    import torch

    kind = type(x)
    if kind is torch.Tensor or kind is torch.nn.Parameter:
        return x.dtype, x.shape
    if kind is float:
        return float
    if x is None or kind in (int, bool, str):
        return kind, x
    if kind in (list, tuple):
        inside = tuple(map(_argument_key, x))
        return None if None in inside else (kind, inside)
    return None


def source_of(
    path: Path, names: Sequence[str], args: tuple[Any, ...], named: Mapping[str, Any]
) -> ValueSource | None:
    """Return the source of a bound argument; None if it is a parameter's default.

    ``names`` are those of the positional parameters.
    """
    kind, at, *inside = path
    if kind == 0 and at < len(args):
        return ValueSource(path)
    name = names[at] if kind == 0 else at
    return ValueSource((1, name, *inside)) if name in named else None
