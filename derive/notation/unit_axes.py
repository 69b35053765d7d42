"""Desugar axes of size 1 on an op line, x[n, 0], to generated indices of size 1.

    op f(x[n,0]) -> y      is     op f(x[n,one]; size(one)=1) -> y

The equations read such an axis at its only position, 0.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from derive.notation import syntax

STEM = "one"


def with_unit_axes(written: syntax.OperationSyntax) -> syntax.OperationSyntax:
    """Add an index of size 1 for each axis that is written 0."""
    if not any(_is_unit_axis(axis) for t in written.inputs or () for axis in t.axes or ()):
        return written
    named = (
        syntax.NameSyntax,
        syntax.Star,
        syntax.TensorSyntax,
        syntax.ParameterSyntax,
        syntax.EquationSyntax,
    )
    taken = {e.name for e in _all_syntax_parts(written) if isinstance(e, named)}
    letters: list[str] = []
    inputs = tuple(_with_unit_letters(t, letters, taken) for t in written.inputs or ())
    sizes = (
        syntax.ParameterSyntax(letter, syntax.NumberSyntax(Fraction(1)), fixes=True)
        for letter in letters
    )
    return replace(written, inputs=inputs, parameters=(*written.parameters, *sizes))


def _is_unit_axis(axis: syntax.Raw) -> bool:
    return isinstance(axis, syntax.NumberSyntax) and axis.value == 0


def _all_syntax_parts(written: syntax.OperationSyntax) -> list[syntax.Raw]:
    whole = [*(written.inputs or ()), *written.parameters, *written.equations]
    return [part for e in whole for part in syntax.walk(e)]


def _with_unit_letters(
    t: syntax.TensorSyntax, letters: list[str], taken: set[str]
) -> syntax.TensorSyntax:
    """Replace the unit axes of the tensor by the letters, in order; new letters are added."""
    axes: list[syntax.Raw] = []
    count = 0
    for axis in t.axes or ():
        if _is_unit_axis(axis):
            if count == len(letters):
                number = len(letters) + 1
                while (letter := f"{STEM}{number}" if number > 1 else STEM) in taken:
                    number += 1
                letters.append(letter)
                taken.add(letter)
            axis = syntax.NameSyntax(letters[count], at=axis.at)
            count += 1
        axes.append(axis)
    return replace(t, axes=tuple(axes) if t.axes is not None else None)
