"""One derivation a run: what the catalog is derived to lies on disk, for all processes.

An entry belongs to the bytes of the engine: its folder is named by them, and with other bytes all
is derived again. It is written whole or not at all.
"""

import hashlib
import os
import pickle
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from importlib.metadata import version
from pathlib import Path
from typing import Any

from kit.command import ROOT

from derive import api, catalog, pipeline
from derive.notation.operation import Operation

KEPT = ROOT / ".pytest_cache" / "derived"
FUNCTIONS = ("derive_option", "program_of", "tangents_of", "plain_program")
"""Those of `derive.pipeline` that are shared, on any operation of the catalog."""
PLAIN = {name: getattr(pipeline, name) for name in FUNCTIONS}


def engine() -> Iterator[Path]:
    """All that a derivation depends on."""
    for folder in ("derive", "templates"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield path


@cache
def folder() -> Path:
    """Where what this engine derives is; what other ones derived is removed."""
    seen = hashlib.sha256(f"{sys.version} {version('sympy')}".encode())
    for path in engine():
        seen.update(f"{path.relative_to(ROOT)} ".encode() + path.read_bytes())
    found = KEPT / seen.hexdigest()[:20]
    if not found.is_dir():
        shutil.rmtree(KEPT, ignore_errors=True)
        found.mkdir(parents=True, exist_ok=True)
    return found


def kept(name: str, make: Callable[[], Any]) -> Any:
    """What is on disk under this name; made and put there if nothing is."""
    path = folder() / f"{name}.pickle"
    if path.is_file():
        return pickle.loads(path.read_bytes())
    made = make()
    own = path.with_suffix(f".{os.getpid()}")
    own.parent.mkdir(parents=True, exist_ok=True)
    own.write_bytes(pickle.dumps(made, pickle.HIGHEST_PROTOCOL))
    own.replace(path)
    return made


def written(op: Operation) -> str:
    """The source of an operation of the catalog, as generated/ has it."""
    assert catalog.find(op.name) is op
    return kept(f"source {op.name}", lambda: api.source(op, standalone=False))


def shared(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of an operation and an option, found once by all processes together."""
    known: dict[tuple[str, str | None], Any] = {}

    @wraps(function)
    def found(op: Operation, option: str | None = None, *more: Any) -> Any:
        if any(x is not None for x in more) or catalog.find(op.name) is not op:
            return function(op, option, *more)
        key = (op.name, option)
        if key not in known:
            name = f"{function.__name__} {op.name} {option}"
            known[key] = kept(name, lambda: function(op, option, *more))
        return known[key]

    found.cache_clear = getattr(function, "cache_clear", None)  # type: ignore[attr-defined]
    return found


def install() -> None:
    """From now on the catalog is derived once."""
    for name, function in PLAIN.items():
        setattr(pipeline, name, shared(function))


@contextmanager
def anew(*names: str) -> Iterator[None]:
    """Here the functions of these names, or all, do their work again, as the engine stands now."""
    before = {name: getattr(pipeline, name) for name in names or FUNCTIONS}
    for name in before:
        PLAIN[name].cache_clear()
        setattr(pipeline, name, PLAIN[name])
    try:
        yield
    finally:
        for name, function in before.items():
            PLAIN[name].cache_clear()
            setattr(pipeline, name, function)
