"""What the live page loads: an interpreter of Python for browsers, and the engine as an archive.

The interpreter is Pyodide, from the folder where npm put it: ``npm install pyodide``. The engine
needs few packages, all in Python, so that they are copied from this installation.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from derive.errors import DeriveError
from derive.module.templating import root

_INTERPRETER = (
    "pyodide.mjs",
    "pyodide.asm.mjs",
    "pyodide.asm.wasm",
    "python_stdlib.zip",
    "pyodide-lock.json",
)
_PACKAGES = {
    "derive": ("*.py", "*.lark", "*.json", "*.derive"),
    "jinja2": ("*.py",),
    "lark": ("*.py", "*.lark"),
    "markupsafe": ("*.py",),
    "mpmath": ("*.py",),
    "pygments": ("*.py",),
}
_APART = {
    "derive": {
        *("auditing", "command", "docs", "examples", "generated", "linting", "templates"),
        *("tracing", "benchmarks"),
    },
    "mpmath": {"tests"},
    "lark": {"__pyinstaller"},
    "pygments": {"formatters", "styles", "sphinxext"},
}
"""The folders of a package that no answer needs."""

_BUT = {"derive": {"auditing/__init__.py", "auditing/terms.py"}}
"""The files in them that an answer needs."""

_LEXERS = {"__init__.py", "_mapping.py", "python.py"}


def interpreter(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield (address, content) of the files of the interpreter.

    Raises:
        DeriveError: the folder does not have them.
    """
    places = (folder, folder / "pyodide", folder / "node_modules/pyodide")
    found = next((p for p in places if all((p / x).is_file() for x in _INTERPRETER)), None)
    if found is None:
        raise DeriveError(
            f"{folder} does not have the files of Pyodide ({', '.join(_INTERPRETER)}); run "
            "npm install pyodide and name the folder node_modules/pyodide",
            kind="missing-package",
        )
    for name in _INTERPRETER:
        yield f"pyodide/{name}", (found / name).read_bytes()


def engine() -> bytes:
    """Return the archive of the engine, the same bytes for the same files."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, path in sorted(_files()):
            # The time of a file is not part of what it is.
            archive.writestr(zipfile.ZipInfo(name), path.read_bytes(), zipfile.ZIP_DEFLATED)
    return made.getvalue()


def _files() -> Iterator[tuple[str, Path]]:
    for package, kinds in _PACKAGES.items():
        spec = find_spec(package)
        assert spec is not None and spec.submodule_search_locations
        folder = Path(spec.submodule_search_locations[0])
        for path in (p for kind in kinds for p in folder.rglob(kind)):
            inside = path.relative_to(folder)
            of_lexers = inside.parts[0] == "lexers" and inside.name not in _LEXERS
            apart = inside.parts[0] in _APART.get(package, ())
            apart = apart and inside.as_posix() not in _BUT.get(package, ())
            if not apart and not of_lexers:
                yield f"{package}/{inside.as_posix()}", path
    for path in root().rglob("*"):
        if path.is_file() and path.suffix in (".jinja", ".py"):
            yield f"derive/templates/{path.relative_to(root()).as_posix()}", path
