"""The public Operation class, made from text or SymPy equations, and printed in the notation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from derive.notation import operation
from derive.notation.original_axes import as_given
from derive.notation.text_form import operation_of, operations_of
from derive.notation.unparse import written
from derive.show.formula import equation, sides
from derive.show.typeset import in_display

if TYPE_CHECKING:
    from sympy import Basic


class Operation(operation.Operation):
    """A tensor operation in index notation: equations ``output[j] = body`` for all values of j.

    ``str(op)`` is its text in the notation, which `derive.parse` reads back. A notebook shows the
    equations as formulas. Operations are immutable, compare by value, and can be pickled.

    Attributes:
        name: the name of the operation and of its generated function.
        inputs: the input tensors, in the order of the signature.
        parameters: the keyword arguments of the generated function.
        equations: all equations in order; a body uses inputs and earlier equations only.
        outputs: the names of the outputs. With a `choice`, each option has one of them.
        extents: the size of each index, and where it is read.
        stable: form each difference before it is squared or multiplied, even if that takes a larger
            intermediate tensor.

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
            parameters: keyword arguments and their defaults; None marks a required argument.
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

        made = operation_of_sympy(
            name, equations, inputs, parameters or {}, outputs, stable, requires
        )
        parts = (made.inputs, made.parameters, made.equations, made.outputs, made.extents)
        self._set(made.name, *parts, made.stable)

    def __str__(self) -> str:
        return written(self)

    def __repr__(self) -> str:
        inputs = ", ".join(t.name for t in self.inputs)
        return f"Operation({self.name!r}, ({inputs}) -> {', '.join(self.outputs)})"

    def _repr_latex_(self) -> str:
        return in_display(sides(e.name, e.axes, e.body, "latex") for e in self._as_given())

    def _repr_html_(self) -> str:
        formulas = (equation(e.name, e.axes, e.body, "mathml") for e in self._as_given())
        return "\n".join(f"<div>{formula}</div>" for formula in formulas)

    def _as_given(self) -> Iterator[operation.Equation]:
        for e in self.equations:
            yield replace(e, body=as_given(self, e.body))


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
    return _printed(operation_of(text))


def parse_all(text: str) -> tuple[Operation, ...]:
    """Return the operations of a text, in order; without an ``op`` line, one named ``op``."""
    return tuple(_printed(op) for op in operations_of(text))


def _printed(op: operation.Operation) -> Operation:
    parts = (op.inputs, op.parameters, op.equations, op.outputs, op.extents)
    return Operation.resolved(op.name, *parts, op.stable)
