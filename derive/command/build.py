"""Build and verify modules on all cores, one task per operation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

from derive.api import costs, source
from derive.command.lines import warnings_of
from derive.command.parallel import each
from derive.errors import DeriveError
from derive.module import runtime
from derive.notation.operation import Operation

if TYPE_CHECKING:
    from derive.check.checks import Check
    from derive.check.invoke import Column


_DERIVED = 12
"""Operations derived in the time that a worker takes to start."""
_VERIFIED = 3
"""Modules verified in the time that a fork with torch loaded takes to start."""


@dataclass(frozen=True)
class Asked:
    """The build request for a module: the operation, and the options of its source."""

    operation: Operation
    blocks: str | None = None
    save: str = "balanced"
    standalone: bool = False
    style: str = "production"


@dataclass(frozen=True)
class BuiltModule:
    """An operation and the text of its module."""

    operation: Operation
    text: str
    warnings: tuple[str, ...] = ()


def made(asked: Sequence[Asked], costed: bool) -> Iterator[BuiltModule | DeriveError]:
    """Build the module of each operation, in order; with ``costed``, also its cost warnings."""
    build = partial(_build_module, costed)
    yield from each(build, asked, attrgetter("operation.name"), _DERIVED)


def _build_module(costed: bool, asked: Asked) -> BuiltModule:
    op, style = asked.operation, asked.style
    text = source(op, asked.blocks, asked.save, standalone=asked.standalone, style=style)
    return BuiltModule(op, text, tuple(warned(op)) if costed else ())


def warned(op: Operation) -> Iterator[str]:
    """Yield warnings of intermediates with more axes than any tensor in the operation's text."""
    for option, found in costs(op):
        yield from warnings_of(op, option, found)


def unverified(modules: Sequence[BuiltModule]) -> Iterator[DeriveError | None]:
    """Verify each module; yield its error or None."""
    yield from each(_verify, modules, attrgetter("operation.name"), _VERIFIED)


def _verify(module: BuiltModule) -> None:
    from derive.check.checks import verify_source

    verify_source(module.operation, module.text)


def checked(
    operations: Iterable[tuple[Operation, Path | None]], columns: Sequence[Column]
) -> Iterator[list[Check] | DeriveError]:
    """Run the checks on each operation's module; without a module, its code is derived now."""
    modules = list(operations)
    yield from each(partial(_check_module, tuple(columns)), modules, _pair_name, _VERIFIED)


def _check_module(columns: Sequence[Column], asked: tuple[Operation, Path | None]) -> list[Check]:
    from derive.check.checks import checks_of, columns_of, load_source

    op, path = asked
    if path is None:
        return list(checks_of(op, load_source(op, source(op)), columns=columns))
    text = text_of(path)
    try:
        function = load_source(op, text)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise _stale(f"{op.name}: {path} cannot be imported: {reason}") from None
    return list(checks_of(op, function, columns=columns_of(text, columns)))


def _pair_name(asked: tuple[Operation, Path | None]) -> str:
    return asked[0].name


def text_of(path: Path) -> str:
    """Read a module, with copies of what it calls of the `_runtime.py` beside it.

    Raises:
        DeriveError: a file cannot be read, or the runtime lacks a function.
    """
    text, beside = _text(path), path.with_name(runtime.FILE)
    try:
        return runtime.standalone(text, _text(beside)) if runtime.imports(text) else text
    except (SyntaxError, KeyError) as error:
        reason = f"lacks {error}" if isinstance(error, KeyError) else f"is no Python: {error}"
        raise _stale(f"{beside}, which {path.name} imports, {reason}") from None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise _stale(f"{path} is not UTF-8 text") from None
    except OSError as error:
        raise _stale(f"{path} cannot be read: {error.strerror}") from None


def _stale(what: str) -> DeriveError:
    """Return the error of a module that has to be written again."""
    text = f"{what}; run `derive check` to see how to fix it"
    return DeriveError(text, kind="stale-module")
