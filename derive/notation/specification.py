"""The public Operation class, made from text or SymPy equations, and printed in the notation."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from errno import ELOOP
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from os import PathLike
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from traceback import walk_tb
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any

from derive.errors import DeriveError, SpecError
from derive.notation import operation
from derive.notation.comments import comments
from derive.notation.split import as_given
from derive.notation.text_form import operation_of, operations_of
from derive.notation.unparse import written
from derive.show.formula import equation
from derive.show.line_breaks import Parts, in_display

if TYPE_CHECKING:
    from sympy import Basic


class Operation(operation.Operation):
    """A tensor operation in index notation: equations ``output[j] = body`` for all values of j.

    ``str(op)`` is its text in the notation, which `derive.parse` reads back. A notebook shows the
    equations as formulas. Operations are immutable, compare by value, and can be pickled.

    Attributes:
        name: the name of the operation and of its generated function.
        inputs: the input tensors, in the order of the signature.
        parameters: the further arguments of the generated function.
        equations: all equations in order; a body uses inputs and earlier equations only.
        outputs: the names of the outputs. With a `choice`, each option has one of them.
        extents: the size of each index, and where it is read.
        stable: form each difference before it is squared or multiplied, even if that takes a larger
            intermediate tensor.
        comment: what the comment above the operation says, in a spec file or text.

    >>> import derive
    >>> from sympy import Eq, IndexedBase, Sum, symbols
    >>> i, j, k = symbols("i j k", integer=True)
    >>> A, B, C = map(IndexedBase, "ABC")
    >>> op = derive.Operation("matmul", Eq(C[i, j], Sum(A[i, k] * B[k, j], k)))
    >>> print(op)
    op matmul(A[i, k], B[k, j]) -> C
    C[i, j] = sum[k](A[i, k]*B[k, j])
    """

    def __init__(
        self,
        name: str,
        *equations: Basic,
        inputs: Sequence[Any] = (),
        parameters: Mapping[Any, Any] | None = None,
        outputs: Sequence[Any] | Mapping[str, Any] | None = None,
        stable: bool = False,
        requires: Sequence[Any] = (),
    ) -> None:
        """Make an operation from SymPy equations ``Eq(C[i, j], ...)``.

        Args:
            name: a Python identifier.
            equations: SymPy equations in order of definition. The last one is the output.
            inputs: the inputs in the order of the signature, plain or wrapped in `derive.optional`,
                `derive.integer` or `derive.boolean`. Default: order of first use.
            parameters: further arguments and their defaults; None marks a required argument.
                `derive.axis`, `derive.keep`, `derive.size` and `derive.choice` declare other kinds.
            outputs: the names of the outputs; with a choice, a dict from option to output.
            stable: see the attribute.
            requires: conditions on parameters, such as ``eps > 0``. A call that does not satisfy
                them raises a ValueError.

        Raises:
            SpecError: the equations have no meaning as an operation.
        """
        # SymPy takes a while to import, and an operation of text does without it.
        from derive.notation.sympy_form import operation as operation_of_sympy

        given = name, equations, inputs, parameters or {}, outputs, stable, requires
        self._set(*vars(operation_of_sympy(*given)).values())

    def __str__(self) -> str:
        return written(self)

    def __repr__(self) -> str:
        inputs = ", ".join(t.name for t in self.inputs)
        return f"Operation({self.name!r}, ({inputs}) -> {', '.join(self.outputs)})"

    def _repr_latex_(self) -> str:
        return in_display(self._as_given())

    _repr_markdown_ = _repr_latex_

    def _repr_html_(self) -> str:
        return "\n".join(f"<div>{equation(*e, 'mathml')}</div>" for e in self._as_given())

    def _as_given(self) -> Iterator[Parts]:
        return ((e.name, e.axes, as_given(self, e.body)) for e in self.equations)


def parse(text: str) -> Operation:
    """Return the operation that a text in index notation defines.

    ``sum[k](...)`` sums over all values of k. Every other index of an equation is on its left side,
    and the equation holds for all of its values. The ``op name(inputs; parameters) -> outputs``
    line is optional: without it, the name is ``op``, the inputs come in order of first use, and
    the last equation is the output. The README describes the whole notation.

    Raises:
        SpecError: the text has no meaning, with line and column; or it has several operations,
            which `derive.read` reads from a file.
        TypeError: ``text`` is not a string.

    >>> import derive
    >>> op = derive.parse("op scaled(x[n], w[n]; eps=1e-5) -> y; y[n] = x[n]*w[n] + eps")
    >>> op
    Operation('scaled', (x, w) -> y)
    >>> [p.name for p in op.parameters]
    ['eps']
    """
    op = operation_of(text)
    return _printed(op, comments(text).get(op.name, ""))


def parse_all(text: str) -> tuple[Operation, ...]:
    """Return the operations of a text, in order; without an ``op`` line, one named ``op``."""
    said = comments(text)
    return tuple(_printed(op, said.get(op.name, "")) for op in operations_of(text))


def _printed(op: operation.Operation, comment: str) -> Operation:
    return Operation.resolved(**{**vars(op), "comment": comment})


# --------------------------------------------------------------------------------------------- read
# Read the operations of a file: a ``.derive`` text or a Python module of SymPy specs.


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
        raise SpecError(f"{path}: a spec must be a .derive text or a .py module", kind="spec-file")
    if path.suffix == ".py":
        said = comments(path.read_text(encoding="utf-8-sig", errors="replace"))
        return tuple(_printed(op, said.get(op.name, "")) for op in _of_python(path))
    try:
        return parse_all(path.read_text(encoding="utf-8-sig"))
    except SpecError as error:
        raise _located(f"{path}: ", error) from error.__cause__
    except UnicodeDecodeError:
        raise SpecError(f"{path}: the file is not UTF-8 text", kind="spec-file") from None


def _refuse(path: Path) -> None:
    """Raise SpecError unless the path, links resolved, is a regular file."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        what = "the path is a broken symbolic link" if path.is_symlink() else ""
        raise SpecError(f"{path}: {what or 'the file does not exist'}", kind="spec-file") from None
    except ValueError as error:
        raise SpecError(f"{str(path)!r} is not a path: {error}", kind="spec-file") from None
    except OSError as error:
        if error.errno != ELOOP:
            raise
        raise SpecError(f"{path}: its symbolic links form a cycle", kind="spec-file") from None
    if not S_ISREG(mode):
        what = "a folder" if S_ISDIR(mode) else "not a regular file"
        raise SpecError(f"{path}: a spec must be a file, and this is {what}", kind="spec-file")


def _located(place: str, error: DeriveError) -> SpecError:
    located = SpecError(f"{place}{error.text}", kind=error.kind)
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
        located = SpecError(
            f"{place}the module raises an error: {_exception_text(error)}", kind="spec-module"
        )
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
        raise SpecError("the module defines no Operation", kind="incomplete-operation")
    names = [op.name for op in found]
    for n, repeated in enumerate(names):
        if repeated in names[:n]:
            text = f"operation {repeated} is defined twice; rename one"
            raise SpecError(text, kind="defined-twice")
    return tuple(found)
