"""The folder of generated modules: compare it with the wanted files, and write it."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from pathlib import Path

from derive.command.console import shown, unwritten
from derive.command.difference import Difference, unwanted
from derive.command.ownership import PACKAGE, foreign, ours, unified
from derive.command.transactions import replace
from derive.module.runtime import FILE, imports, missing, runtime

_PACKAGE = "__init__.py"


def files_of(texts: Mapping[str, str], standalone: bool) -> dict[str, str]:
    """Map file names to texts, from module texts by operation name.

    Modules that are not standalone share `_runtime.py`, always whole.
    """
    shared = {} if standalone else {FILE: runtime()}
    return {_PACKAGE: PACKAGE, **shared, **{f"{name}.py": text for name, text in texts.items()}}


def compare(out: Path, wanted: Mapping[str, str]) -> list[Difference]:
    """Compare the folder with ``wanted``, a text for each file name.

    A generated file that is not wanted is stale. A hand-written file in place of a module is
    foreign.
    """
    found = []
    for name, text in wanted.items():
        path = out / name
        what = foreign(path)
        if what and name == _PACKAGE:
            continue
        if what:
            found.append(Difference(path, "foreign", f"{what}; derive leaves it alone"))
        elif not path.exists():
            found.append(Difference(path, "missing"))
        elif path.read_bytes() != text.encode():
            found.append(_difference(path, text))
    stale = _stale(out, wanted)
    return found + [Difference(p, "stale", f"generated, but {unwanted(p)}") for p in stale]


def _difference(path: Path, text: str) -> Difference:
    data = path.read_bytes()
    have = unified(data.decode(errors="backslashreplace"))
    source, changed = "from its spec", "its spec or derive has changed"
    if path.name == FILE:
        source, changed = "of this version", "it is of another version of derive"
    before, after = (t.splitlines(keepends=True) for t in (have, text))
    lines = difflib.unified_diff(before, after, shown(path), f"{shown(path)} ({source})")
    why = f"edited by hand, or {changed}"
    if imports(text) and not imports(have):
        why = f"it has copies of functions of {FILE}, as before or with --standalone"
    elif imports(have) and not imports(text):
        why = f"it imports {FILE}, as without --standalone"
    if have == text:
        why = "its line endings are not LF, or it begins with a byte order mark"
    return Difference(path, "differs", why, "".join(lines))


def _stale(out: Path, wanted: Collection[str]) -> list[Path]:
    """Return the generated files that are not wanted."""
    files = sorted(out.glob("*.py")) if out.is_dir() else []
    return [path for path in files if path.name not in wanted and ours(path)]


def refuse_foreign(out: Path, wanted: Collection[str]) -> None:
    """Raise a DeriveError if a module would overwrite a hand-written file."""
    for name in wanted:
        what = "" if name == _PACKAGE else foreign(out / name)
        if what:
            raise unwritten(
                f"{out / name} is {what}; nothing is written. Move it, rename the operation, or "
                "choose another folder with --out"
            )


def _refuse_stranded(out: Path, wanted: Mapping[str, str], asked: Collection[str] | None) -> None:
    """Raise a DeriveError if a module that stays as it is calls what the new runtime lacks."""
    shared = wanted.get(FILE, None if asked is None else "")
    files = sorted(out.glob("*.py")) if shared is not None and out.is_dir() else []
    for path in files:
        if path.name in wanted or not (asked is None or path.name in asked) or not ours(path):
            continue
        lacks = missing(path.read_text(encoding="utf-8", errors="replace"), shared or "")
        if lacks:
            raise unwritten(
                f"{shown(path)} calls {', '.join(lacks)}, which {FILE} would then lack; nothing is "
                "written. Generate that module too: run `derive generate` without names"
            )


def write(
    out: Path, wanted: Mapping[str, str], asked: Collection[str] | None = None
) -> tuple[list[Path], list[Path]]:
    """Write the files that differ, all or none; return the written and the removed files.

    Generated files not in ``asked`` are removed; if it is None, no file is. A hand-written
    ``__init__.py`` is kept. If any other hand-written file is in the way, nothing is written.
    """
    refuse_foreign(out, wanted)
    _refuse_stranded(out, wanted, asked)
    texts = {name: text.encode() for name, text in wanted.items()}
    found = {name: path.read_bytes() for name in texts if (path := out / name).is_file()}
    able = (name for name in texts if not foreign(out / name))
    changed = {name: texts[name] for name in able if found.get(name) != texts[name]}
    removed = [] if asked is None else _stale(out, asked)
    if changed or removed:
        replace(out, changed, [path.name for path in removed])
    return [out / name for name in changed], removed
