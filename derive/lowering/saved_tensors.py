"""The saved tensors of a backward: those whose elements it reads, with the gradients that do.

A shape is read from a tensor saved for the same gradients, or is saved separately.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from derive.lowering.layout_conversion import Border, own_shapes, replaced_in_lines
from derive.program.cse import Line
from derive.program.gradient_predication import Needs
from derive.program.program import Saved
from derive.program.torch_ir import Attribute, Code, Name, names_in, values_in


def with_saved_shapes(
    lines: Sequence[Line], needs: Sequence[Needs], available: Sequence[str]
) -> list[Line]:
    """Return the lines with shapes read from tensors that the same gradients save anyway."""
    readers = readers_of(lines, needs)
    saved = [
        n for n in available if n in readers and readers.get(f"{n}_shape", set()) <= readers[n]
    ]
    return own_shapes(lines, saved)


def with_kept_shapes(
    lines: Sequence[Line], needs: Sequence[Needs], inputs: Sequence[str], border: Border
) -> list[Line]:
    """Return the lines with separate shapes for inputs whose elements fewer gradients read."""
    readers, values = readers_of(lines, needs), readers_of(lines, needs, values_in)
    kept = [n for n in inputs if n in values and values[n] < readers[n]]
    border.shapes.used.update(dict.fromkeys(kept))
    return replaced_in_lines(lines, {Attribute(Name(n), "shape"): Name(f"{n}_shape") for n in kept})


def saved_of(
    names: Sequence[str], gradients: Mapping[str, str], readers: Mapping[str, Collection[str]]
) -> tuple[Saved, ...]:
    """Return the names that are read, each with the gradients that read it."""
    read = [name for name in names if name in readers]
    return tuple(Saved(n, tuple(g for g in gradients if g in readers[n])) for n in read)


def readers_of(
    lines: Sequence[Line],
    needs: Sequence[Needs],
    read: Callable[[Code], Iterable[str]] = names_in,
) -> dict[str, set[str]]:
    """Return the gradients whose lines read each name."""
    readers: dict[str, set[str]] = {}
    for line, wanted in zip(lines, needs, strict=True):
        for name in read(line.code):
            readers.setdefault(name, set()).update(wanted)
    return readers
