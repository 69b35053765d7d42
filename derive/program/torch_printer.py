"""Print an expression over several lines: the layout of ruff format.

An expression is a document: text, groups, and places where a line may break. A group is on one line
if it fits, else all of its own places break; parentheses that only a break needs are printed only
there. The rules are those of ruff, so that a formatter leaves the text as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache
from typing import NamedTuple

from derive.algebra.substitution import replace
from derive.program.torch_ir import (
    ATOM,
    PRECEDENCE,
    Attribute,
    Binary,
    Code,
    Conditional,
    FunctionCall,
    Keyword,
    MethodCall,
    Slice,
    Subscript,
    Tuple,
    Unary,
    hugs_power,
    operand_level,
    operand_levels,
    subscript,
    text,
    text_and_level,
)

COLUMNS = 88
"""Maximum columns of a line."""

MOST_LINES = 5
"""Maximum lines of a statement: three lines between parentheses."""

_BODY = 12
"""The columns before the statements of a body."""


def fits(start: str, code: Code) -> bool:
    """True if start + code fits one line of a body."""
    return len(start) + len(text(code)) + _BODY <= COLUMNS


def is_short(code: Code) -> bool:
    """True if the code is at most half a line."""
    return len(text(code)) <= COLUMNS // 2


def is_long(start: str, code: Code) -> bool:
    """True if start + code has so many lines in a body that its parts are worth names."""
    if fits(start, code):
        return False
    if len(start) + len(text(code)) > MOST_LINES * (COLUMNS - _BODY + 1):
        return True  # with a space for each break
    lines = broken(start, code, indent=_BODY)
    return len(lines) > MOST_LINES or any(map(_is_torn, lines, lines[1:], lines[2:]))


def _is_torn(start: str, inside: str, end: str) -> bool:
    """True if a line has nothing but a short argument of a call."""
    opens = start.endswith("(") and not start.endswith((" (", "(("))
    return opens and len(inside.strip()) < _BODY and end.lstrip().startswith(")")


def broken(start: str, code: Code, end: str = "", indent: int = 0) -> list[str]:
    """Return the lines of start + code + end, which begins at column ``indent``."""
    whole = f"{start}{text(code)}{end}"
    if len(whole) + indent <= COLUMNS:
        return [whole]
    return [*_printed(start, code, end, COLUMNS - indent)]


@lru_cache(maxsize=2**10)
def _printed(start: str, code: Code, end: str, columns: int) -> tuple[str, ...]:
    return tuple(_Printer(columns).lines([start, _statement_value(code), end]))


# -------------------------------------------------------------------- documents


class Mark:
    """The identity of a group, to which other parts refer."""


@dataclass(frozen=True)
class Break:
    """A place where the line breaks if its group does not fit, else ``flat``."""

    flat: str = ""


@dataclass(frozen=True)
class Group:
    """Content on one line if it fits; with ``within``, a group only if that one is broken."""

    content: Doc
    mark: Mark | None = None
    within: Mark | None = None


@dataclass(frozen=True)
class Indent:
    """Content whose lines are indented; with ``mark``, only if that group is broken."""

    content: Doc
    mark: Mark | None = None


@dataclass(frozen=True)
class If:
    """Content if a group is broken, or if it is ``flat``: the group ``mark``, else its own."""

    content: Doc
    flat: bool = False
    mark: Mark | None = None


@dataclass(frozen=True)
class Expandable:
    """Content that may be broken inside while the group ``mark`` counts as one line."""

    content: Doc
    mark: Mark


Doc = str | Break | Group | Indent | If | Expandable | list["Doc"]

SOFT, SPACE = Break(), Break(" ")


class _State(NamedTuple):
    """How a part of a document is printed."""

    indent: int
    flat: bool
    all_lines: bool = False
    """True if every line of the part is measured, not only the first."""


class _Printer:
    """Prints a document: each group on one line if the line fits, else broken."""

    def __init__(self, columns: int) -> None:
        self.columns = columns
        self.flat: dict[Mark, bool] = {}
        self.measured = False
        """True if the enclosing flat group is known to fit."""
        self.made: list[str] = []
        self.line = ""

    def lines(self, doc: Doc) -> list[str]:
        """Return the printed lines."""
        stack: list[tuple[Doc, _State]] = [(doc, _State(0, False))]
        while stack:
            part, state = stack.pop()
            if isinstance(part, str):
                self.line += part
            elif isinstance(part, list):
                stack += [(inner, state) for inner in reversed(part)]
            elif isinstance(part, Break):
                if state.flat:
                    self.line += part.flat
                else:
                    self.made.append(self.line.rstrip())
                    self.line, self.measured = " " * state.indent, False
            elif isinstance(part, Group) and self._is_group(part):
                stack.append((part.content, self._group(part, state, stack)))
            elif isinstance(part, Expandable):
                self.measured = self.measured and not self.flat[part.mark]
                stack.append((part.content, state))
            else:
                stack += self._inside(part, state)
        return [*self.made, self.line]

    def _is_group(self, group: Group) -> bool:
        return group.within is None or not self.flat[group.within]

    def _group(self, group: Group, state: _State, rest: Sequence[tuple[Doc, _State]]) -> _State:
        """Return how the content of a group is printed."""
        if not (state.flat and self.measured):
            self.measured = True
            if group.mark is not None:
                self.flat[group.mark] = True
            state = _State(state.indent, True)
            if not self._fits(group.content, state, rest):
                state = _State(state.indent, False)
        if group.mark is not None:
            self.flat[group.mark] = state.flat
        return state

    def _inside(self, part: Doc, state: _State) -> list[tuple[Doc, _State]]:
        """Return the parts of a part that is no text, break or group of its own, last one first."""
        assert not isinstance(part, str | list | Break | Expandable)
        if isinstance(part, Group):
            return [(part.content, state)]
        if isinstance(part, Indent):
            if part.mark is None or not self.flat[part.mark]:
                state = _State(state.indent + 4, state.flat, state.all_lines)
            return [(part.content, state)]
        assert isinstance(part, If)
        flat = state.flat if part.mark is None else self.flat[part.mark]
        return [(part.content, state)] if part.flat is flat else []

    def _fits(self, doc: Doc, state: _State, rest: Sequence[tuple[Doc, _State]]) -> bool:
        """True if the content fits the line, with what follows up to the next line break."""
        left, after = self.columns - len(self.line), len(rest)
        stack = [(doc, state)]
        while stack or after:
            if not stack:
                after -= 1
                stack.append(rest[after])
            part, state = stack.pop()
            if isinstance(part, str):
                left -= len(part)
            elif isinstance(part, list):
                stack += [(inner, state) for inner in reversed(part)]
            elif isinstance(part, Break):
                if state.flat:
                    left -= len(part.flat)
                elif state.all_lines:
                    left = self.columns - state.indent
                else:
                    return True
            elif isinstance(part, Group) and self._is_group(part):
                if part.mark is not None:
                    self.flat[part.mark] = state.flat
                stack.append((part.content, state))
            elif isinstance(part, Expandable):
                if state.flat and self.flat[part.mark]:
                    state = _State(state.indent, False, True)
                stack.append((part.content, state))
            else:
                stack += self._inside(part, state)
            if left < 0:
                return False
        return True


# -------------------------------------------------------------------- documents of code


class _Place(Enum):
    """Where an expression stands, if no optional parentheses enclose it."""

    BARE = auto()
    BRACKETS = auto()


_Level = _Place | Mark
"""Outside of brackets, inside, or inside the optional parentheses of a mark."""


def _statement_value(code: Code) -> Doc:
    """Return the value of a statement, in parentheses where only they allow a break."""
    code = replace(code, subscript)
    if not _may_need_parentheses(code):
        return _of(code, _Place.BARE)
    mark = Mark()
    return _optional(_of(code, mark if _breaks_inside(code) else _Place.BRACKETS), mark)


def _optional(content: Doc, mark: Mark) -> Doc:
    """Return content in parentheses that are printed if it does not fit."""
    inside: Doc = [If("("), Indent([SOFT, content], mark), SOFT, If(")")]
    return Group(inside, mark)


def _bracketed(left: str, content: Doc, right: str, level: _Level) -> Doc:
    inside: Doc = [left, Indent([SOFT, content]), SOFT, right]
    group = Group(inside)
    return Expandable(group, level) if isinstance(level, Mark) else group


def _separated(items: Iterable[Doc]) -> Doc:
    parts: list[Doc] = []
    for item in items:
        parts += [item, ",", SPACE]
    return [*parts[:-2], If(",")]


def _grouped(content: Doc, level: _Level) -> Doc:
    """Return a group if the expression is inside of parentheses."""
    if level is _Place.BARE:
        return content
    return Group(content, within=level if isinstance(level, Mark) else None)


def _between(level: _Level, words: str) -> Doc:
    """Return a place that may break if the expression is inside of parentheses."""
    match level:
        case _Place.BARE:
            return words
        case Mark():
            return [If(Break(words), False, level), If(words, True, level)]
    return Break(words)


def _of(code: Code, level: _Level, outer: int = 0) -> Doc:
    """Return the document of code inside an operator of precedence ``outer``."""
    if _is_parenthesized(code, outer):
        return _bracketed("(", _of(code, _Place.BRACKETS), ")", level)
    match code:
        case Binary():
            return _grouped(_operators(list(_flattened(code)), level), level)
        case Conditional():
            return _grouped(_choice(code, level), level)
        case Unary(op, operand):
            return [op if op in "-~*" else f"{op} ", _of(operand, level, operand_level(code))]
        case Keyword(name, value):
            return [f"{name}=", _of(value, level)]
        case Slice(start, stop, None) if " : " in text(code):
            ends = ["" if end is None else _of(end, level) for end in (start, stop)]
            return [*ends[:1], " :" if start else ":", " " if stop else "", *ends[1:]]
        case Tuple(items) if items:
            parts = [_of(item, _Place.BRACKETS) for item in items]
            inside = [parts[0], ","] if len(items) == 1 else _separated(parts)
            return _bracketed("(", inside, ")", level)
        case MethodCall() | FunctionCall() | Subscript() | Attribute():
            fluent = level is _Place.BRACKETS and _links(code) > 1
            chain = _chain(code, level, fluent)
            return Group(chain) if fluent else chain
    return text(code)


def _is_parenthesized(code: Code, outer: int) -> bool:
    return text_and_level(code)[1] < outer


def _choice(code: Conditional, level: _Level) -> Doc:
    other = code.other
    last = _choice(other, level) if isinstance(other, Conditional) else _of(other, level)
    last = last if isinstance(other, Conditional) else _grouped(last, level)
    space = _between(level, " ")
    test = _grouped(_of(code.test, level, 1), level)
    return [_grouped(_of(code.then, level, 1), level), space, "if ", test, space, "else ", last]


def _chain(code: Code, level: _Level, fluent: bool) -> list[Doc]:
    """Return a chain of calls, subscripts and attributes; a fluent one may break at its dots."""
    match code:
        case FunctionCall(name, args):
            return [name, _arguments("(", args, ")", level)]
        case MethodCall(obj, name, args):
            return [*_linked(obj, name, level, fluent), _arguments("(", args, ")", level)]
        case Attribute(obj, name):
            return _linked(obj, name, level, fluent)
        case Subscript(obj, items):
            return [*_chain(obj, level, fluent), _arguments("[", items, "]", level)]
    return [_of(code, level, ATOM)]


def _linked(obj: Code, name: str, level: _Level, fluent: bool) -> list[Doc]:
    dot: list[Doc] = [SOFT] if fluent and _is_link(obj) else []
    return [*_chain(obj, level, fluent), *dot, f".{name}"]


def _is_link(obj: Code) -> bool:
    """True if an attribute of the object may have a line of its own."""
    calls = isinstance(obj, MethodCall | FunctionCall | Subscript)
    return calls or _is_parenthesized(obj, ATOM)


def _links(code: Code) -> int:
    """Return the number of attributes that may have lines of their own."""
    match code:
        case MethodCall(obj) | Attribute(obj):
            return _is_link(obj) + (0 if _is_parenthesized(obj, ATOM) else _links(obj))
        case Subscript(obj):
            return 0 if _is_parenthesized(obj, ATOM) else _links(obj)
    return 0


def _arguments(left: str, args: Sequence[Code], right: str, level: _Level) -> Doc:
    if not args:
        return f"{left}{right}"
    parts = [_of(arg, _Place.BRACKETS) for arg in args]
    inside = parts[0] if left == "[" and len(args) == 1 else Group(_separated(parts))
    return _bracketed(left, inside, right, level)


_Flat = list[tuple[Code, int] | str]
"""The operands of nested operators, each with the precedence around it, and the operators."""


def _flattened(code: Code, outer: int = 0) -> Iterator[tuple[Code, int] | str]:
    """Yield the operands and operators of nested operators without parentheses between them."""
    if not isinstance(code, Binary) or _is_parenthesized(code, outer):
        yield code, outer
        return
    left, right = operand_levels(code)
    yield from _flattened(code.left, left)
    yield code.op
    yield from _flattened(code.right, right)


def _operators(parts: _Flat, level: _Level) -> Doc:
    """Return operands and operators, which may break before the operators that bind least."""
    least = min(_rank(part) for part in parts if isinstance(part, str))
    made: list[Doc] = []
    inside: _Flat = []
    for part in parts:
        if not isinstance(part, str) or _rank(part) != least:
            inside.append(part)
            continue
        made += [_operand(inside, level), part]
        inside = []
    made.append(_operand(inside, level))
    result: list[Doc] = [made[0]]
    for n in range(1, len(made), 2):
        hugs = made[n] == "**" and _hugs(parts, n // 2)
        result += [_between(level, "" if hugs else " "), made[n], "" if hugs else " ", made[n + 1]]
    return result


def _hugs(parts: _Flat, n: int) -> bool:
    """True if the operator number n of ``parts`` is a power without spaces."""
    at = [k for k, part in enumerate(parts) if part == "**"][n]
    left, right = parts[at - 1], parts[at + 1]
    assert not isinstance(left, str) and not isinstance(right, str)
    return hugs_power(left[0], right[0])


def _operand(parts: _Flat, level: _Level) -> Doc:
    if len(parts) > 1:
        return _grouped(_operators(parts, level), level)
    (part,) = parts
    assert not isinstance(part, str)
    return _of(part[0], level, part[1])


def _rank(op: str) -> int:
    return PRECEDENCE["or" if op == "and" else op]


# -------------------------------------------------------------------- optional parentheses


def _may_need_parentheses(code: Code, outer: int = 0) -> bool:
    """True if the code has a place that breaks only inside of parentheses."""
    if _is_parenthesized(code, outer):
        return False
    match code:
        case Binary() | Conditional():
            return True
        case Unary(_, operand):
            return _may_need_parentheses(operand, operand_level(code))
        case MethodCall(obj) | Attribute(obj) | Subscript(obj):
            return _links(code) > 1 or _may_need_parentheses(obj, ATOM)
    return False


def _breaks_inside(code: Code) -> bool:
    """True if brackets at an end of the code break before optional parentheses are added."""
    seen = _Weakest()
    seen.visit(code)
    if not seen.brackets or seen.count > 1:
        return False
    if seen.rank is None:
        return True
    ends = (seen.first, seen.last)
    return any(x and not isinstance(x[0], Subscript) and _has_brackets(*x) for x in ends)


def _has_brackets(code: Code, outer: int) -> bool:
    match code:
        case MethodCall(_, _, args) | FunctionCall(_, args):
            return bool(args) or _is_parenthesized(code, outer)
        case Subscript() | Tuple():
            return True
    return _is_parenthesized(code, outer)


_ATTRIBUTE, _CHOICE = ATOM, 0.5


@dataclass
class _Weakest:
    """The weakest operator outside of brackets, its count, and the ends of the code."""

    rank: float | None = None
    count: int = 0
    brackets: bool = False
    first: tuple[Code, int] | None = None
    starts: bool = False
    """True if the first token is known."""
    last: tuple[Code, int] | None = None

    def meet(self, rank: float, count: int = 1) -> None:
        """Count operators of this precedence."""
        if self.rank is None or rank < self.rank:
            self.rank, self.count = rank, count
        elif rank == self.rank:
            self.count += count

    def visit(self, code: Code, outer: int = 0, top: bool = True) -> None:
        """Visit a part of the code that is outside of brackets."""
        if not top:
            self.last = code, outer
        if not top and _is_parenthesized(code, outer):
            self.brackets = True
        else:
            self._parts(code, outer)
        if not top and not self.starts:
            self.first, self.starts = (code, outer), True

    def _parts(self, code: Code, outer: int) -> None:
        match code:
            case Tuple():
                self.brackets = True
            case Binary(op, left, right):
                self.meet(_rank(op))
                for part, level in zip((left, right), operand_levels(code), strict=True):
                    self.visit(part, level, False)
            case Conditional(test, then, other):
                self.meet(_CHOICE, 2)
                for part, level in ((then, 1), (test, 1), (other, 0)):
                    self.visit(part, level, False)
            case Unary(op, operand):
                if op == "~":
                    self.meet(PRECEDENCE["neg"])
                self.starts = True
                self.visit(operand, operand_level(code), False)
            case _:
                self._chain(code, outer)

    def _chain(self, code: Code, outer: int) -> None:
        match code:
            case FunctionCall():
                self.brackets = self.starts = True
                self.last = code, outer
            case MethodCall(obj):
                self.brackets = True
                self._attribute(obj)
                self.last = code, outer
            case Subscript(obj):
                self.brackets = True
                self.visit(obj, ATOM, False)
                self.last = code, outer
            case Attribute(obj):
                self._attribute(obj)

    def _attribute(self, obj: Code) -> None:
        if _has_brackets(obj, ATOM) or isinstance(obj, MethodCall | FunctionCall):
            self.meet(_ATTRIBUTE)
        self.visit(obj, ATOM, False)
