"""Sinks scatters to their readers, and separates their base from their source."""

from __future__ import annotations

from collections.abc import Sequence

from derive.program.cse import Line
from derive.program.gradient_predication import Needs
from derive.program.torch_ir import Code, FunctionCall, MethodCall, Name, names_in, occurrences

_ADDING = ("_scatter_added", "_scatter_added_if_any", "_index_added_if_any")


def scatter_parts(code: Code) -> tuple[Code, Code] | None:
    """Return the base and the source of a scatter, else None."""
    match code:
        case MethodCall(target, "scatter_add" | "index_add", (_, _, source)):
            return target, source
        case FunctionCall(name, (target, _, _, source)) if name in _ADDING:
            return target, source
    return None


def with_adding(code: Code, target: Code, source: Code) -> Code:
    """Return the same scatter with another base and source."""
    match code:
        case MethodCall(_, name, (dim, index, _)):
            return MethodCall(target, name, (dim, index, source))
        case FunctionCall(name, (_, dim, index, _)):
            return FunctionCall(name, (target, dim, index, source))
    return code


def sink_scatters(entries: Sequence[tuple[Line, Needs]]) -> list[tuple[Line, Needs]]:
    """Return the lines, each scatter moved to just before its only reader."""
    result = list(entries)
    for line, needs in entries:
        if scatter_parts(line.code) is None:
            continue
        at = result.index((line, needs))
        readers = [n for n, (x, _) in enumerate(result) if line.name in names_in(x.code)]
        once = len(readers) == 1 and occurrences(result[readers[0]][0].code)[Name(line.name)] == 1
        if line.kept or not once or result[readers[0]][1] != needs:
            continue
        between = result[at + 1 : readers[0]]
        if not {x.name for x, _ in between} & {line.name, *names_in(line.code)}:
            result[at : readers[0]] = [*between, (line, needs)]
    return result
