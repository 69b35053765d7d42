"""What random programs are made of: classes of indices, tables, texts."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

Size = int | tuple[int, ...]

STRANGE = (-7, -1, 50)
"""Integers that are no position of any axis."""


@dataclass(frozen=True)
class Letter:
    """An index and the name of the class that it belongs to."""

    name: str
    of: str


@dataclass(frozen=True)
class Class:
    """Indices of one size: single ones, composites ``(i j)`` or a group ``*p``.

    ``letters`` are the names that they have; only the first stands on the op line. ``over`` is a
    positive number at a letter, ``vi[{0}]``: a body reads it where nothing else has the letter.
    """

    name: str
    size: Size
    letters: tuple[str, ...]
    over: str
    sized: bool = True
    """Whether the first letter has its size wherever it stands; others read it from an axis."""

    @property
    def group(self) -> bool:
        return self.name.startswith("*")

    @property
    def parts(self) -> tuple[str, ...]:
        """The classes that a composite is made of."""
        return tuple(self.name[1:-1].split()) if self.name.startswith("(") else ()

    @property
    def count(self) -> int:
        """The number of values."""
        return prod(self.size) if isinstance(self.size, tuple) else self.size


@dataclass(frozen=True)
class Table:
    """Something that can be read: an input or an equation."""

    name: str
    axes: tuple[str, ...]
    """A class for each axis."""
    kind: str = "float"
    target: str = ""
    """The class that the values of an integer table are positions of."""
    span: str = ""
    """A class whose letters can be added to a value, which stays a position of the target."""
    low: int = 0
    """The least value; with -1 a program asks before it reads."""
    positive: bool = False
    default: str = ""
    """The constant of an optional input."""
    split: bool = False
    """Whether composite axes are declared by their parts, so that constants can be parts."""


@dataclass(frozen=True)
class Text:
    """An expression, and whether its value is certainly positive."""

    text: str
    positive: bool = False

    def inner(self) -> str:
        """The text as an operand."""
        simple = re.fullmatch(r"[\w.]+(\[[^][]*\]|\([^()]*\))?", self.text)
        return self.text if simple else f"({self.text})"


@dataclass(frozen=True)
class Program:
    """A text with arguments to run it on."""

    seed: int
    text: str
    tensors: Mapping[str, np.ndarray | None]
    parameters: Mapping[str, Any]
    exact: bool
    """Whether values are dyadic numbers, and ties among them as exact as the arithmetic."""
    twins: tuple[str, str] | None = None
    """Two inputs that are one tensor."""

    @property
    def is_strange(self) -> bool:
        """Whether some integer is no position of any axis."""
        arrays = (a for a in self.tensors.values() if a is not None and a.dtype.kind == "i")
        return any(bool(np.isin(a, STRANGE).any()) for a in arrays)

    @property
    def detached(self) -> bool:
        """Whether something keeps its value when the inputs move."""
        return "detach(" in self.text
