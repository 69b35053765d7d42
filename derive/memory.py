"""Source text as a module, without a file."""

from __future__ import annotations

import linecache
from importlib.abc import SourceLoader
from importlib.util import module_from_spec, spec_from_loader
from types import ModuleType
from typing import Any


def imported(name: str, text: str) -> ModuleType:
    """The module of this source; it is not left among the imported ones."""
    loader = _TextLoader(text)
    spec = spec_from_loader(name, loader, origin=f"<{name}>")
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


def loaded(name: str, text: str) -> Any:
    """The function of that name in the module of this source."""
    return getattr(imported(f"derive_generated_{name}", text), name)


class _TextLoader(SourceLoader):
    """Reads a module from its text; tracebacks show the lines."""

    def __init__(self, text: str) -> None:
        self._text = text

    def get_filename(self, fullname: str) -> str:
        path = f"<{fullname}>"
        lines = self._text.splitlines(keepends=True)
        linecache.cache[path] = (len(self._text), None, lines, path)
        return path

    def get_data(self, path: str | bytes) -> bytes:
        return self._text.encode()
