"""Readings of ATen operations by name, and which of them accept elements selected by a mask."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Translate = Callable[..., Any]
_F = TypeVar("_F", bound=Translate)

OPERATIONS: dict[str, Translate] = {}
"""Reading of each ATen operation, by its name."""


def operation(*names: str) -> Callable[[_F], _F]:
    """Register the reading of operations of these names."""

    def put(f: _F) -> _F:
        OPERATIONS.update(dict.fromkeys(names, f))
        return f

    return put


def of_each_element(*names: str) -> Callable[[_F], _F]:
    """Register an elementwise reading, which also accepts elements selected by a mask."""

    def put(f: _F) -> _F:
        f.of_each_element = True  # type: ignore[attr-defined]
        return operation(*names)(f)

    return put


def of_elements(f: _F) -> _F:
    """Mark a reading that accepts elements selected by a mask."""
    f.of_elements = True  # type: ignore[attr-defined]
    return f


def is_of_each_element(f: Translate) -> bool:
    return getattr(f, "of_each_element", False)


def takes_elements(f: Translate) -> bool:
    """True if a reading accepts elements selected by a mask."""
    return is_of_each_element(f) or getattr(f, "of_elements", False)
