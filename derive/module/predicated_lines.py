"""Print the lines of a backward under their predicates, and those of both orders in one text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial, reduce
from itertools import chain, groupby

from derive.module.pretty_printer import any_of, assigned, indented, statements
from derive.program.cse import Line
from derive.program.gradient_predication import Conditions
from derive.program.merged_bodies import Body, Segment
from derive.program.torch_ir import (
    Code,
    FunctionCall,
    MethodCall,
    Name,
    Subscript,
    literal,
    names_in,
    replaced,
)
from derive.program.torch_ops import torch_op

Condition = tuple[str, ...]
"""The alternatives of a predicate; without any, a line is unconditional."""


@dataclass(frozen=True)
class Item:
    """Statements under one condition, printed for an indentation."""

    condition: Condition
    printed: Callable[[int], Sequence[str]]
    fork: Fork | None = None
    line: Line | None = None
    """The line, if it is one."""


def named_conditions(asked: Conditions, indent: int) -> list[str]:
    """Return the lines that name conditions."""
    return [s for name, parts in asked.names for s in any_of(f"{name} = ", parts, "", indent)]


def items_of(body: Body, asked: Conditions) -> list[Item]:
    """Return the lines of a body with their conditions."""
    return [Item(asked.of[line.needs], partial(assigned, line), line=line) for line in body]


def unpacked(body: Body, beside: Body = ()) -> Body:
    """Return the body with the results of each call named in the statement of the call.

        normed = f(x)                   output, mean, rstd = f(x)
        output = normed[0].to(dtype)    output = output.to(dtype)
        mean = normed[1]
        rstd = normed[2]

    A call whose results are read ``beside`` the body stays as it is.
    """
    for line in body:
        count = torch_op(line.code).results if isinstance(line.code, FunctionCall) else 1
        if count > 1:
            body = _unpacked(body, beside, line, count)
    return body


def _unpacked(body: Body, beside: Body, call: Line, count: int) -> Body:
    parts: list[Code] = [Subscript(Name(call.name), (literal(n),)) for n in range(count)]
    reads = sum(names_in(x.code).count(call.name) for x in (*body, *beside))
    readers = {n: x for x in body for n, part in enumerate(parts) if _is_result(x.code, part)}
    names = {x.name for x in readers.values()}
    if not 1 < len(names) == len(readers) == reads:
        return body
    at = body.index(call)
    for x in readers.values():
        between = body[at + 1 : body.index(x)]
        if any(x.name in (other.name, *names_in(other.code)) for other in between):
            return body
    targets = [readers[n].name if n in readers else "_" for n in range(count)]
    new: dict[Code, Code] = dict(zip(parts, map(Name, targets), strict=True))
    made = [replace(x, code=replaced(x.code, new)) for x in body]
    return tuple(
        replace(x, name=", ".join(targets)) if x.name == call.name else x
        for x in made
        if x.code != Name(x.name)
    )


def _is_result(code: Code, part: Code) -> bool:
    """True if the code is a result of a call, or its cast."""
    return code == part or (isinstance(code, MethodCall) and code.name == "to" and code.obj == part)


def predicated(items: Sequence[Item], indent: int) -> list[str]:
    """Return the statements, those in a row with the same condition under one test."""
    lines: list[str] = []
    for condition, run in groupby(items, lambda item: item.condition):
        group = list(run)
        fork = group[0].fork if len(group) == 1 else None
        if fork is not None and condition and not (fork.first and fork.later):
            lines += fork.one_sided(condition, indent)
            continue
        if condition:
            lines += any_of("if ", condition, ":", indent)
        depth = 4 if condition else 0
        lines += indented(_statements(group, indent + depth), depth)
    return lines


def _statements(items: Sequence[Item], indent: int) -> list[str]:
    """Return the statements of items, those of lines in a row together."""
    made: list[str] = []
    for is_line, group in groupby(items, lambda item: item.line is not None):
        if is_line:
            made += _of_lines(tuple(x.line for x in group if x.line is not None), indent)
        else:
            made += (s for item in group for s in item.printed(indent))
    return made


_of_lines = lru_cache(maxsize=2**10)(statements)
"""The statements of lines: of each run of them, `fewest_lines` asks for many texts."""


@dataclass(frozen=True)
class Fork:
    """What runs in first order alone, and what runs in any other."""

    test: str
    first: Sequence[Item]
    later: Sequence[Item]

    def items(self) -> Iterator[Item]:
        """Yield the fork, under the condition that all its statements have."""
        if self.first or self.later:
            conditions = {x.condition for x in (*self.first, *self.later)}
            common = conditions.pop() if len(conditions) == 1 else ()
            yield Item(common, partial(self._printed, common), self)

    def one_sided(self, condition: Condition, indent: int) -> list[str]:
        """Return the statements of the only side under one test: that of the order and its own."""
        start = f"if {self.test if self.first else f'not {self.test}'} and "
        lines = any_of(start, condition, ":", indent, factor=True)
        own = [_under(x, condition) for x in (*self.first, *self.later)]
        return [*lines, *_block(own, indent)]

    def _printed(self, common: Condition, indent: int) -> list[str]:
        first, later = ([_under(x, common) for x in side] for side in (self.first, self.later))
        if not first:
            return [f"if not {self.test}:", *_block(later, indent)]
        lines = [f"if {self.test}:", *_block(first, indent)]
        conditions = {x.condition for x in later}
        if not later or conditions == {()} or len(conditions) > 1:
            return [*lines, *(("else:", *_block(later, indent)) if later else ())]
        (condition,) = conditions
        own = [_under(x, condition) for x in later]
        return [*lines, *any_of("elif ", condition, ":", indent), *_block(own, indent)]


def _block(items: Sequence[Item], indent: int) -> tuple[str, ...]:
    """Return the statements of a block whose head has that indentation."""
    return indented(predicated(items, indent + 4), 4)


def _under(item: Item, common: Condition) -> Item:
    """Return the item without a condition that is tested around it."""
    return replace(item, condition=(), fork=None) if item.condition == common else item


def merged_items(segments: Sequence[Segment], head: Fork, asked: Conditions) -> Iterator[Item]:
    """Yield what runs after the fork ``head``: shared lines and forks in turn."""
    parts = [(*s.shared, *s.first, *s.later) for s in segments]
    for n, segment in enumerate(segments):
        if segment.shared:
            if not n:
                yield from head.items()
            yield from items_of(segment.shared, asked)
            continue
        beside = tuple(chain.from_iterable((*parts[:n], *parts[n + 1 :])))
        bodies = unpacked(segment.first, beside), unpacked(segment.later, beside)
        first, later = (items_of(body, asked) for body in bodies)
        if not n:
            first, later = [*head.first, *first], [*head.later, *later]
        yield from Fork(head.test, first, later).items()


_MOST_TEXTS = 40
"""The texts that are tried: each is as long as the body, whose segments may be as many."""


def fewest_lines(
    segments: Sequence[Segment], printed: Callable[[Sequence[Segment]], list[str]]
) -> list[str]:
    """Return the shortest text found of these segments.

    A shared segment is joined with the forks beside it as long as this makes the text shorter,
    and few texts were tried.
    """
    best, left = printed(segments), _MOST_TEXTS
    while tries := [_unshared(segments, n) for n, s in enumerate(segments) if s.shared]:
        left -= len(tries)
        if left < 0:
            break
        text, way = min(((printed(way), way) for way in tries), key=lambda found: len(found[0]))
        if len(text) >= len(best):
            break
        best, segments = text, way
    return best


def _unshared(segments: Sequence[Segment], n: int) -> list[Segment]:
    """Return the segments with one that is shared in one fork with its neighbours."""
    first = max(n - 1, 0)
    fork = reduce(Segment.joined, segments[first : n + 2])
    return [*segments[:first], replace(fork, shared=()), *segments[n + 2 :]]
