"""Output masks: multi-result calls compute only the results that are needed.

part = _layer_normed_gradients(G, x, shape, mu, rstd, weight, ctx.needs_input_grad[:3])
grad_x = part[0]
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce

from derive.program.cse import Line
from derive.program.gradient_predication import Needs
from derive.program.torch_ir import (
    Attribute,
    Binary,
    Code,
    FunctionCall,
    Literal,
    Name,
    Slice,
    Subscript,
    Tuple,
    literal,
    replaced,
    subexpressions,
)

_WANTED = Literal("wanted")
_MOST = 3
"""A result that more gradients than this depend on is always computed."""
_NEEDS = Attribute(Name("ctx"), "needs_input_grad")


def wanted(results: int) -> Code:
    """Return a placeholder for the output mask of a call with so many results."""
    return Tuple((_WANTED,) * results)


def fill_output_masks(
    lines: Sequence[tuple[Line, Needs]], places: Mapping[str, int]
) -> list[tuple[Line, Needs]]:
    """Return the lines with the output mask of each such call filled in."""
    made = []
    for line, needs in lines:
        new: dict[Code, Code] = {}
        for call in subexpressions(line.code):
            if isinstance(call, FunctionCall) and any(map(_is_open, call.args)):
                own = [call, Name(line.name)] if line.code is call else [call]
                told = _filled_masks(call, list(_results_read(own, lines)), needs, places)
                new[call] = FunctionCall(call.name, told)
        made.append((replace(line, code=replaced(line.code, new)) if new else line, needs))
    return made


def _is_open(argument: Code) -> bool:
    return isinstance(argument, Tuple) and _WANTED in argument.items


def _results_read(
    wholes: Sequence[Code], lines: Iterable[tuple[Line, Needs]]
) -> Iterator[tuple[Code, Needs]]:
    """Yield the position of each result that is read, with the gradients that need it."""
    for line, needs in lines:
        for part in subexpressions(line.code):
            if isinstance(part, Subscript) and part.obj in wholes:
                yield part.items[0], needs


def _filled_masks(
    call: FunctionCall,
    read: Sequence[tuple[Code, Needs]],
    needs: Needs,
    places: Mapping[str, int],
) -> tuple[Code, ...]:
    def which(n: int) -> Needs:
        every = {tensor for place, own in read if place is literal(n) for tensor in own}
        return tuple(t for t in needs if t in every)

    def items(argument: Tuple) -> Code:
        found = [which(n) for n in range(len(argument.items))]
        at = [places[own[0]] if len(own) == 1 else -1 for own in found]
        if len(needs) > 1 and at == list(range(at[0], at[0] + len(at))) and at[0] >= 0:
            return Subscript(
                _NEEDS, (Slice(literal(at[0]) if at[0] else None, literal(at[-1] + 1)),)
            )
        return Tuple(tuple(_any(own, needs, places) for own in found))

    return tuple(items(a) if isinstance(a, Tuple) and _is_open(a) else a for a in call.args)


def _any(own: Needs, needs: Needs, places: Mapping[str, int]) -> Code:
    """Return the code of the test that one of these gradients is needed."""
    if not own or own == needs or len(own) > _MOST:
        return Literal("True" if own else "False")
    each: list[Code] = [Subscript(_NEEDS, (literal(places[tensor]),)) for tensor in own]
    return reduce(lambda a, b: Binary("or", a, b), each)
