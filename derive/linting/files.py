"""Find the Python files in files and folders."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path

SKIPPED = (
    ".*",
    "__pycache__",
    "__pypackages__",
    "_build",
    "build",
    "dist",
    "node_modules",
    "site-packages",
    "venv",
)
"""Names of folders that are skipped within a folder."""


def python_files(paths: Sequence[Path], exclude: Sequence[str] = ()) -> Iterator[Path]:
    """Yield the files themselves, and those in folders, sorted by name; each once."""
    seen = set()
    for path in paths:
        for file in _python_files_in(path, exclude) if path.is_dir() else (path,):
            if file not in seen:
                seen.add(file)
                yield file


def _python_files_in(folder: Path, exclude: Sequence[str]) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if _matches(path, exclude):
            continue
        if path.is_dir():
            if not path.is_symlink() and not any(fnmatch(path.name, s) for s in SKIPPED):
                yield from _python_files_in(path, exclude)
        elif path.suffix == ".py":
            yield path


def _matches(path: Path, patterns: Sequence[str]) -> bool:
    """True if the path or its name matches a pattern: ``tests``, ``old/*.py``."""
    return any(fnmatch(path.name, p) or fnmatch(path.as_posix(), p) for p in patterns)
