"""The readings of ATen operations by their names, and which take the elements of a mask."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Translate = Callable[..., Any]
_F = TypeVar("_F", bound=Translate)

OPERATIONS: dict[str, Translate] = {}
"""What each ATen operation is, by its name."""


def operation(*names: str) -> Callable[[_F], _F]:
    """Registers what operations of these names are."""

    def put(f: _F) -> _F:
        OPERATIONS.update(dict.fromkeys(names, f))
        return f

    return put


def of_each_element(*names: str) -> Callable[[_F], _F]:
    """Registers what operations of these names make of each element, also of those of a mask."""

    def put(f: _F) -> _F:
        f.of_each_element = True  # type: ignore[attr-defined]
        return operation(*names)(f)

    return put


def of_elements(f: _F) -> _F:
    """Marks a reading that takes the elements that a mask holds."""
    f.of_elements = True  # type: ignore[attr-defined]
    return f


def is_of_each_element(f: Translate) -> bool:
    return getattr(f, "of_each_element", False)


def takes_elements(f: Translate) -> bool:
    """Whether a reading takes the elements that a mask holds."""
    return is_of_each_element(f) or getattr(f, "of_elements", False)
