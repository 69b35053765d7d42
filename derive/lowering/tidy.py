"""Statements made readable: repeated subexpressions named once, long lines taken apart."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from derive.algebra import substitution
from derive.lowering.code import (
    Attribute,
    Binary,
    Code,
    Conditional,
    Dim,
    Function,
    Keyword,
    Literal,
    Method,
    Name,
    Shape,
    Subscript,
    Tuple,
    Unary,
    occurrences,
    subexpressions,
    text,
)
from derive.lowering.folded import folded
from derive.lowering.fused import plain_where_shared
from derive.lowering.lazy import asked_once, is_lazy, lazily, may_fail

__all__ = ["Line", "cut", "names_in", "numbered", "tidy"]

_VIEWS = ("unsqueeze", "squeeze", "expand", "select", "transpose", "permute", "movedim", "dim")
_STEMS = {
    "sum": "total",
    "mean": "average",
    "gather": "picked",
    "index_select": "picked",
    "torch.softmax": "p",
    "torch.log_softmax": "logp",
    "torch.logsumexp": "lse",
    "torch.where": "chosen",
    "torch.arange": "position",
    "rsqrt": "inverse",
    "exp": "e",
    "new_zeros": "zeros",
    "scatter_add": "placed",
    "scatter_reduce": "placed",
    "index_add": "placed",
    "torch.einsum": "product",
    "square": "squared",
    "math.prod": "size",
}


@dataclass(frozen=True)
class Line:
    """name = code. A ``kept`` name is the reader's: it is never inlined."""

    name: str
    code: Code
    kept: bool = True


def names_in(code: Code) -> Iterable[str]:
    """Every Python name that the code reads, once for each time that it does."""
    pending = [code]
    while pending:
        part = pending.pop()
        if isinstance(part, Name):
            yield part.id
        elif isinstance(part, Literal) and ":" in part.text:
            # A slice is written as text.
            yield from re.findall(r"[A-Za-z_]\w*", part.text)
        else:
            pending += reversed(part.parts())


def tidy(lines: Sequence[Line], taken: set[str], width: int) -> list[Line]:
    """The same statements: names that serve once inlined, repeats named, lines cut to width."""
    fresh = set(taken)
    lines = [replace(line, code=folded(line.code)) for line in _read(lines)]
    codes = plain_where_shared([line.code for line in lines])
    lines = [replace(line, code=code) for line, code in zip(lines, codes, strict=True)]
    inlined = [replace(line, code=asked_once(folded(line.code))) for line in _inline(lines, width)]
    result = _renumbered(_named_once(_share(inlined, fresh)), lines, taken)
    # New numbers may make a line too long.
    while (pieces := cut(result, fresh, width)) != result:
        result = _renumbered(_named_once(pieces), lines, taken)
    return result


def _read(lines: Sequence[Line]) -> list[Line]:
    """The lines without engine-made names that nothing reads."""
    result: list[Line] = []
    read: set[str] = set()
    for line in reversed(lines):
        if line.kept or line.name in read:
            result.append(line)
            read.update(names_in(line.code))
    return result[::-1]


def _renumbered(lines: list[Line], given: Sequence[Line], taken: set[str]) -> list[Line]:
    """Names made here are numbered in the order in which they appear."""
    own = {line.name for line in given}
    used = taken | own
    renaming: dict[Code, Code] = {}
    for name in (line.name for line in lines if line.name not in own):
        new = numbered(name.rstrip("0123456789"), used)
        if new != name:
            renaming[Name(name)] = Name(new)

    result = []
    for line in lines:
        target = _in_place(Name(line.name), renaming)
        assert isinstance(target, Name)
        result.append(Line(target.id, _in_place(line.code, renaming), line.kept))
    return result


def _inline(lines: Sequence[Line], width: int) -> list[Line]:
    """Engine-made names that are read once disappear into their reader."""
    result = dict(enumerate(lines))
    # The place of a reader for each time that a name is read.
    readers: dict[str, list[int]] = {}
    for n, line in enumerate(lines):
        for name in names_in(line.code):
            readers.setdefault(name, []).append(n)
    for at, line in enumerate(lines):
        places = readers.get(line.name, ())
        if line.kept or len(places) != 1 or len(text(result[at].code)) > width // 2:
            continue
        inner, n = result.pop(at).code, places[0]
        result[n] = replace(result[n], code=_replaced(result[n].code, Name(line.name), inner))
        for name in set(names_in(inner)):
            readers[name] = [n if place == at else place for place in readers[name]]
    return list(result.values())


def _replaced(code: Code, old: Code, new: Code) -> Code:
    return _in_place(code, {old: new})


def _in_place(code: Code, new: Mapping[Code, Code]) -> Code:
    """The code with what has another form in that, outermost first."""
    return substitution.replace(code, lambda part: new.get(part))


def is_slice(code: Code) -> bool:
    """Whether the code is a range of positions, which stands in brackets only."""
    return isinstance(code, Function) and code.name == "slice"


def _is_cheap(code: Code) -> bool:
    """Whether writing it again costs nothing: names, shapes, views of names, Python numbers."""
    if isinstance(code, Name | Literal | Dim | Shape | Keyword | Tuple | Subscript):
        return True
    if is_slice(code):
        return True
    if isinstance(code, Attribute):
        return code.name not in ("values", "indices") or _is_cheap(code.obj)
    if isinstance(code, Method) and code.name in _VIEWS:
        return _is_cheap(code.obj)
    if isinstance(code, Unary) and code.op == "*":
        return True
    if isinstance(code, Unary | Binary):
        return all(_is_number(part) for part in code.parts())
    return isinstance(code, Function) and code.name.startswith(
        ("math.", "min", "max", "torch.finfo")
    )


def _is_number(code: Code) -> bool:
    if isinstance(code, Literal | Dim | Subscript):
        return True
    if isinstance(code, Unary | Binary):
        return all(_is_number(part) for part in code.parts())
    return False


def _size(code: Code) -> int:
    return 1 + sum(_size(part) for part in code.parts())


class _Repeats:
    """Statements, and what stands in them more than once.

    A statement is known by a number that it keeps when others come before it.
    """

    def __init__(self, lines: Sequence[Line]) -> None:
        self.lines = dict(enumerate(lines))
        self._order = list(self.lines)
        self._count: dict[Code, int] = {}
        self._readers: dict[Code, dict[int, None]] = {}
        self._repeated: dict[int, dict[Code, None]] = {}
        """Size -> what has it, stands more than once and is worth a name."""
        for n, line in self.lines.items():
            self._note(n, Counter(), occurrences(line.code))

    def _note(self, n: int, old: Counter[Code], new: Counter[Code]) -> None:
        """Where ``old`` stood in a statement, ``new`` does."""
        for part in {**old, **new}:
            if new[part] and not old[part]:
                self._readers.setdefault(part, {})[n] = None
            elif old[part] and not new[part]:
                del self._readers[part][n]
            before = self._count.get(part, 0)
            after = self._count[part] = before + new[part] - old[part]
            if (before > 1) != (after > 1) and not _is_cheap(part):
                same = self._repeated.setdefault(_size(part), {})
                if after > 1:
                    same[part] = None
                else:
                    del same[part]

    def largest(self) -> Code | None:
        """The largest of what is repeated, and the first of these."""
        size = max((size for size, same in self._repeated.items() if same), default=None)
        if size is None:
            return None
        place = {n: at for at, n in enumerate(self._order)}
        first = {c: min(place[n] for n in self._readers[c]) for c in self._repeated[size]}
        at = min(first.values())
        line = self.lines[self._order[at]]
        return next(c for c in subexpressions(line.code) if first.get(c) == at)

    def readers(self, code: Code) -> list[int]:
        """The statements that the code stands in, in order."""
        there = self._readers[code]
        return [n for n in self._order if n in there] if len(there) > 1 else list(there)

    def change(self, n: int, code: Code) -> None:
        """Give a statement other code."""
        old = occurrences(self.lines[n].code)
        self._note(n, old, occurrences(code))
        self.lines[n] = replace(self.lines[n], code=code)

    def insert(self, line: Line, before: int) -> int:
        """A new statement."""
        n = len(self.lines)
        self.lines[n] = line
        self._order.insert(self._order.index(before), n)
        self._note(n, Counter(), occurrences(line.code))
        self._bring_forward(n)
        return n

    def _bring_forward(self, n: int) -> None:
        """Put what a statement reads before it: what a later reader asks may be made later."""
        at = self._order.index(n)
        made = {self.lines[before].name for before in self._order[:at]}
        read = set(names_in(self.lines[n].code)) - made
        for later in self._order[at + 1 :]:
            if self.lines[later].name in read:
                self.move(later, n)
                self._bring_forward(later)

    def move(self, n: int, before: int) -> None:
        """Put a statement before another."""
        if n != before:
            self._order.remove(n)
            self._order.insert(self._order.index(before), n)

    def in_order(self) -> list[Line]:
        """The statements."""
        return [self.lines[n] for n in self._order]


def _share(lines: Sequence[Line], taken: set[str]) -> list[Line]:
    """What is computed more than once is computed before its first reader and named."""
    repeats, asked = _Repeats(lines), _asked(lines)
    while (code := repeats.largest()) is not None:
        readers = repeats.readers(code)
        owner = next((n for n in readers if repeats.lines[n].code is code), None)
        if owner is None:
            where = [repeats.lines[n].code for n in readers]
            line = Line(_fresh(code, taken), lazily(where, code, asked), kept=False)
            asked |= _asked([line])
            owner = repeats.insert(line, readers[0])
        else:
            repeats.move(owner, readers[0])
        name = Name(repeats.lines[owner].name)
        for n in readers:
            if n != owner:
                repeats.change(n, _replaced(repeats.lines[n].code, code, name))
    return repeats.in_order()


def _named_once(lines: Sequence[Line]) -> list[Line]:
    """The lines without engine-made names for what has a name."""
    same: dict[Code, Code] = {}
    made: dict[Code, Code] = {}

    result = []
    for line in lines:
        code = _in_place(line.code, same)
        if isinstance(code, Name) and not line.kept:
            same[Name(line.name)] = code
        elif code in made and not line.kept and not _is_number(code):
            same[Name(line.name)] = made[code]
        else:
            made.setdefault(code, Name(line.name))
            result.append(replace(line, code=code))
    return result


def cut(
    lines: Sequence[Line], taken: set[str], width: int, among: Sequence[Line] = ()
) -> list[Line]:
    """Lines longer than width give their largest operands names of their own.

    ``among`` are the lines that these stand among.
    """
    length = cache(lambda code: len(text(code)))
    result: list[Line] = []
    asked = _asked((*among, *lines))
    for line in lines:
        pending = [line]
        while pending:
            current = pending.pop()
            room = width - len(current.name) - 3
            part = _filled(current.code)
            if part is None and length(current.code) > room:
                part = _best_cut(current.code, room, length, asked)
            if part is None:
                result.append(current)
                continue
            name = _fresh(part, taken)
            pending.append(replace(current, code=_replaced(current.code, part, Name(name))))
            pending.append(Line(name, lazily([current.code], part, asked), kept=False))
            asked |= _asked(pending[-1:])
    return result


def _asked(lines: Sequence[Line]) -> set[str]:
    """The names that are None where they are not read."""
    return {line.name for line in lines if is_lazy(line.code)}


def _best_cut(code: Code, room: int, length: Callable[[Code], int], asked: set[str]) -> Code | None:
    """The largest proper part that fits the line; failing that, the largest that does not."""
    kept: tuple[Code, ...] = ()
    if isinstance(code, Conditional) and may_fail(code.then, asked):
        # Alone it would have to ask again.
        kept = (code.then, code.test) if _asks_for_sizes(code.test) else (code.then,)
    parts = [
        c
        for c in subexpressions(code)
        if c is not code
        and c not in kept
        and not isinstance(c, Name | Literal | Keyword | Tuple | Dim | Shape | Attribute)
        and not (isinstance(c, Unary) and c.op == "*")
        and not is_slice(c)
        and length(c) > 12
    ]
    if not parts:
        return None
    fitting = [c for c in parts if length(c) <= room]
    return max(fitting, key=length) if fitting else min(parts, key=length)


def _filled(code: Code) -> Code | None:
    """A part that stands for nothing where there is nothing: a line of its own."""
    own = code.then if isinstance(code, Conditional) else None
    for c in subexpressions(code):
        if c not in (code, own) and isinstance(c, Conditional) and _asks_for_elements(c.test):
            return c
    return None


def _asks_for_sizes(code: Code) -> bool:
    if isinstance(code, Binary) and code.op == "and":
        return _asks_for_sizes(code.left) and _asks_for_sizes(code.right)
    return isinstance(code, Subscript)


def _asks_for_elements(code: Code) -> bool:
    return isinstance(code, Method) and code.name == "numel"


def _fresh(code: Code, taken: set[str]) -> str:
    stem = "part"
    match code:
        case Method(_, name, _) if name in _STEMS:
            stem = _STEMS[name]
        case Method(obj, name, _) if name in _VIEWS:
            return _fresh(obj, taken)
        case Function(name, _) if name in _STEMS:
            stem = _STEMS[name]
        case Binary(op, _, _) if op in ("==", "!=", "<", "<=", ">", ">=", "&", "|"):
            stem = "mask"
        case Unary("~", _):
            stem = "mask"
        case Conditional(test):
            stem = "filled" if _asks_for_elements(test) else "chosen"
    return numbered(stem, taken)


def numbered(stem: str, taken: set[str]) -> str:
    """stem, stem2, stem3, ...: the first that nothing has, which is taken from now on."""
    name, n = stem, 1
    while name in taken:
        n += 1
        name = f"{stem}{n}"
    taken.add(name)
    return name
