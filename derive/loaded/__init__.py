"""Modules of generated functions, importable by name in any process: files of a cache.

What `derive.load` gives is compiled by torch, pickled, sent to a worker, and shown in a traceback
as any other function is: its module is a file, whose name has the hash of its text. The folder is
DERIVE_CACHE, or that of a person's caches; where nothing can be written, the module is there for
this process alone.
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
    """Where the modules lie."""
    given = os.environ.get("DERIVE_CACHE")
    if given:
        return Path(given).absolute()
    home = Path(os.path.expanduser("~"))
    if not home.is_absolute():
        # Nobody's home is known, as in some containers.
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
    """The function of that name in the module of this source."""
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
    """The file with that text, all of it or none."""
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        return
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with NamedTemporaryFile(
        "w", encoding="utf-8", dir=path.parent, suffix=".tmp", delete=False
    ) as file:
        file.write(text)
    Path(file.name).replace(path)
