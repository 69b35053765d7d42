"""Which index each module takes in blocks: as asked, or as the module that is there says.

A module says it in its docstring, so that what was asked once holds until another is asked for.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from derive.command.making import Asked
from derive.command.marks import ours
from derive.errors import DeriveError
from derive.module.document import blocks_of
from derive.notation.operation import Operation


def scheduled(given: Sequence[str], names: Collection[str]) -> dict[str, str | None]:
    """The index of each operation that one is given for, None where there is to be none.

    ``NAME=n`` is of one operation, ``n`` of the only one.
    """
    found: dict[str, str | None] = {}
    for text in given:
        name, equals, letter = text.rpartition("=")
        if not equals:
            if len(names) != 1:
                raise DeriveError(f"--blocks {text}: of which operation? Write NAME={text}")
            (name,) = names
        if name not in names:
            raise DeriveError(
                f"--blocks {text}: there is no operation {name} among those asked for"
            )
        if "," in letter or " " in letter.strip() or name in found:
            raise DeriveError(f"--blocks {text}: one index of {name} is taken in blocks, no more")
        found[name] = letter.strip() or None
    return found


def asked_in(
    folder: Path, operations: Mapping[str, Operation], given: Mapping[str, str | None]
) -> list[Asked]:
    """The modules that are asked for; each that is there keeps its index unless one is given."""
    made = []
    for name, op in operations.items():
        path = folder / f"{name}.py"
        blocks = given.get(name)
        if name not in given and path.is_file() and ours(path):
            blocks = blocks_of(path.read_text(encoding="utf-8", errors="replace"))
        made.append(Asked(op, blocks))
    return made
