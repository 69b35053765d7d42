"""Gradient predication: the order of backward lines, and the condition of each.

A line is needed if a wanted gradient depends on it. If many gradients do, conditions get names,
each defined by those of the lines that read the line:

    needs_b = needs[1] or needs[2]
    needs_a = needs_b or needs[0]

A call with several results has a mask of those that are needed:

    grad_x, grad_w, grad_b = rt.native_layer_norm_backward(
        G, x, shape, mu, rstd, weight, ctx.needs_input_grad[:3]
    )
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from operator import or_

from derive.program.cse import VALUE, Line, Needs, numbered
from derive.program.dataflow import Backward
from derive.program.torch_ir import (
    Attribute,
    Code,
    Conditional,
    FunctionCall,
    Literal,
    MethodCall,
    Name,
    Slice,
    Subscript,
    Tuple,
    joined,
    literal,
    names_in,
    occurrences,
    replaced,
    subexpressions,
)

_MOST = 3
"""If a condition has so many alternatives, the needs get a name, and if it has more, conditions do;
a mask has none."""
_NEEDS = Attribute(Name("ctx"), "needs_input_grad")


def with_needs(lines: Sequence[Line], gradients: Mapping[str, str]) -> list[Line]:
    """Return the lines with the inputs whose gradients use each; ``gradients``: input -> name."""
    own = {name: 1 << n for n, name in enumerate(gradients.values())}
    result = [bits or 0 for bits in Backward(own, or_).run(lines)]
    members = {
        bits: tuple(tensor for n, tensor in enumerate(gradients) if bits >> n & 1)
        for bits in set(result)
    }
    return [replace(x, needs=members[bits]) for x, bits in zip(lines, result, strict=True)]


# -------------------------------------------------------------------- order


def ordered(lines: Sequence[Line]) -> list[Line]:
    """Return the lines grouped by the gradients that need them, the most shared first.

    A line stays after every earlier line that defines a name it reads, or writes the same name.
    """
    followers, waiting = _dependencies(lines)
    ready: dict[Needs, list[int]] = {line.needs: [] for line in lines}
    for n, count in enumerate(waiting):
        if not count:
            heappush(ready[lines[n].needs], n)
    result: list[Line] = []
    current: Needs = ()
    while len(result) < len(lines):
        if not ready.get(current):
            current = min(filter(ready.get, ready), key=lambda own: (-len(own), ready[own][0]))
        n = heappop(ready[current])
        result.append(lines[n])
        for follower in followers[n]:
            waiting[follower] -= 1
            if not waiting[follower]:
                heappush(ready[lines[follower].needs], follower)
    return result


def _dependencies(lines: Sequence[Line]) -> tuple[list[list[int]], list[int]]:
    """Return for each line its followers, and the number of its predecessors."""
    followers: list[list[int]] = [[] for _ in lines]
    waiting = []
    writer: dict[str, int] = {}
    readers: dict[str, list[int]] = {}
    for n, line in enumerate(lines):
        read = dict.fromkeys(names_in(line.code))
        before = {writer[name] for name in (*read, line.name) if name in writer}
        before.update(readers.pop(line.name, ()))
        for m in before:
            followers[m].append(n)
        waiting.append(len(before))
        writer[line.name] = n
        for name in read:
            readers.setdefault(name, []).append(n)
    return followers, waiting


# -------------------------------------------------------------------- conditions


@dataclass(frozen=True)
class Conditions:
    """The condition of each line: a disjunction of alternatives.

    ``names`` are defined first, as disjunctions too. ``of`` maps the inputs whose gradients need a
    line to its alternatives; without alternatives the line is unconditional.
    """

    names: tuple[tuple[str, tuple[str, ...]], ...]
    of: Mapping[Needs, tuple[str, ...]]


def conditions(
    lines: Sequence[Line], gradients: Mapping[str, str], places: Mapping[str, int], taken: set[str]
) -> Conditions:
    """Return the conditions of lines.

    ``places`` has the position of each input among the arguments, ``taken`` the names in use.
    """
    every = {line.needs for line in lines}
    partial = [len(needs) for needs in every if len(needs) < len(gradients)]
    asked = "ctx.needs_input_grad"
    names: list[tuple[str, tuple[str, ...]]] = []
    if max(partial, default=0) >= _MOST:
        taken = set(taken)
        names = [(numbered("needs", taken), (asked,))]
        asked = names[0][0]
    if max(partial, default=0) <= _MOST:
        texts = {tensor: f"{asked}[{places[tensor]}]" for tensor in gradients}
        some = {own: own if len(own) < len(gradients) else () for own in every}
        return Conditions(
            tuple(names), {n: tuple(texts[t] for t in own) for n, own in some.items()}
        )
    bit = {tensor: 1 << n for n, tensor in enumerate(gradients)}
    known = {bit[tensor]: f"{asked}[{places[tensor]}]" for tensor in gradients}
    readers = {name: {bit[tensor]} for tensor, name in gradients.items()}
    of: dict[Needs, tuple[str, ...]] = {}
    for line in reversed(lines):
        mine = sum(bit[tensor] for tensor in line.needs)
        parts = readers.pop(line.name, set())
        if mine not in known and len(line.needs) < len(gradients):
            # The last line with these needs: the lines that read it have fewer.
            known[mine] = numbered(f"needs_{line.name}", taken)
            names.append((known[mine], _covering(mine, parts, known)))
        of[line.needs] = (known[mine],) if mine in known else ()
        for name in names_in(line.code):
            readers.setdefault(name, set()).add(mine)
    return Conditions(tuple(names), of)


def _covering(whole: int, parts: Iterable[int], known: Mapping[int, str]) -> tuple[str, ...]:
    """Return names of sets whose union is the whole: these parts first, then single bits."""
    parts = [part for part in parts if part in known and not part & ~whole]
    single = [1 << n for n in range(whole.bit_length()) if whole >> n & 1]
    covered = 0
    chosen = []
    for part in (*sorted(parts, key=lambda part: (-part.bit_count(), part)), *single):
        if part & ~covered:
            covered |= part
            chosen.append(known[part])
    return tuple(chosen)


# -------------------------------------------------------------------- softmaxes


def softmaxes_shared(lines: Sequence[Line], places: Mapping[str, int]) -> list[Line]:
    """Return the lines with each softmax computed from an available log_softmax.

    A backward may compute softmax for some gradients and log_softmax for others. If the latter is
    needed at all, softmax is its exponential: one pass instead of a second reduction.
    """
    result = list(lines)
    taken = {name for line in lines for name in (line.name, *names_in(line.code))}
    for line in lines:
        match line.code:
            case FunctionCall("torch.log_softmax", args):
                softmax = FunctionCall("torch.softmax", args)
            case _:
                continue
        readers = [n for n, x in enumerate(result) if softmax in subexpressions(x.code)]
        if readers:
            every = {tensor for n in readers for tensor in result[n].needs}
            own = tuple(sorted(every, key=places.__getitem__))
            first = _brought_before(result, line, readers[0])
            made: Code = MethodCall(Name(line.name), "exp")
            alone = sum(occurrences(x.code)[softmax] for x in result) == 1
            if not set(own) <= set(line.needs):
                test = any_wanted(line.needs, places)
                made, alone = Conditional(test, made, softmax), False
            reader = result[first]
            if alone or reader.code is softmax:
                code = replaced(reader.code, {softmax: made})
                result[first] = replace(reader, code=code, needs=own)
                continue
            p = Name(numbered(VALUE, taken))
            result = [x.having(replaced(x.code, {softmax: p})) for x in result]
            result.insert(first, Line(p.id, made, kept=False, needs=own))
    return result


def _brought_before(lines: list[Line], line: Line, reader: int) -> int:
    """Move a line before a reader and the lines grouped with it; return the reader's position."""
    read = set(names_in(line.code))
    at, own = reader, lines[reader].needs
    while at and lines[at - 1].needs == own and lines[at - 1].name not in read:
        at -= 1
    before = lines.index(line)
    if at < before:
        lines.insert(at, lines.pop(before))
    return reader + (at < before and reader < before)


def any_wanted(needs: Needs, places: Mapping[str, int]) -> Code:
    """Return the code of the test that one of these gradients is needed."""
    return joined("or", [Subscript(_NEEDS, (literal(places[tensor]),)) for tensor in needs])


# -------------------------------------------------------------------- several results

_WANTED = Literal("wanted")


def wanted(results: int) -> Code:
    """Return a placeholder for the output mask of a call with so many results."""
    return Tuple((_WANTED,) * results)


def fill_output_masks(lines: Sequence[Line], places: Mapping[str, int]) -> list[Line]:
    """Return the lines with the output mask of each such call filled in."""
    made = []
    for line in lines:
        new: dict[Code, Code] = {}
        for call in subexpressions(line.code):
            if isinstance(call, FunctionCall) and any(map(_is_open, call.args)):
                own = [call, Name(line.name)] if line.code is call else [call]
                told = _filled_masks(call, list(_results_read(own, lines)), line.needs, places)
                new[call] = FunctionCall(call.name, told)
        made.append(line.having(replaced(line.code, new)) if new else line)
    return made


def _is_open(argument: Code) -> bool:
    return isinstance(argument, Tuple) and _WANTED in argument.items


def _results_read(wholes: Sequence[Code], lines: Iterable[Line]) -> Iterator[tuple[Code, Needs]]:
    """Yield the position of each result that is read, with the gradients that need it."""
    for line in lines:
        for part in subexpressions(line.code):
            if isinstance(part, Subscript) and part.obj in wholes:
                yield part.items[0], line.needs


def _filled_masks(
    call: FunctionCall, read: Sequence[tuple[Code, Needs]], needs: Needs, places: Mapping[str, int]
) -> tuple[Code, ...]:
    def which(n: int) -> Needs:
        every = {tensor for place, own in read if place is literal(n) for tensor in own}
        return tuple(t for t in needs if t in every)

    def asks(own: Needs) -> Code:
        if not own or own == needs or len(own) > _MOST:
            return Literal("True" if own else "False")
        return any_wanted(own, places)

    def items(argument: Tuple) -> Code:
        found = [which(n) for n in range(len(argument.items))]
        at = [places[own[0]] if len(own) == 1 else -1 for own in found]
        if len(needs) > 1 and at == list(range(at[0], at[0] + len(at))) and at[0] >= 0:
            wanted = Slice(literal(at[0]) if at[0] else None, literal(at[-1] + 1))
            return Subscript(_NEEDS, (wanted,))
        return Tuple(tuple(asks(own) for own in found))

    return tuple(items(a) if isinstance(a, Tuple) and _is_open(a) else a for a in call.args)
