"""What a project asks for: the specs and the folder of ``[tool.derive]``, and names in them.

```toml
[tool.derive]
specs = ["specs/attention.derive", "specs/losses"]  # files, or folders of them
out = "generated"
```
Paths are relative to the pyproject.toml, which is the nearest one that has the table.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from derive import catalog
from derive.errors import DeriveError, SpecError
from derive.spec.operation import Operation
from derive.spec.read import read

__all__ = ["Project", "find_project", "lookup", "operations_of", "spec_files"]

_SUFFIXES = (".derive", ".py")


@dataclass(frozen=True)
class Project:
    """The specs of a project, files in order, and the folder of its generated modules."""

    path: Path
    specs: tuple[Path, ...]
    out: Path


def find_project(start: Path) -> Project | None:
    """The project of the nearest pyproject.toml with ``[tool.derive]``, from start upwards."""
    for folder in (start, *start.parents):
        path = folder / "pyproject.toml"
        if path.is_file():
            table = _table(path)
            if table is not None:
                return _project(path, table)
    return None


def _table(path: Path) -> Any:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DeriveError(f"{path}: {error}") from None
    return content.get("tool", {}).get("derive")


def _project(path: Path, table: Any) -> Project:
    if not isinstance(table, dict):
        raise DeriveError(f"{path}: [tool.derive] is a table of specs and out")
    unknown = sorted(set(table) - {"specs", "out"})
    if unknown:
        raise DeriveError(
            f"{path}: [tool.derive] has no key {', '.join(unknown)}; it has specs and out"
        )
    specs, out = table.get("specs", []), table.get("out", "generated")
    if not isinstance(specs, list) or not all(isinstance(s, str) for s in specs):
        raise DeriveError(f"{path}: [tool.derive] specs is a list of files and folders")
    if not isinstance(out, str):
        raise DeriveError(f"{path}: [tool.derive] out is a folder")
    root = path.parent
    return Project(path, spec_files(root / spec for spec in specs), root / out)


def spec_files(paths: Iterable[Path]) -> tuple[Path, ...]:
    """The files, folders being opened."""
    return tuple(file for path in paths for file in _files(path))


def _files(path: Path) -> Iterator[Path]:
    """The file itself, or the specs of a folder in order of their names."""
    if not path.is_dir():
        yield path
        return
    found = sorted(p for p in path.iterdir() if p.suffix in _SUFFIXES and p.name[0] != "_")
    if not found:
        raise SpecError(f"{path}: the folder has no spec, .derive or .py")
    yield from found


def operations_of(files: Sequence[Path]) -> dict[str, tuple[Path, Operation]]:
    """Every operation of the files by name, in order; two of one name are an error."""
    found: dict[str, tuple[Path, Operation]] = {}
    lowered: dict[str, str] = {}
    for file in files:
        for op in read(file):
            if op.name in found:
                raise SpecError(
                    f"{file}: operation {op.name} is defined in {found[op.name][0]} too; rename one"
                )
            other = lowered.setdefault(op.name.casefold(), op.name)
            if other != op.name or op.name == "__init__":
                raise SpecError(f"{file}: {op.name} gives no file of its own name; rename it")
            found[op.name] = (file, op)
    return found


def _named(name: str, project: Project | None) -> Iterator[Operation]:
    """The operations of this name, those of the project first.

    A file in which the name does not stand is not read; those in which it looks like one of an
    operation, "name" or op name, come first.
    """
    word = re.escape(name)
    files = [file for file in (project.specs if project else ()) if file.is_file()]
    texts = {file: file.read_text(encoding="utf-8", errors="replace") for file in files}
    for pattern in (rf"[\"']{word}[\"']|\bop\s+{word}\b", rf"\b{word}\b"):
        for file in [file for file in texts if re.search(pattern, texts[file])]:
            del texts[file]
            yield from (op for op in read(file) if op.name == name)
    shipped = catalog.find(name)
    if shipped is not None:
        yield shipped


def lookup(name: str, project: Project | None) -> Operation:
    """The operation of this name in the project, in the catalog, or in ``FILE:NAME``."""
    path, colon, inner = name.rpartition(":")
    if colon and Path(path).suffix in _SUFFIXES:
        found = {op.name: op for op in read(path)}
        if inner in found:
            return found[inner]
        raise SpecError(f"{path} has no operation {inner}{_nearest(inner, list(found))}")
    for op in _named(name, project):
        return op
    if Path(name).suffix in _SUFFIXES and Path(name).is_file():
        found = {op.name: op for op in read(name)}
        if len(found) == 1:
            return next(iter(found.values()))
        raise SpecError(f"{name} has {len(found)} operations; name one: {name}:{next(iter(found))}")
    known = [*operations_of(project.specs if project else ()), *catalog.names()]
    raise SpecError(f"there is no operation {name}{_nearest(name, known)}")


def _nearest(name: str, known: Sequence[str]) -> str:
    near = get_close_matches(name, known, 1)
    return f"; did you mean {near[0]}?" if near else "; `derive list` shows all"
