"""Hash-consed tree nodes: immutable and interned, so that equality is ``is``."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, fields
from itertools import islice
from typing import Any, ClassVar, TypeVar, dataclass_transform
from weakref import ref

from derive.budget import tick

_Class = TypeVar("_Class")


class _NodeReference(ref["Node"]):
    """A weak reference to an interned node."""

    __slots__ = ("content",)
    content: tuple[Any, ...]


_TABLE: dict[tuple[Any, ...], _NodeReference] = {}
"""The node of each class and content."""

_LATEST: deque[Node] = deque(maxlen=2**15)
"""Strong references to the latest nodes: a dropped node is often needed again soon."""


def _forget(known: _NodeReference) -> None:
    if _TABLE.get(known.content) is known:
        del _TABLE[known.content]


@dataclass_transform(eq_default=False, frozen_default=True)
def node(cls: type[_Class]) -> type[_Class]:
    """Class decorator of every node: immutable, compared by identity."""
    made: Any = dataclass(
        init=False, frozen=True, eq=False, slots=True, weakref_slot=True, repr=False
    )(cls)
    made.defaults = tuple(f.default for f in fields(made))
    made.puts = tuple(getattr(made, name).__set__ for name in made.__match_args__)
    return made  # type: ignore[no-any-return]


class Node:
    """Base of all interned nodes: content in fields, identity by content.

    Each field is a node, a tuple of nodes, or a plain value.
    """

    __slots__ = ("_parts",)
    __match_args__: ClassVar[tuple[str, ...]]
    defaults: ClassVar[tuple[Any, ...]]
    puts: ClassVar[tuple[Callable[[Any, Any], None], ...]]

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """The one node with that content."""
        if len(args) != len(cls.puts):
            names = cls.__match_args__[len(args) :]
            args += tuple(map(kwargs.get, names, cls.defaults[len(args) :]))
        return interned(cls, (cls, *args), args)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(getattr(self, name) for name in self.__match_args__)

    def parts(self) -> tuple[Any, ...]:
        """The child nodes, in order."""
        try:
            return self._parts  # type: ignore[no-any-return, attr-defined]
        except AttributeError:
            found: tuple[Node, ...] = ()
        for name in self.__match_args__:
            value = getattr(self, name)
            if isinstance(value, Node):
                found += (value,)
            elif isinstance(value, tuple):
                found += value  # the same tuple if it is the first
        object.__setattr__(self, "_parts", found)
        return found

    def map(self, f: Callable[[Any], Any]) -> Any:
        """The same node over mapped children; itself if none changed."""
        parts = self.parts()
        if not parts:
            return self
        mapped = tuple(map(f, parts))
        if mapped == parts:
            return self
        left = iter(mapped)
        content = []
        for name in self.__match_args__:
            value = getattr(self, name)
            if isinstance(value, Node):
                value = next(left)
            elif isinstance(value, tuple):
                value = tuple(islice(left, len(value)))
            content.append(value)
        return type(self)(*content)

    def __repr__(self) -> str:
        inside = ", ".join(repr(getattr(self, name)) for name in self.__match_args__)
        return f"{type(self).__name__}({inside})"


def interned(cls: type[Node], content: tuple[Any, ...], args: tuple[Any, ...]) -> Any:
    """Return the node with that content, created from ``args`` if needed."""
    known = _TABLE.get(content)
    found = None if known is None else known()
    if found is None:
        tick()
        found = object.__new__(cls)
        for put, value in zip(cls.puts, args, strict=True):
            put(found, value)
        known = _TABLE[content] = _NodeReference(found, _forget)
        known.content = content
        _LATEST.append(found)
    return found
