"""CSE: repeated subexpressions get a name, and parts of an expression that is too long to read.

What is named sinks into the branches that read it: code that may fail or is expensive runs only
where it is needed, and is None elsewhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain, compress

from derive.algebra import substitution
from derive.program.constant_folding import asked_once, folded
from derive.program.dataflow import live
from derive.program.shape_rules import TensorType
from derive.program.torch_ir import (
    NONE,
    Attribute,
    Binary,
    Code,
    Conditional,
    Dim,
    FunctionCall,
    Keyword,
    Literal,
    MethodCall,
    Name,
    Shape,
    Slice,
    Subscript,
    Tuple,
    Unary,
    joined,
    names_in,
    occurrences,
    operands,
    replaced,
    subexpressions,
    text,
)
from derive.program.torch_ops import torch_op
from derive.program.torch_printer import fits, is_long, is_short

VALUE = "generated_value"
"""The name of a value until it has a better one: `derive.program.value_names`."""


Needs = tuple[str, ...]
"""Inputs in order, such as those whose gradients need a line."""


@dataclass(frozen=True)
class Line:
    """The statement name = code. A ``kept`` name belongs to the user and is never inlined.

    ``type`` is that of the value, declared by the lowering; a pass that may change it drops it.
    """

    name: str
    code: Code
    kept: bool = True
    type: TensorType | None = None
    remark: str = ""
    """A comment on the line."""
    needs: Needs = field(default=(), compare=False)
    """The inputs whose gradients need the line, in a backward once they are predicated."""

    def having(self, code: Code) -> Line:
        """Return the line with this code: itself if it has that already."""
        return self if code is self.code else replace(self, code=code)


def tidy(
    lines: Sequence[Line], taken: set[str], repeatable: Callable[[Code], bool] | None = None
) -> list[Line]:
    """Return equivalent statements: single-use names inlined, repeats and long parts named.

    Code that is ``repeatable`` gets no name for its repetition; by default, this is what costs
    nothing.
    """
    fresh = {*taken, *(line.name for line in lines)}
    used = live(lines, [line.name for line in lines if line.kept])
    lines = [line.having(folded(line.code)) for line in compress(lines, used)]
    lines = _reduced_once(lines)
    inlined = [line.having(asked_once(folded(line.code))) for line in _inline(lines)]
    shared = _share_repeats(inlined, fresh, repeatable or _is_cheap)
    result = renumbered(named_once(shared), lines, taken)
    result = renumbered(named_once(cut(result, fresh)), lines, taken)
    return renumbered(_join_lines(result, lines), lines, taken)


def _join_lines(lines: Sequence[Line], given: Sequence[Line]) -> list[Line]:
    """Return the lines with generated names inlined if one line reads them once and stays short.

    A choice keeps its own line, as its reader may be a choice too.
    """
    own = {line.name for line in given}
    reads = Counter(name for line in lines for name in names_in(line.code))
    result: dict[str | int, Line] = {}
    for n, line in enumerate(lines):
        for name in names_in(line.code):
            if name in result:
                code = replaced(line.code, {Name(name): result[name].code})
                if not is_long(f"{line.name} = ", code):
                    line = line.having(code)
                    del result[name]
        alone = line.name in own or reads[line.name] > 1 or isinstance(line.code, Conditional)
        result[n if alone else line.name] = line
    return list(result.values())


def _reduced_once(lines: Sequence[Line]) -> list[Line]:
    """Return the lines with one reduction for x.sum(d, keepdim=True) and x.sum(d)."""
    parts = set(chain.from_iterable(subexpressions(line.code) for line in lines))
    kept = (part for part in parts if isinstance(part, MethodCall) and torch_op(part).keeps)
    both: dict[Code, Code] = {}
    for whole in kept:
        plain = MethodCall(whole.obj, whole.name, whole.args[:1])
        if whole.args[1:] == (Keyword("keepdim", Literal("True")),) and plain in parts:
            (place,) = plain.args
            both[plain] = MethodCall(whole, "squeeze", (place,))
            both[MethodCall(plain, "unsqueeze", (place,))] = whole
    return [line.having(replaced(line.code, both)) for line in lines]


def renumbered(lines: list[Line], given: Sequence[Line], taken: set[str]) -> list[Line]:
    """Return the lines with generated names numbered in the order of appearance."""
    own = {line.name for line in given}
    used = taken | own
    made = (line.name for line in lines if line.name not in own)
    new = {name: numbered(name.rstrip("0123456789"), used) for name in made}
    names: dict[Code, Code] = {Name(old): Name(own) for old, own in new.items() if old != own}
    if not names:
        return lines
    return [
        replace(line, name=new.get(line.name, line.name), code=replaced(line.code, names))
        for line in lines
    ]


def _inline(lines: Sequence[Line]) -> list[Line]:
    """Return the lines with generated names inlined that are read once."""
    result = dict(enumerate(lines))
    # The line of the reader, for each read of a name.
    readers: dict[str, list[int]] = {}
    for n, line in enumerate(lines):
        for name in names_in(line.code):
            readers.setdefault(name, []).append(n)
    for at, line in enumerate(lines):
        places = readers.get(line.name, ())
        if line.kept or len(places) != 1 or not is_short(result[at].code):
            continue
        inner, n = result.pop(at).code, places[0]
        result[n] = result[n].having(replaced(result[n].code, {Name(line.name): inner}))
        for name in set(names_in(inner)):
            readers[name] = [n if place == at else place for place in readers[name]]
    return list(result.values())


def _is_cheap(code: Code) -> bool:
    """True if a repetition is free: names, shapes, views of names, Python numbers."""
    if isinstance(code, Name | Literal | Dim | Shape | Keyword | Tuple | Subscript | Slice):
        return True
    if isinstance(code, Attribute):
        return code.name not in ("values", "indices") or _is_cheap(code.obj)
    if isinstance(code, MethodCall) and torch_op(code).light:
        return _is_cheap(code.obj)
    if isinstance(code, Unary) and code.op in ("*", "not"):
        return True
    if isinstance(code, Unary | Binary):
        return all(is_size(part) for part in code.parts())
    return isinstance(code, FunctionCall) and code.name.startswith(NUMBER_CALLS)


NUMBER_CALLS = "math.", "rt.ieee_", "rt.nonnegative", "min", "max", "len", "torch.finfo"
"""How the names of calls begin that return numbers of Python."""


def is_brief(code: Code) -> bool:
    """True if a repetition reads better than a name: few characters, and no pass over rows."""
    return _is_cheap(code) or (len(text(code)) <= _SHORT and not _reduces_or_contracts(code))


_SHORT = 24
"""Characters."""


def is_size(code: Code) -> bool:
    """True for arithmetic of sizes and written numbers, which is no tensor."""
    if isinstance(code, Literal | Dim | Subscript):
        return True
    if isinstance(code, Unary | Binary):
        return all(is_size(part) for part in code.parts())
    return False


def _code_size(code: Code) -> int:
    return 1 + sum(_code_size(part) for part in code.parts())


class _Repeats:
    """Statements and their repeated subexpressions.

    A statement keeps its number when others are inserted before it.
    """

    def __init__(self, lines: Sequence[Line], repeatable: Callable[[Code], bool]) -> None:
        self.lines = dict(enumerate(lines))
        self._repeatable = repeatable
        self._order = list(self.lines)
        self._count: dict[Code, int] = {}
        self._readers: dict[Code, dict[int, None]] = {}
        self._repeated: dict[int, dict[Code, None]] = {}
        """Size -> the repeated subexpressions of this size that are worth a name."""
        for n, line in self.lines.items():
            self._note(n, Counter(), occurrences(line.code))

    def _note(self, n: int, old: Counter[Code], new: Counter[Code]) -> None:
        """Update the counts of a statement from ``old`` to ``new`` occurrences."""
        for part in {**old, **new}:
            if new[part] and not old[part]:
                self._readers.setdefault(part, {})[n] = None
            elif old[part] and not new[part]:
                del self._readers[part][n]
            before = self._count.get(part, 0)
            after = self._count[part] = before + new[part] - old[part]
            if (before > 1) != (after > 1) and not self._repeatable(part):
                same = self._repeated.setdefault(_code_size(part), {})
                if after > 1:
                    same[part] = None
                else:
                    del same[part]

    def largest(self) -> Code | None:
        """Return the first of the largest repeated subexpressions, or None."""
        size = max((size for size, same in self._repeated.items() if same), default=None)
        if size is None:
            return None
        place = {n: at for at, n in enumerate(self._order)}
        first = {c: min(place[n] for n in self._readers[c]) for c in self._repeated[size]}
        at = min(first.values())
        line = self.lines[self._order[at]]
        return next(c for c in subexpressions(line.code) if first.get(c) == at)

    def readers(self, code: Code) -> list[int]:
        """Return the statements that contain the code, in order."""
        there = self._readers[code]
        return [n for n in self._order if n in there] if len(there) > 1 else list(there)

    def change(self, n: int, code: Code) -> None:
        """Replace the code of a statement."""
        old = occurrences(self.lines[n].code)
        self._note(n, old, occurrences(code))
        self.lines[n] = replace(self.lines[n], code=code)

    def insert(self, line: Line, before: int) -> int:
        """Insert a new statement before another and return its number."""
        n = len(self.lines)
        self.lines[n] = line
        self._order.insert(self._order.index(before), n)
        self._note(n, Counter(), occurrences(line.code))
        self._bring_forward(n)
        return n

    def _bring_forward(self, n: int) -> None:
        """Move definitions that a statement reads before it, if they come later."""
        at = self._order.index(n)
        made = {self.lines[before].name for before in self._order[:at]}
        read = set(names_in(self.lines[n].code)) - made
        for later in self._order[at + 1 :]:
            if self.lines[later].name in read:
                self.move(later, n)
                self._bring_forward(later)

    def move(self, n: int, before: int) -> None:
        """Move a statement before another."""
        if n != before:
            self._order.remove(n)
            self._order.insert(self._order.index(before), n)

    def in_order(self) -> list[Line]:
        """Return the statements in order."""
        return [self.lines[n] for n in self._order]


def _share_repeats(
    lines: Sequence[Line], taken: set[str], repeatable: Callable[[Code], bool]
) -> list[Line]:
    """Return the lines with each repeated subexpression named before its first reader.

    A line that assigns to a name that it reads stays behind the readers of the old value.
    """
    repeats, asked = _Repeats(lines, repeatable), _lazy_names(lines)
    while (code := repeats.largest()) is not None:
        readers = repeats.readers(code)
        found = ((n, repeats.lines[n]) for n in readers)
        owner = next((n for n, x in found if x.code is code and x.name not in names_in(code)), None)
        if owner is None:
            where = [repeats.lines[n].code for n in readers]
            line = Line(numbered(VALUE, taken), under_own_tests(where, code, asked), kept=False)
            asked |= _lazy_names([line])
            owner = repeats.insert(line, readers[0])
        else:
            repeats.move(owner, readers[0])
        name = Name(repeats.lines[owner].name)
        for n in readers:
            if n != owner:
                repeats.change(n, replaced(repeats.lines[n].code, {code: name}))
    return repeats.in_order()


def named_once(lines: Sequence[Line]) -> list[Line]:
    """Return the lines without generated names for values that have a name.

    A name that is assigned again, as an input by its view, has another value from there on.
    """
    left = Counter(line.name for line in lines)
    same: dict[Code, Code] = {}
    made: dict[Code, Code] = {}
    read: set[str] = set()
    result = []
    for line in lines:
        code = replaced(line.code, same)
        read.update(names_in(code))
        left[line.name] -= 1
        if isinstance(code, Name) and not (line.kept or left[code.id]):
            same[Name(line.name)] = code
            continue
        if code in made and not line.kept:
            same[Name(line.name)] = made[code]
            continue
        if line.name in read:
            made = {c: name for c, name in made.items() if line.name not in names_in(c)}
        if not left[line.name] and line.name not in names_in(code):
            made.setdefault(code, Name(line.name))
        result.append(line.having(code))
    return result


def cut(lines: Sequence[Line], taken: set[str], among: Sequence[Line] = ()) -> list[Line]:
    """Return the lines with the largest operands of long expressions moved to lines of their own.

    ``among`` are the surrounding lines.
    """
    length = cache(lambda code: len(text(code)))
    result: list[Line] = []
    asked = _lazy_names((*among, *lines))
    for line in lines:
        pending = [line]
        while pending:
            current = pending.pop()
            whole = f"{current.name} = ", current.code
            part = _best_cut(current.code, length, asked) if is_long(*whole) else None
            if part is None:
                result.append(current)
                continue
            name = numbered(VALUE, taken)
            pending.append(current.having(replaced(current.code, {part: Name(name)})))
            pending.append(Line(name, under_own_tests([current.code], part, asked), kept=False))
            asked |= _lazy_names(pending[-1:])
    return result


def _lazy_names(lines: Sequence[Line]) -> set[str]:
    """Return the names that are None unless they are needed."""
    return {line.name for line in lines if is_lazy(line.code)}


def _best_cut(code: Code, length: Callable[[Code], int], asked: set[str]) -> Code | None:
    """Return the largest proper part that fits a line, else the shortest that does not.

    An operand of a chain of one operator is a part, but not the first few operands together.
    """
    kept = set[Code]()
    for part in subexpressions(code):
        if isinstance(part, Conditional) and is_put_off(part.then, asked):
            # On a line of its own it would repeat the test.
            kept |= {part.then, part.test} if _asks_for_sizes(part.test) else {part.then}
    parts = [
        c
        for c in _whole_parts(code)
        if c is not code
        and c not in kept
        and not isinstance(c, _UNNAMED)
        and not (isinstance(c, Unary) and c.op == "*")
        and length(c) > _SMALL
    ]
    if not parts:
        return None
    fitting = [c for c in parts if fits("part = ", c)]
    return max(fitting, key=length) if fitting else min(parts, key=length)


_SMALL = 29
"""Columns of code that leaves a statement no shorter if it has a name."""

_UNNAMED = Name, Literal, Keyword, Tuple, Dim, Shape, Attribute, Subscript, Slice
"""The code that gets no name for the length of a line."""


def _whole_parts(code: Code) -> Iterator[Code]:
    """Yield the code and its parts, without the left operands that continue a chain."""
    met: set[Code] = set()
    pending = [code]
    while pending:
        part = pending.pop()
        if part not in met:
            met.add(part)
            yield part
            chain = operands(part, part.op) if isinstance(part, Binary) else part.parts()
            pending += reversed([c for c in chain if not isinstance(part, Dim | Shape)])


def _asks_for_sizes(code: Code) -> bool:
    if isinstance(code, Binary) and code.op == "and":
        return _asks_for_sizes(code.left) and _asks_for_sizes(code.right)
    return isinstance(code, Subscript)


def numbered(stem: str, taken: set[str]) -> str:
    """Return stem, stem2, stem3, ...: the first name that is free; it is reserved from then on."""
    name = substitution.fresh_numbered(stem, taken)
    taken.add(name)
    return name


# -------------------------------------------------------------------- sinking into branches


def is_lazy(code: Code) -> bool:
    """True if the code is None where it is not needed."""
    return isinstance(code, Conditional) and code.other is NONE


def under_own_tests(wholes: Sequence[Code], part: Code, asked: set[str]) -> Code:
    """Return the part as code of its own, under the tests that guarded it if it is put off.

    ``asked`` are the names of such parts.
    """
    if not is_put_off(part, asked) and not any(_stands_in_for(part, whole) for whole in wholes):
        return part
    every = [path for whole in wholes for path in _guarding_tests(whole, part, ())]
    # One order for equal sets of tests.
    paths = list({frozenset(path): tuple(dict.fromkeys(path)) for path in reversed(every)}.values())
    least = [p for p in reversed(paths) if not any(set(other) < set(p) for other in paths)]
    if () in least:
        return part
    return Conditional(joined("or", [joined("and", path) for path in least]), part, NONE)


def _guarding_tests(code: Code, part: Code, path: tuple[Code, ...]) -> Iterator[tuple[Code, ...]]:
    """Yield the tests that guard each occurrence of the part in the code."""
    if code is part:
        yield path
    elif isinstance(code, Conditional):
        yield from _guarding_tests(code.test, part, path)
        yield from _guarding_tests(code.then, part, (*path, *operands(code.test, "and")))
        yield from _guarding_tests(code.other, part, (*path, Unary("not", code.test)))
    else:
        for inner in code.parts():
            yield from _guarding_tests(inner, part, path)


def may_fail(code: Code, asked: set[str]) -> bool:
    """True if the code may raise an error: a position or a number out of range."""
    return _is_limited(code) or any(
        torch_op(c).at_positions or (isinstance(c, Name) and c.id in asked)
        for c in subexpressions(code)
    )


def is_put_off(code: Code, asked: set[str]) -> bool:
    """True if the code should run only where it is needed."""
    return may_fail(code, asked) or _reduces_or_contracts(code)


def _reduces_or_contracts(code: Code) -> bool:
    """True if the code has a reduction or a contraction, which costs a pass over its operands."""
    ops = ((c, torch_op(c)) for c in subexpressions(code))
    return any(op.keeps or op.contracts or (isinstance(c, Binary) and c.op == "@") for c, op in ops)


def _is_limited(code: Code) -> bool:
    return any(torch_op(c).limited for c in subexpressions(code))


def _stands_in_for(part: Code, whole: Code) -> bool:
    """True if the part is the fallback for numbers that a cheaper kernel does not support."""
    return any(
        isinstance(c, Conditional) and _is_limited(c.then) and part in subexpressions(c.other)
        for c in subexpressions(whole)
    )
