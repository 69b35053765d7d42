"""Windows over the last axes of a tensor, and tests where they extend beyond it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import sympy

from derive.tracing.context import Context
from derive.tracing.elementwise import number, plus, times
from derive.tracing.values import (
    Atom,
    Axis,
    Position,
    TracedNode,
    TracedNumber,
    TracedValue,
    apply,
    substituted,
)
from derive.tracing.views import length_of, moved


def per_axis(x: Any, count: int, default: Any = None) -> list[Any]:
    """Return a setting for every axis; one may be given for all."""
    if x is None or (isinstance(x, list | tuple) and not x):
        x = default
    found = list(x) if isinstance(x, list | tuple) else [x]
    found = found * count if len(found) == 1 else found
    return [sympy.sympify(e) for e in found]


def conjunction(tests: Sequence[TracedNode]) -> TracedNode | None:
    made = None
    for test in tests:
        made = test if made is None else apply("and", made, test)
    return made


def window_position(
    starts: Axis, inner: Axis, step: Any, dilation: Any, padding: Any
) -> TracedNode:
    """Return step*u + dilation*k - padding; an axis of size 1 has position 0."""
    terms: list[TracedNode] = []
    for atoms, by in ((starts, step), (inner, dilation)):
        at = [Position(a) for a in atoms]
        terms += at if by == 1 else [times(number(by), p) for p in at]
    if not terms:
        return TracedNumber(-sympy.sympify(padding))
    total = terms[0]
    for term in terms[1:]:
        total = plus(total, term)
    return moved(total, -sympy.sympify(padding))


class Windows:
    """x read in windows: the last axes of ``value`` are the starts of the windows.

    Its elements depend on the indices of the ``kernel`` too. ``inside`` is the condition that they
    are elements of x, None if all are.
    """

    def __init__(
        self,
        context: Context,
        x: TracedValue,
        sizes: Sequence[sympy.Expr],
        kernel: Sequence[Axis],
        stride: Sequence[Any],
        padding: Sequence[Any],
        dilation: Sequence[Any],
        beyond: bool = False,
    ) -> None:
        self.starts: list[Axis] = [() if n == 1 else (Atom.new(n),) for n in sizes]
        tests: list[TracedNode] = []
        x = context.simple(x)
        first = len(x.axes) - len(kernel)
        for n, (starts, inner) in enumerate(zip(self.starts, kernel, strict=True)):
            at = window_position(starts, inner, stride[n], dilation[n], padding[n])
            whole, dim = length_of(x, first + n), first + n
            context.sizes.at_least(sizes[n] - 1)
            if padding[n] != 0:
                tests.append(apply(">=", at, number(0)))
            if padding[n] != 0 or (beyond and (starts or inner)):
                tests.append(apply("<", at, number(whole)))
            if x.axes[dim]:
                x, atom = context.single(x, dim)
                x = replace(x, node=substituted(x.node, {atom: at}))
            x = replace(x, axes=(*x.axes[:dim], starts, *x.axes[dim + 1 :]))
        self.value = x
        self.inside = conjunction(tests)
