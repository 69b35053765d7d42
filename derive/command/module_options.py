"""Options of each module: its style, what it saves, and its blocked index.

They are stored in the module's docstring, so an option given once stays until it is changed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from derive.command.build import Asked
from derive.command.ownership import ours
from derive.errors import DeriveError
from derive.module.docstrings import blocks_of, module_saves_least, module_style
from derive.notation.operation import Operation


def scheduled(given: Sequence[str], names: Collection[str]) -> dict[str, str | None]:
    """Parse --blocks: operation -> index, or None to disable blocks.

    ``NAME=n`` is for operation NAME, ``n`` for the only operation.
    """
    found: dict[str, str | None] = {}
    for text in given:
        name, equals, letter = text.rpartition("=")
        if not equals:
            if len(names) != 1:
                raise _refused(text, f"several operations are selected; write NAME={text}")
            (name,) = names
        if name not in names:
            raise _refused(text, f"{name} is not one of the selected operations")
        if "," in letter or " " in letter.strip() or name in found:
            raise _refused(text, f"give exactly one index for {name}")
        found[name] = letter.strip() or None
    return found


def _refused(text: str, why: str) -> DeriveError:
    return DeriveError(f"--blocks {text}: {why}", kind="unknown-option")


def build_requests(
    folder: Path,
    operations: Mapping[str, Operation],
    given: Mapping[str, str | None],
    save: str | None = None,
    standalone: bool = False,
    style: str | None = None,
) -> list[Asked]:
    """Return the build requests; an existing module keeps its options unless new ones are given."""
    made = []
    for name, op in operations.items():
        path = folder / f"{name}.py"
        known = path.is_file() and ours(path)
        text = path.read_text(encoding="utf-8", errors="replace") if known else ""
        saved = save or ("least" if module_saves_least(text) else "balanced")
        blocks = given[name] if name in given else blocks_of(text)
        if blocks is not None and save is None:
            saved = "balanced"
        made.append(Asked(op, blocks, saved, standalone, style or module_style(text)))
    return made
