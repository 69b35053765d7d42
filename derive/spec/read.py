"""The operations of a file: a ``.derive`` text or a Python module of SymPy specs."""

from __future__ import annotations

import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from os import PathLike
from pathlib import Path
from types import ModuleType

from derive.errors import DeriveError, SpecError
from derive.spec.notation import parse_all
from derive.spec.operation import Operation

__all__ = ["read"]


def read(path: str | PathLike[str]) -> tuple[Operation, ...]:
    """All operations of the file, in order; an error names the file."""
    path = Path(path)
    if path.suffix not in (".derive", ".py"):
        raise SpecError(f"{path}: a spec is a .derive text or a .py module")
    if not path.is_file():
        raise SpecError(f"{path}: there is no such file")
    try:
        if path.suffix == ".derive":
            return parse_all(path.read_text(encoding="utf-8"))
        return _of_module(_module(path))
    except SpecError as error:
        raise _located(path, error) from error.__cause__
    except DeriveError:
        raise
    except UnicodeDecodeError:
        raise SpecError(f"{path}: the file is no UTF-8 text") from None


def _located(path: Path, error: SpecError) -> SpecError:
    located = SpecError(f"{path}: {error}")
    located.line, located.column = error.line, error.column
    return located


def _module(path: Path) -> ModuleType:
    """The module, run once; it is not left among the imported ones."""
    name = f"_derive_spec_{path.stem}"
    loader = SourceFileLoader(name, str(path))
    spec = spec_from_file_location(name, path, loader=loader)
    assert spec is not None
    module = module_from_spec(spec)
    sys.modules[name] = module
    try:
        loader.exec_module(module)
    except DeriveError:
        raise
    except Exception as error:
        raise SpecError(f"the module fails: {type(error).__name__}: {error}") from error
    finally:
        del sys.modules[name]
    return module


def _of_module(module: ModuleType) -> tuple[Operation, ...]:
    """Its operations, alone or in tuples and lists, in order of definition and each once."""
    found: list[Operation] = []
    for name, value in vars(module).items():
        if name.startswith("_"):
            continue
        items = value if isinstance(value, tuple | list) else (value,)
        for item in items:
            if isinstance(item, Operation) and all(item is not other for other in found):
                found.append(item)
    if not found:
        raise SpecError("the module defines no Operation")
    names = [op.name for op in found]
    for n, repeated in enumerate(names):
        if repeated in names[:n]:
            raise SpecError(f"operation {repeated} is defined twice; rename one")
    return tuple(found)
