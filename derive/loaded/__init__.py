"""Modules of generated functions, importable by name in any process: files of a cache.

A function of `derive.load` can be compiled by torch, pickled, sent to a worker, and shown in a
traceback, as its module is a file whose name contains the hash of its text. The folder is
DERIVE_CACHE if that is set, else the user's cache folder. If the folder is not writable, the
module exists in this process only.
"""

from __future__ import annotations

import os
import sys
from functools import lru_cache
from hashlib import sha256
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from tempfile import NamedTemporaryFile, gettempdir
from types import ModuleType
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


def function(name: str, text: str, runtime: str = "") -> Any:
    """Return the function ``name`` of the module with this source text.

    ``runtime`` is the text of the module that it imports as `_runtime` from its package.
    """
    if runtime:
        beside = _module("_runtime", runtime).__name__.rpartition(".")[2]
        text = text.replace("from . import _runtime as", f"from . import {beside} as")
    return getattr(_module(name, text), name)


def _module(name: str, text: str) -> ModuleType:
    """Return the module with this source text, whose name begins with ``name``."""
    stem = f"{name}_{_digest(text)}"
    module = f"{__name__}.{stem}"
    if module not in sys.modules:
        try:
            path = _written(_FOLDER / f"{stem}.py", text)
        except OSError:
            sys.modules[module] = imported(module, text)
        else:
            _import(module, path)
    return sys.modules[module]


@lru_cache(maxsize=64)
def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:16]


def _import(name: str, path: Path) -> None:
    """Import a file as a module of this name; to look for it would list a folder of thousands."""
    spec = spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    made = module_from_spec(spec)
    spec.loader.exec_module(made)
    sys.modules.setdefault(name, made)  # another thread may be done before


def _written(path: Path, text: str) -> Path:
    """Write the file atomically: its whole text or nothing."""
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        return path
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with NamedTemporaryFile(
        "w", encoding="utf-8", dir=path.parent, suffix=".tmp", delete=False
    ) as file:
        file.write(text)
    return Path(file.name).replace(path)
