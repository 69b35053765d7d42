"""A difference found by ``derive check``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from derive.module.runtime import FILE


@dataclass(frozen=True)
class Difference:
    """A file that does not match the specs.

    ``why`` is the reason, ``patch`` a diff if both texts exist.
    """

    path: Path
    kind: Literal["missing", "stale", "differs", "foreign"]
    why: str = ""
    patch: str = ""


def unwanted(path: Path) -> str:
    """Return why a generated file is stale."""
    return "no module imports it" if path.name == FILE else "no spec defines it"
