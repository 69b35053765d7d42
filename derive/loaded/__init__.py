"""Modules of generated functions, importable by name in any process: files of a cache.

A function of `derive.load` can be compiled by torch, pickled, sent to a worker, and shown in a
traceback, as its module is a file whose name contains the hash of its text. The folder is
DERIVE_CACHE if that is set, else the user's cache folder. If the folder is not writable, the
module exists in this process only.
"""

from __future__ import annotations

import importlib
import os
import sys
from hashlib import sha256
from pathlib import Path
from tempfile import NamedTemporaryFile, gettempdir
from typing import Any

from derive.memory import imported


def folder() -> Path:
    """Return the folder of the cached modules."""
    given = os.environ.get("DERIVE_CACHE")
    if given:
        return Path(given).absolute()
    home = Path(os.path.expanduser("~"))
    if not home.is_absolute():
        # The user has no home folder, as in some containers.
        home = Path(gettempdir())
    if sys.platform == "win32":
        caches = Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    elif sys.platform == "darwin":
        caches = home / "Library" / "Caches"
    else:
        caches = Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")
    return caches / "derive"


_FOLDER = folder()
__path__ = [*__path__, str(_FOLDER)]


def function(name: str, text: str) -> Any:
    """Return the function ``name`` of the module with this source text."""
    stem = f"{name}_{sha256(text.encode()).hexdigest()[:16]}"
    module = f"{__name__}.{stem}"
    if module not in sys.modules:
        try:
            _written(_FOLDER / f"{stem}.py", text)
            importlib.invalidate_caches()
            importlib.import_module(module)
        except OSError:
            sys.modules[module] = imported(module, text)
    return getattr(sys.modules[module], name)


def _written(path: Path, text: str) -> None:
    """Write the file atomically: its whole text or nothing."""
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        return
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with NamedTemporaryFile(
        "w", encoding="utf-8", dir=path.parent, suffix=".tmp", delete=False
    ) as file:
        file.write(text)
    Path(file.name).replace(path)
