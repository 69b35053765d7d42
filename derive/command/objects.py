"""Import objects from user modules, and load examples from user files."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from derive.command.console import shown
from derive.errors import DeriveError


def _import_error(text: str) -> DeriveError:
    """Return the error of a file or module that lacks what is named."""
    return DeriveError(text, kind="examples-file")


def examples_of(path: Path) -> Sequence[Sequence[Any]]:
    """Return the lists of arguments from the file's examples().

    The seed is 0 unless the file sets another, so that every run reports the same.
    """
    make = _seeded_examples(path)
    if not callable(make):
        raise _import_error(
            f"{shown(path)} has no function examples(); define one that returns lists of arguments"
        )
    made = list(make())
    if made and not all(isinstance(one, list | tuple) for one in made):
        made = [made]
    return made


def _seeded_examples(path: Path) -> Any:
    import torch

    torch.manual_seed(0)
    return getattr(_loaded(path), "examples", None)


def mapping_of(path: Path) -> Mapping[str, Any]:
    """Return the file's mapping from Function names to examples; the seed is 0."""
    made = _seeded_examples(path)
    made = made() if callable(made) else made
    if not isinstance(made, Mapping) or not all(isinstance(key, str) for key in made):
        text = f"{shown(path)} has no mapping examples = {{'MODULE:CLASS': [[arguments]]}}"
        raise _import_error(text)
    return made


def reference_of(given: str | None) -> Any:
    """Return the text of an operation, or import MODULE:NAME."""
    if given is None or "=" in given:
        return given
    return named_object(given)


def named_object(given: str) -> Any:
    """Import the object MODULE:NAME or FILE.py:NAME."""
    place, found, name = given.rpartition(":")
    if not found or not place or not name:
        raise _import_error(f"{given!r} is not a name; write MODULE:NAME or FILE.py:NAME")
    value: Any = _loaded(Path(place)) if place.endswith(".py") else _imported(place)
    for part in name.split("."):
        if not hasattr(value, part):
            known = [own for own in vars(value) if not own.startswith("_")][:20]
            raise _import_error(f"{place} has no {name}; it has {', '.join(known)}")
        value = getattr(value, part)
    return value


def _imported(name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return import_module(name)
    except Exception as error:
        text = f"the module {name} cannot be imported: {type(error).__name__}: {error}"
        raise _import_error(text) from None


def _loaded(path: Path) -> ModuleType:
    """Import a file, with its folder on sys.path as for a script."""
    from derive.notation.specification import AsWritten

    if not path.is_file():
        raise _import_error(f"the file {path} does not exist")
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    loader = AsWritten(path.stem, str(path))
    spec = spec_from_file_location(path.stem, path, loader=loader)
    assert spec is not None
    module = module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
    try:
        loader.exec_module(module)
    except Exception as error:
        text = f"{shown(path)} cannot be imported: {type(error).__name__}: {error}"
        raise _import_error(text) from None
    return module
