"""Import modules from source text, without files."""

from __future__ import annotations

import linecache
from importlib.abc import SourceLoader
from importlib.util import module_from_spec, spec_from_loader
from types import ModuleType
from typing import Any


def imported(name: str, text: str) -> ModuleType:
    """Import source text as a module that is not registered in ``sys.modules``."""
    loader = _TextLoader(text)
    spec = spec_from_loader(name, loader, origin=f"<{name}>")
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


def loaded(name: str, text: str) -> Any:
    """Return the function of that name from source text."""
    return getattr(imported(f"derive_generated_{name}", text), name)


class _TextLoader(SourceLoader):
    """Loads a module from its text; tracebacks show the lines."""

    def __init__(self, text: str) -> None:
        self._text = text

    def get_filename(self, fullname: str) -> str:
        path = f"<{fullname}>"
        lines = self._text.splitlines(keepends=True)
        linecache.cache[path] = (len(self._text), None, lines, path)
        return path

    def get_data(self, path: str | bytes) -> bytes:
        return self._text.encode()
