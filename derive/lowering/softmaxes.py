"""Softmax and log_softmax of the same tensor: one is made of the other where both are wanted.

A backward computes softmax for some gradients and log_softmax for others. Where the latter is
wanted at all, softmax is its exponential, one pass instead of a second reduction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from derive.lowering.code import Code, Conditional, Function, Literal, Method, Name
from derive.lowering.needs import Needs
from derive.lowering.tidy import Line, names_in

__all__ = ["softmaxes_shared"]


def softmaxes_shared(
    lines: Sequence[Line], needs: Sequence[Needs], places: Mapping[str, int]
) -> list[tuple[Line, Needs]]:
    """The lines, given with what needs them, each softmax made of a log_softmax if there is one.

    ``places`` has the place of each input among the arguments.
    """
    result = list(zip(lines, needs, strict=True))
    taken = {name for line in lines for name in (line.name, *names_in(line.code))}
    for line, wanted in list(result):
        match line.code:
            case Function("torch.log_softmax", args):
                softmax = Function("torch.softmax", args)
            case _:
                continue
        readers = [(n, own) for n, (x, own) in enumerate(result) if _holds(x.code, softmax)]
        if not readers:
            continue
        first = readers[0][0]
        every = {tensor for _, needed in readers for tensor in needed}
        own = tuple(sorted(every, key=places.__getitem__))
        at = _start(result, first, line)
        logarithm = result.index((line, wanted))
        if at < logarithm:
            result.insert(at, result.pop(logarithm))
            first += logarithm > first
        made: Code = Method(Name(line.name), "exp")
        if not set(own) <= set(wanted):
            test = Name(_unused(f"with_{line.name}", taken))
            asked = " or ".join(f"ctx.needs_input_grad[{places[tensor]}]" for tensor in wanted)
            result.insert(first, (Line(test.id, Literal(asked)), own))
            first += 1
            made = Conditional(test, made, softmax)
        reader = result[first][0]
        if reader.code is softmax:
            result[first] = (Line(reader.name, made, reader.kept), own)
            continue
        name = _unused("p", taken)
        result = [(_reading(x, softmax, name), needed) for x, needed in result]
        result.insert(first, (Line(name, made, kept=False), own))
    return result


def _start(lines: Sequence[tuple[Line, Needs]], n: int, moved: Line) -> int:
    """Where the lines with the needs of line n start, or what the moved one reads has been made."""
    read = set(names_in(moved.code))
    own = lines[n][1]
    while n and lines[n - 1][1] == own and lines[n - 1][0].name not in read:
        n -= 1
    return n


def _reading(line: Line, softmax: Code, name: str) -> Line:
    return Line(line.name, _with(line.code, softmax, Name(name)), line.kept)


def _unused(stem: str, taken: set[str]) -> str:
    name, n = stem, 1
    while name in taken:
        n += 1
        name = f"{stem}{n}"
    taken.add(name)
    return name


def _holds(code: Code, part: Code) -> bool:
    return code is part or any(_holds(p, part) for p in code.parts())


def _with(code: Code, old: Code, new: Code) -> Code:
    if code is old:
        return new
    return code.map(lambda part: _with(part, old, new))  # type: ignore[no-any-return]
