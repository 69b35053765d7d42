"""Read ``[tool.derive]``: the specs and modules of a project; find operations by name.

```toml
[tool.derive]
specs = ["specs/attention.derive", "specs/losses"]  # files, or folders of them
out = "generated"
standalone = false  # true: modules without a _runtime.py beside them
```
Paths are relative to the pyproject.toml, the nearest one that has the table.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.util import find_spec
from os.path import realpath
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from derive import catalog
from derive.budget import SECONDS
from derive.command.console import unwritten
from derive.errors import DeriveError, SpecError

if TYPE_CHECKING:
    from derive.notation.operation import Operation

_Known = TypeVar("_Known")

SUFFIXES = (".derive", ".py")
"""The suffixes of spec files."""


def _table_error(text: str) -> DeriveError:
    return DeriveError(text, kind="project-table")


@dataclass(frozen=True)
class Project:
    """The configuration of a project: spec files in order, the folder of modules, their form."""

    path: Path
    specs: tuple[Path, ...]
    out: Path
    standalone: bool = False


@dataclass(frozen=True)
class ProjectOperation:
    """An operation and its spec file; None for the catalog."""

    operation: Operation
    path: Path | None = None


def find_project(start: Path) -> Project | None:
    """Return the project of the nearest pyproject.toml with ``[tool.derive]``, upwards."""
    path, table = _nearest_table(start)
    return _project(path, table) if path is not None else None


def lint_table(start: Path) -> dict[str, list[str]]:
    """Return ``[tool.derive.lint]`` of the nearest project: lists of strings by key."""
    path, table = _nearest_table(start)
    found = table.get("lint", {}) if isinstance(table, dict) else {}
    where = f"{path}: [tool.derive.lint]"
    if not isinstance(found, dict):
        raise _table_error(f"{where} is a table of select, ignore and exclude")
    unknown = sorted(set(found) - {"select", "ignore", "exclude"})
    if unknown:
        text = f"{where} has no key {', '.join(unknown)}; it has select, ignore and exclude"
        raise _table_error(text)
    for key, value in found.items():
        if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
            raise _table_error(f"{where} {key} is a list of strings")
    return found


def _nearest_table(start: Path) -> tuple[Path | None, Any]:
    """Return the nearest pyproject.toml with ``[tool.derive]``, and that table."""
    for folder in (start, *start.parents):
        path = folder / "pyproject.toml"
        if path.is_file():
            table = _table(path)
            if table is not None:
                return path, table
    return None, None


def _table(path: Path) -> Any:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise _table_error(f"{path}: {error}") from None
    tools = content.get("tool", {})
    if not isinstance(tools, dict):
        text = f"{path}: tool is {tools!r}; it must be a table, for example [tool.derive]"
        raise _table_error(text)
    return tools.get("derive")


def _project(path: Path, table: Any) -> Project:
    if not isinstance(table, dict):
        text = f"{path}: [tool.derive] must be a table: specs, out, standalone and lint"
        raise _table_error(text)
    unknown = sorted(set(table) - {"specs", "out", "standalone", "lint"})
    if unknown:
        raise _table_error(
            f"{path}: [tool.derive] has no key {', '.join(unknown)}; "
            "its keys are specs, out, standalone and lint"
        )
    specs, out = table.get("specs", []), table.get("out", "generated")
    standalone = table.get("standalone", False)
    if not isinstance(specs, list) or not all(isinstance(s, str) for s in specs):
        raise _table_error(f"{path}: [tool.derive] specs must be a list of files and folders")
    if not isinstance(out, str):
        raise _table_error(f"{path}: [tool.derive] out must be the path of a folder")
    if not isinstance(standalone, bool):
        raise _table_error(f"{path}: [tool.derive] standalone must be true or false")
    root = path.parent
    folder = root / _folder_name(out, f"{path}: [tool.derive] out")
    try:
        for spec in specs:
            name = _folder_name(spec, "specs")
            if (root / name).is_dir() and realpath(root / name) == realpath(folder):
                raise _table_error(
                    f"out is {out!r}, which is also a folder of specs, so that modules would be "
                    "read as specs; choose another folder"
                )
        return Project(path, spec_files(root / spec for spec in specs), folder, standalone)
    except DeriveError as error:
        raise DeriveError(f"{path}: [tool.derive] {error.text}", kind=error.kind) from None


def _folder_name(text: str, what: str) -> str:
    """Return the text; raise a DeriveError if it cannot be the name of a file or folder."""
    if not text.strip():
        raise unwritten(f"{what} is empty; name a folder")
    if "\0" in text:
        raise unwritten(f"{what} is {text!r}; a path cannot contain a NUL character")
    return text


def folder_of(out: str | None, project: Project | None) -> Path:
    """Return the folder of modules: ``out``, else the project's, else ``generated``.

    Raises a DeriveError if it cannot be a folder.
    """
    if out is not None:
        folder = Path(_folder_name(out, "--out"))
    else:
        folder = project.out if project is not None else Path("generated")
    for path in (folder, *folder.parents):
        if path.is_symlink() and not path.exists():
            raise unwritten(f"{folder}: {path} is a broken symbolic link")
        if path.exists():
            if not path.is_dir():
                text = f"{folder}: {path} is not a folder; choose another folder for the modules"
                raise unwritten(text)
            break
    return folder


def spec_files(paths: Iterable[Path]) -> tuple[Path, ...]:
    """Return the spec files, with folders expanded and duplicate paths removed."""
    found: dict[str, Path] = {}
    for path in paths:
        for file in _files(path):
            found.setdefault(realpath(file), file)
    return tuple(found.values())


def _files(path: Path) -> Iterator[Path]:
    """Yield the file itself, or the spec files of a folder in order of their names."""
    if not path.is_dir():
        yield path
        return
    found = sorted(p for p in path.iterdir() if p.suffix in SUFFIXES and p.name[0] != "_")
    if not found:
        text = f"{path}: the folder has no spec file (.derive or .py)"
        raise SpecError(text, kind="incomplete-operation")
    yield from found


def operations_of(files: Sequence[Path], limit: float = SECONDS) -> dict[str, ProjectOperation]:
    """Return every operation in the files by name, in order; a duplicate name is an error."""
    read = ((file, op.name, op) for file, found in _read_specs(files, limit) for op in found)
    return {name: ProjectOperation(op, file) for name, (op, file) in _unique_by_name(read).items()}


def lines_of(files: Sequence[Path], limit: float = SECONDS) -> dict[str, tuple[catalog.Line, Path]]:
    """Return the line and the file of every operation by name.

    Files of the catalog are not read: their lines are stored.
    """
    known = {file: catalog.lines_of(file) for file in files}
    unknown = [file for file, lines in known.items() if lines is None]
    for file, operations in _read_specs(unknown, limit):
        from derive.command.lines import described

        known[file] = [described(op) for op in operations]
    return _unique_by_name(
        (file, line["name"], line) for file in files for line in known[file] or ()
    )


def _read_specs(
    files: Sequence[Path], limit: float
) -> Iterator[tuple[Path, tuple[Operation, ...]]]:
    """Yield (file, operations) for each file; a separate process reads them."""
    if files:
        from derive.command.reading import read_all

        yield from read_all(files, limit)


def _unique_by_name(
    operations: Iterable[tuple[Path, str, _Known]],
) -> dict[str, tuple[_Known, Path]]:
    """Return (data, file) of each operation by name; a duplicate name is an error."""
    found: dict[str, tuple[_Known, Path]] = {}
    lowered: dict[str, str] = {}
    for file, name, known in operations:
        if name in found:
            other = found[name][1]
            text = f"{file}: operation {name} is also defined in {other}; rename one"
            raise SpecError(text, kind="defined-twice")
        if lowered.setdefault(name.casefold(), name) != name or name == "__init__":
            raise SpecError(
                f"{file}: operation {name} would have the module file of another operation; "
                "rename it",
                kind="defined-twice",
            )
        found[name] = known, file
    return found


def selected_operation(name: str | None, spec: str | None, limit: float) -> Operation:
    if spec is not None:
        from derive.notation.specification import parse

        return parse(spec)
    assert name is not None
    return lookup(name, find_project(Path.cwd()), limit).operation


def lookup(name: str, project: Project | None, limit: float = SECONDS) -> ProjectOperation:
    """Find an operation by name in the project or the catalog, or by ``FILE:NAME``."""
    path, colon, inner = name.rpartition(":")
    if colon and Path(path).suffix in SUFFIXES:
        found = _all_of(Path(path), limit)
        if inner in found:
            return found[inner]
        text = f"{path} has no operation {inner}{_nearest(inner, list(found))}"
        raise SpecError(text, kind="unknown-operation")
    if one := next(_find_by_name(name, project, limit), None):
        return one
    if Path(name).suffix in SUFFIXES and Path(name).is_file():
        found = _all_of(Path(name), limit)
        if len(found) == 1:
            return next(iter(found.values()))
        text = f"{name} has {len(found)} operations; choose one, for example {name}:"
        raise SpecError(f"{text}{next(iter(found))}", kind="several-operations")
    shipped = catalog.names()
    near = get_close_matches(name, names_of(project), 3)
    meant = [n for n in near if n in shipped or next(_find_by_name(n, project, limit), None)]
    text = f"no operation is called {name}{_nearest(name, meant)}"
    raise SpecError(text, kind="unknown-operation")


def project_files(start: Path, names: Iterable[str] = ()) -> list[Path]:
    """Return the files that these specs may come from: those that are named, else the project's."""
    named = [Path(n if Path(n).suffix in SUFFIXES else n.rpartition(":")[0]) for n in names]
    given = [path for path in named if path.suffix in SUFFIXES or (path.is_dir() and path.name)]
    if given:
        return [file for path in given for file in (_files(path) if path.is_dir() else [path])]
    project = find_project(start)
    if project is None:
        text = "there is no file to watch: name a spec file, or give a pyproject.toml [tool.derive]"
        raise _table_error(text)
    return [project.path, *project.specs]


def _all_of(path: Path, limit: float) -> dict[str, ProjectOperation]:
    read = (op for _, found in _read_specs([path], limit) for op in found)
    return {op.name: ProjectOperation(op, path) for op in read}


def _find_by_name(name: str, project: Project | None, limit: float) -> Iterator[ProjectOperation]:
    """Yield the operations of this name, those of the project first.

    Only files that contain the name are read. Those where it looks like a definition, "name" or op
    name, come first.
    """
    word = re.escape(name)
    texts = _spec_texts(project)
    files = []
    for pattern in (rf"[\"']{word}[\"']|\bop\s+{word}\b", rf"\b{word}\b"):
        files += [f for f in texts if f not in files and re.search(pattern, texts[f])]
    for file, operations in _read_specs(files, limit):
        yield from (ProjectOperation(op, file) for op in operations if op.name == name)
    shipped = catalog.find(name)
    if shipped is not None:
        yield ProjectOperation(shipped)


def names_of(project: Project | None) -> list[str]:
    """Return the names in the catalog, and likely names in the text of specs, without imports."""
    found = dict.fromkeys(catalog.names())
    for file, text in _spec_texts(project).items():
        found |= dict.fromkeys(re.findall(r"\bop\s+(\w+)", text))
        if file.suffix == ".py":
            found |= dict.fromkeys(re.findall(r"\bOperation\(\s*[\"'](\w+)[\"']", text))
    return list(found)


def _spec_texts(project: Project | None) -> dict[Path, str]:
    files = [file for file in (project.specs if project else ()) if file.is_file()]
    return {file: file.read_text(encoding="utf-8", errors="replace") for file in files}


def module_of(found: ProjectOperation, project: Project | None) -> Path | None:
    """Return the generated module of an operation (of its project or as shipped), or None."""
    folders: list[Path] = []
    if found.path is None:
        shipped = find_spec("derive.generated")
        folders += map(Path, shipped.submodule_search_locations or ()) if shipped else ()
    elif project is not None:
        own = [file.resolve() for file in project.specs]
        folders += [project.out] if found.path.resolve() in own else []
    paths = [folder / f"{found.operation.name}.py" for folder in folders]
    return next((path for path in paths if path.is_file()), None)


def _nearest(name: str, known: Sequence[str]) -> str:
    near = get_close_matches(name, known, 1)
    return f"; did you mean {near[0]}?" if near else "; `derive list` lists all operations"


def complete_name(incomplete: str) -> list[str]:
    """Complete operation names from the text of specs, without imports."""
    try:
        return [n for n in names_of(find_project(Path.cwd())) if n.startswith(incomplete)]
    except (DeriveError, OSError):
        return list(catalog.names())
