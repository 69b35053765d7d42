"""Statements made readable: repeated subexpressions named once, long lines taken apart."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

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
    text,
)

__all__ = ["Line", "cut", "names_in", "tidy"]

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
    "index_add": "placed",
    "torch.einsum": "product",
    "square": "squared",
}


@dataclass(frozen=True)
class Line:
    """name = code. A ``kept`` name is the reader's: it is never inlined."""

    name: str
    code: Code
    kept: bool = True


def names_in(code: Code) -> Iterable[str]:
    """Every Python name that the code reads."""
    if isinstance(code, Name):
        yield code.id
    if isinstance(code, Literal) and ":" in code.text:
        # A slice is written as text.
        yield from re.findall(r"[A-Za-z_]\w*", code.text)
    for part in code.parts():
        yield from names_in(part)


def tidy(lines: Sequence[Line], taken: set[str], width: int) -> list[Line]:
    """The same statements: names that serve once inlined, repeats named, lines cut to width."""
    fresh = set(taken)
    inlined = _inline(lines, width)
    shared = _share(inlined, fresh)
    return _renumbered(cut(shared, fresh, width), lines)


def _renumbered(lines: list[Line], given: Sequence[Line]) -> list[Line]:
    """Names made here are numbered in the order in which they appear."""
    own = {line.name for line in given}
    made = [line.name for line in lines if line.name not in own]
    numbers: dict[str, list[str]] = {}
    for name in sorted(made, key=lambda n: (len(n), n)):
        numbers.setdefault(name.rstrip("0123456789"), []).append(name)
    renaming: dict[Code, Code] = {}
    for name in made:
        new = numbers[name.rstrip("0123456789")].pop(0)
        if new != name:
            renaming[Name(name)] = Name(new)

    def renamed(code: Code) -> Code:
        if code in renaming:
            return renaming[code]
        return code.map(renamed)  # type: ignore[no-any-return]

    result = []
    for line in lines:
        target = renamed(Name(line.name))
        assert isinstance(target, Name)
        result.append(Line(target.id, renamed(line.code), line.kept))
    return result


def _inline(lines: Sequence[Line], width: int) -> list[Line]:
    """Engine-made names that are read once disappear into their reader."""
    result = list(lines)
    for line in [x for x in lines if not x.kept]:
        readers = [
            (n, sum(1 for name in names_in(x.code) if name == line.name))
            for n, x in enumerate(result)
        ]
        total = sum(count for _, count in readers)
        current = next(x for x in result if x.name == line.name)
        if total != 1 or len(text(current.code)) > width // 2:
            continue
        n = next(n for n, count in readers if count)
        result[n] = replace(
            result[n], code=_replaced(result[n].code, Name(line.name), current.code)
        )
        result = [x for x in result if x.name != line.name]
    return result


def _replaced(code: Code, old: Code, new: Code) -> Code:
    if code is old:
        return new
    return code.map(lambda part: _replaced(part, old, new))  # type: ignore[no-any-return]


def _is_cheap(code: Code) -> bool:
    """Whether writing it again costs nothing: names, shapes, views of names, Python numbers."""
    if isinstance(code, Name | Literal | Dim | Shape | Keyword | Tuple | Subscript):
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


def _subexpressions(code: Code) -> Iterable[Code]:
    yield code
    if isinstance(code, Dim | Shape):
        return
    for part in code.parts():
        yield from _subexpressions(part)


def _share(lines: list[Line], taken: set[str]) -> list[Line]:
    """What is computed more than once is computed before its first reader and named."""
    while True:
        counts: Counter[Code] = Counter()
        for line in lines:
            counts.update(_subexpressions(line.code))
        repeated = [c for c, n in counts.items() if n > 1 and not _is_cheap(c)]
        if not repeated:
            return lines
        code = max(repeated, key=_size)
        owner = next((x for x in lines if x.code is code), None)
        if owner is not None:
            name, at = owner.name, lines.index(owner)
            first = next(n for n, x in enumerate(lines) if code in set(_subexpressions(x.code)))
            if first < at:
                lines = [*lines[:first], owner, *lines[first:at], *lines[at + 1 :]]
            lines = [
                x if x is owner else replace(x, code=_replaced(x.code, code, Name(name)))
                for x in lines
            ]
            continue
        name = _fresh(code, taken)
        first = next(n for n, x in enumerate(lines) if code in set(_subexpressions(x.code)))
        lines = [replace(x, code=_replaced(x.code, code, Name(name))) for x in lines]
        lines.insert(first, Line(name, code))


def cut(lines: Sequence[Line], taken: set[str], width: int) -> list[Line]:
    """Lines longer than width give their largest operands names of their own."""
    result: list[Line] = []
    for line in lines:
        pending = [line]
        while pending:
            current = pending.pop()
            room = width - len(current.name) - 3
            if len(text(current.code)) <= room:
                result.append(current)
                continue
            part = _best_cut(current.code, room)
            if part is None:
                result.append(current)
                continue
            name = _fresh(part, taken)
            pending.append(replace(current, code=_replaced(current.code, part, Name(name))))
            pending.append(Line(name, part))
    return result


def _best_cut(code: Code, room: int) -> Code | None:
    """The largest proper part that fits the line; failing that, the largest that does not."""
    parts = [
        c
        for c in _subexpressions(code)
        if c is not code
        and not isinstance(c, Name | Literal | Keyword | Tuple | Dim | Shape | Attribute)
        and not (isinstance(c, Unary) and c.op == "*")
        and len(text(c)) > 12
    ]
    if not parts:
        return None
    fitting = [c for c in parts if len(text(c)) <= room]
    if fitting:
        return max(fitting, key=lambda c: len(text(c)))
    return min(parts, key=lambda c: len(text(c)))


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
        case Conditional():
            stem = "chosen"
    name, n = stem, 1
    while name in taken:
        n += 1
        name = f"{stem}{n}"
    taken.add(name)
    return name
