"""The operations we ship, in index notation: one text a family.

A family is read when one of its operations is asked for. What is asked of all of them, their
names and signatures, stands in contents.json, which ``python tests/golden.py --write`` renews.
"""

from __future__ import annotations

import json
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from derive.notation.specification import Operation

__all__ = ["FAMILIES", "find", "names", "operations"]

Line = dict[str, Any]
"""The name of an operation, its inputs, parameters, outputs, signature and description."""

CONTENTS = Path(__file__).with_name("contents.json")

_KNOWN: dict[str, dict[str, Any]] = json.loads(CONTENTS.read_text(encoding="utf-8"))

FAMILIES: dict[str, tuple[str, ...]] = {
    family: tuple(line["name"] for line in known["operations"]) for family, known in _KNOWN.items()
}
"""The operations of each file."""


def names() -> tuple[str, ...]:
    """The names of all operations, in order; nothing is read."""
    return tuple(name for members in FAMILIES.values() for name in members)


def files() -> tuple[Path, ...]:
    """The spec files, in order."""
    return tuple(map(_file, FAMILIES))


def operations() -> tuple[Operation, ...]:
    """All operations, in order."""
    return tuple(op for family in FAMILIES for op in _family(family))


def find(name: str) -> Operation | None:
    """The operation of this name; only its family is read."""
    for family, members in FAMILIES.items():
        if name in members:
            return next(op for op in _family(family) if op.name == name)
    return None


def lines() -> tuple[Line, ...]:
    """The lines of all operations, in order; nothing is read."""
    return tuple(line for known in _KNOWN.values() for line in known["operations"])


def lines_of(file: Path) -> list[Line] | None:
    """The line of each operation of a family, if it is as it was when the contents were made."""
    known = _KNOWN.get(file.stem)
    if known is None or not file.is_file() or digest(file) != known["digest"]:
        return None
    return [*known["operations"]]


def digest(file: Path) -> str:
    """What tells the text of a file from any other."""
    return sha256(file.read_text(encoding="utf-8", errors="replace").encode()).hexdigest()


@cache
def _family(family: str) -> tuple[Operation, ...]:
    from derive.notation.specification import read

    return read(_file(family))


def _file(family: str) -> Path:
    return CONTENTS.with_name(f"{family}.derive")
