"""Read the operations of a file: a ``.derive`` text or a Python module of SymPy specs."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from errno import ELOOP
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from os import PathLike
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from traceback import walk_tb
from types import FrameType, ModuleType
from typing import Any

from derive.errors import DeriveError, SpecError
from derive.notation.specification import Operation


def read(path: str | PathLike[str]) -> tuple[Operation, ...]:
    r"""Return all operations of a spec file, in order.

    Args:
        path: a ``.derive`` text, or a ``.py`` module that defines `Operation` objects. A module
            runs in this process.

    Raises:
        SpecError: the file is missing or has no meaning, or the module raises an exception. The
            message has the file and, where known, the line.

    >>> import derive, pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "two.derive")
    ...     _ = path.write_text("op f(x[n]) -> y; y[n] = x[n]**2\nop g(x[n]) -> y; y[n] = 3*x[n]")
    ...     print([op.name for op in derive.read(path)])
    ['f', 'g']
    """
    path = Path(path)
    _refuse(path)
    if path.suffix not in (".derive", ".py"):
        raise SpecError(f"{path}: a spec must be a .derive text or a .py module")
    if path.suffix == ".py":
        return _of_python(path)
    from derive.notation.specification import parse_all

    try:
        return parse_all(path.read_text(encoding="utf-8-sig"))
    except SpecError as error:
        raise _located(f"{path}: ", error) from error.__cause__
    except UnicodeDecodeError:
        raise SpecError(f"{path}: the file is not UTF-8 text") from None


def _refuse(path: Path) -> None:
    """Raise SpecError unless the path, links resolved, is a regular file."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        what = "the path is a broken symbolic link" if path.is_symlink() else ""
        raise SpecError(f"{path}: {what or 'the file does not exist'}") from None
    except ValueError as error:
        raise SpecError(f"{str(path)!r} is not a path: {error}") from None
    except OSError as error:
        if error.errno != ELOOP:
            raise
        raise SpecError(f"{path}: its symbolic links form a cycle") from None
    if not S_ISREG(mode):
        what = "a folder" if S_ISDIR(mode) else "not a regular file"
        raise SpecError(f"{path}: a spec must be a file, and this is {what}")


def _located(place: str, error: DeriveError) -> SpecError:
    located = SpecError(f"{place}{error}")
    if isinstance(error, SpecError):
        located.line, located.column = error.line, error.column
    return located


class AsWritten(SourceFileLoader):
    """Always compiles the source: a cached file may be from an older text of the same second."""

    def path_stats(self, path: str) -> Mapping[str, Any]:
        """Raise OSError, so that no cached file is used."""
        raise OSError(f"{path} is compiled each time")


def _of_python(path: Path) -> tuple[Operation, ...]:
    """Return the operations of a module, run once and then removed from ``sys.modules``."""
    name = f"_derive_spec_{path.stem}"
    loader = AsWritten(name, str(path))
    spec = spec_from_file_location(name, path, loader=loader)
    assert spec is not None
    module = module_from_spec(spec)
    sys.modules[name] = module
    with _interrupts() as stopped:
        try:
            loader.exec_module(module)
            return _of_module(module)
        except BaseException as error:
            if stopped:
                raise KeyboardInterrupt from None
            raise _spec_module_error(path, error) from error
        finally:
            sys.modules.pop(name, None)


def _spec_module_error(path: Path, error: BaseException) -> SpecError:
    """Return the module's exception as a SpecError, located in the module."""
    frames = walk_tb(error.__traceback__)
    lines = [line for frame, line in frames if frame.f_code.co_filename == str(path)]
    if isinstance(error, SyntaxError) and error.filename == str(path) and error.lineno is not None:
        lines.append(error.lineno)
    place = f"{path}:{lines[-1]}: " if lines else f"{path}: "
    if isinstance(error, DeriveError):
        located = _located(place, error)
    else:
        located = SpecError(f"{place}the module raises an error: {_exception_text(error)}")
    if lines and located.line is None:
        located.line = lines[-1]
    return located


def _exception_text(error: BaseException) -> str:
    """Return the class and the message of an exception."""
    name = type(error).__name__
    try:
        words = error.msg if isinstance(error, SyntaxError) else str(error)
    except BaseException:
        words = ""
    end = "; a spec may only define operations" if isinstance(error, SystemExit) else ""
    return f"{name}: {words}{end}" if words else f"{name}{end}"


@contextmanager
def _interrupts() -> Iterator[list[int]]:
    """Track a user's Ctrl-C, to tell it from a KeyboardInterrupt that the module raises."""
    stopped: list[int] = []
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield stopped
        return

    def stop(number: int, frame: FrameType | None) -> None:
        stopped.append(number)
        before(number, frame)

    signal.signal(signal.SIGINT, stop)
    try:
        yield stopped
    finally:
        signal.signal(signal.SIGINT, before)
    if stopped:
        raise KeyboardInterrupt


def _of_module(module: ModuleType) -> tuple[Operation, ...]:
    """Return its operations, alone or in tuples and lists, in order and each once."""
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
