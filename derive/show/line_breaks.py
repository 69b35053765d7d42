"""LaTeX equations in lines of a given width, broken as a person breaks them.

A break stands before a + or −, or before a factor, outside of parentheses rather than inside.
Widths are estimates in em, from the font of LaTeX: they decide where lines end, and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from derive.algebra.expr import Expr
from derive.show.formula import sides
from derive.show.typeset import Latex

PAGE = 42.0
"""The width of a line of an article in em, the number of a step left out."""
# --------------------------------------------------------------------------- where a line may end

_MARK = "\0"
"""Stands in a text where a line may end."""


class _Marked(Latex):
    """LaTeX with a mark wherever a line may end."""

    times, plus, minus = _MARK + Latex.times, _MARK + Latex.plus, _MARK + Latex.minus
    conjunction, disjunction = _MARK + Latex.conjunction, _MARK + Latex.disjunction
    comma = Latex.comma + _MARK


class _Flat(_Marked):
    """The same for wide formulas: quotients in a line, and conditions below one another."""

    encloses = False

    def fraction(self, top: str, bottom: str) -> str:
        return f"{top} / {bottom}"

    def where(self, condition: str, then: str, other: str) -> str:
        when = rf"\text{{if }} {condition}".replace(_MARK, "")
        cases = ((then, when), (other, r"\text{otherwise}"))
        rows = [(_in_latex(_lines(_pieces(text), _CELL)), when) for text, when in cases]
        if all(len(lines) == 1 and width(lines[0]) + width(when) < _CELL for lines, when in rows):
            return super().where(condition, then, other)
        cells = r" \\ ".join(_aligned_case(*row) for row in rows)
        return rf"\begin{{cases}} {cells} \end{{cases}}"

    def operator(self, kind: str, letters: Sequence[str], condition: str | None) -> str:
        if condition is None or self.disjunction in condition or self.negation in condition:
            return super().operator(kind, letters, condition)
        rows = r" \\ ".join([",".join(letters), *condition.split(self.conjunction)])
        return super().operator(kind, [rf"\substack{{{rows}}}"], None)

    def prefix(self, operator: str, body: str) -> str:
        """A line may end with a sum whose conditions are wide."""
        return f"{operator} {_MARK if 'substack' in operator else ''}{body}"


def _aligned_case(lines: Sequence[str], when: str) -> str:
    """Return the lines of a case, its condition below."""
    if len(lines) == 1 and width(lines[0]) < _CELL / 2:
        return rf"{lines[0]} \quad {when}"
    rows = r" \\ ".join(f"& {line}" for line in (*lines, rf"\quad {when}"))
    return rf"\begin{{aligned}} {rows} \end{{aligned}}"


_CELL = 30.0
"""The width of a case; a wider one has its condition below."""
_STYLES = (_Marked(), _Flat())

_TOKEN = re.compile(
    r"\\left(?:\\lfloor |.)|\\right(?:\\rfloor|.)|\\(?:begin|end)\{\w+\}|\\.|[{}\0]|[^\\{}\0]+"
)
_TALL = re.compile(r"\\(frac|sum|prod|operatorname\*|begin)\b")


@dataclass(frozen=True)
class _Piece:
    """The text up to the next place where a line may end."""

    start: int
    """The number of tokens before it."""
    tokens: tuple[str, ...]
    depth: int
    """The number of parentheses around the place before it."""

    @cached_property
    def width(self) -> float:
        return width("".join(self.tokens))

    @property
    def indent(self) -> float:
        """The space before it at the start of a line, in em."""
        return 0.0 if self.start == 0 else 2.0 if self.depth else 1.0

    @property
    def penalty(self) -> float:
        """What it costs to start a line with it."""
        added = "".join(self.tokens).startswith((Latex.plus, Latex.minus))
        return 0.0 if self.start == 0 else 1 + 3 * self.depth + (0 if added else 2)


def _pieces(text: str) -> list[_Piece]:
    """Take a marked text apart; a line does not end within braces."""
    pieces: list[_Piece] = []
    tokens: list[str] = []
    start = braces = depth = before = 0
    for token in _TOKEN.findall(text):
        if token != _MARK:
            braces += (token == "{") - (token == "}")
            braces += token.startswith(r"\begin") - token.startswith(r"\end")
            depth += token.startswith(r"\left") - token.startswith(r"\right")
            tokens.append(token)
        elif not braces:
            pieces.append(_Piece(start, tuple(tokens), before))
            start, tokens, before = start + len(tokens), [], depth
    return [*pieces, _Piece(start, tuple(tokens), before)]


def _lines(pieces: Sequence[_Piece], room: float) -> list[Sequence[_Piece]]:
    """Return the pieces in lines, so that the sum of penalties is least."""
    best: list[tuple[float, int]] = [(0.0, 0)]
    for stop in range(1, len(pieces) + 1):
        found, used = [], 0.0
        for first in range(stop - 1, -1, -1):
            used += pieces[first].width
            over = max(0.0, used + pieces[first].indent - room)
            unused = ((room - used) / room) ** 2 / 4
            cost = best[first][0] + pieces[first].penalty + unused + 1000 * over
            found.append((cost, first))
            if over:
                break
        best.append(min(found))
    lines, stop = [], len(pieces)
    while stop:
        first = best[stop][1]
        lines.append(pieces[first:stop])
        stop = first
    return lines[::-1]


def _in_latex(lines: Sequence[Sequence[_Piece]]) -> list[str]:
    """Return the lines; parentheses that a line break parts have a size of their own."""
    tokens = [token for line in lines for piece in line for token in piece.tokens]
    starts = [line[0].start for line in lines]
    opened: list[int] = []
    for n, token in enumerate(tokens):
        if token.startswith(r"\left"):
            opened.append(n)
        elif token.startswith(r"\right"):
            first = opened.pop()
            if any(first < start <= n for start in starts):
                size = "bigg" if _TALL.search("".join(tokens[first + 1 : n])) else "big"
                tokens[first] = tokens[first].replace(r"\left", rf"\{size}l")
                tokens[n] = tokens[n].replace(r"\right", rf"\{size}r")
    found = []
    for line, (start, stop) in zip(lines, pairwise([*starts, len(tokens)]), strict=True):
        text = "".join(tokens[start:stop])
        if start:
            bare = text.removeprefix(Latex.times)
            text = bare.strip() if bare == text else rf"\cdot {bare}"
            text = (r"\qquad " if line[0].depth else r"\quad ") + text
        found.append(text.rstrip())
    return found


def equation_lines(
    name: str, axes: Sequence[Expr], body: Expr, room: float = PAGE
) -> tuple[str, list[str]]:
    """Return the left side of an equation, and its right side in lines of LaTeX.

    ``room`` is the width of both sides. If no breaks fit it, quotients are written in a line.
    """
    made = []
    left = ""
    for style in _STYLES:
        own, right = sides(name, axes, body, style)
        left = left or own.replace(_MARK, "")
        used = width(left) + _WIDTHS["="]
        lines = _lines(_pieces(right), room - used)
        widest = used + max(line[0].indent + sum(p.width for p in line) for line in lines)
        made.append((max(widest, room), _in_latex(lines)))
        if widest <= room:
            break
    return left, min(made, key=lambda one: one[0])[1]


Parts = tuple[str, Sequence[Expr], Expr]
"""An equation: name, axes and body."""


def aligned(equations: Iterable[Parts], environment: str = "align*") -> str:
    """Return equations below one another at the equals sign, in lines that fit a page."""
    given = list(equations)
    found = [equation_lines(*e) for e in given]
    longest = max(width(left) for left, _ in found)
    rows = []
    for e, (left, lines) in zip(given, found, strict=True):
        room = PAGE - (longest - width(left))
        if len(lines) > 1 or longest + _WIDTHS["="] + width(lines[0]) > PAGE:
            _, lines = equation_lines(*e, room)
        rows += [f"  {left} &= {lines[0]}", *(f"  &{line}" for line in lines[1:])]
    text = " \\\\\n".join(rows)
    return f"\\begin{{{environment}}}\n{text}\n\\end{{{environment}}}"


def in_display(equations: Iterable[Parts]) -> str:
    """Return the equations as displayed mathematics for a notebook."""
    return f"$$\n{aligned(equations, 'aligned')}\n$$"


# ---------------------------------------------------------------------------------- estimated width

_SMALL = 0.76
"""The size of a subscript in a formula."""
_WIDTHS = {
    **dict.fromkeys("mwMW", 0.88),
    **dict.fromkeys("ijltfrsI'", 0.38),
    **dict.fromkeys("|[]()/!:", 0.4),
    **{" ": 0.0, "{": 0.0, ",": 0.44, ".": 0.28, "_": 0.36},
    **dict.fromkeys("+-", 1.22),
    **dict.fromkeys("<=>", 1.33),
    **dict.fromkeys((r"\land", r"\lor"), 1.1),
    **dict.fromkeys((r"\le", r"\ge", r"\ne"), 1.33),
    **{r"\cdot": 0.72, r"\infty": 1.0, r"\lnot": 0.67, r"\,": 0.17, r"\quad": 1.0, r"\qquad": 2.0},
}
"""Of letters and signs, in em; a sign has the space around it."""
_FENCES = {r"\left": 0.6, r"\right": 0.6}
_FENCES |= {r"\bigl": 0.46, r"\bigr": 0.46, r"\biggl": 0.73, r"\biggr": 0.73}
_FUNCTIONS = {*Latex.functions.values()} - {r"\sigma", r"\psi"}
_SIGNS = {r"\sum": 1.44, r"\prod": 1.28, r"\max": 1.67, r"\min": 1.5}
_WORD = re.compile(r"\\[A-Za-z]+\*?|\\.|.", re.DOTALL)


def width(text: str) -> float:
    """Return about how wide a formula in LaTeX is, in em."""
    return _Ruler(text).row()


class _Ruler:
    """Reads a formula from left to right, and adds widths."""

    def __init__(self, text: str) -> None:
        self.tokens: list[str] = _WORD.findall(text)
        self.at = 0

    def take(self) -> str:
        self.at += 1
        return self.tokens[self.at - 1]

    def see(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def row(self, *ends: str) -> float:
        """Return the width up to one of these tokens."""
        used = 0.0
        while self.see() and self.see() not in ends:
            used += self.part()
        return used

    def argument(self) -> float:
        """Return the width of what stands in braces, or of a single token."""
        if self.see() != "{":
            return self.part()
        self.take()
        used = self.row("}")
        self.take()
        return used

    def word(self) -> str:
        """Return the letters in braces."""
        first = self.at + 1
        while self.take() != "}":
            pass
        return "".join(self.tokens[first : self.at - 1]).replace("\\", "")

    def scripts(self) -> float:
        """Return the width of the indices and powers that follow, below one another."""
        used = 0.0
        while self.see() in ("_", "^"):
            self.take()
            used = max(used, _SMALL * self.argument())
        return used

    def part(self) -> float:
        """Return the width of the next part."""
        token = self.see()
        if token in ("_", "^"):
            return self.scripts()
        if token == "{":
            return self.argument()
        self.take()
        if token == r"\frac":
            return max(self.argument(), self.argument()) + 0.24
        if token == r"\sqrt":
            return self.argument() + 0.83
        if token in (r"\mathrm", r"\text", r"\operatorname"):
            return _letters(self.word())
        if token == r"\operatorname*":
            return max(_letters(self.word()), self.scripts()) + 0.17
        if token in _SIGNS:
            return max(_SIGNS[token], self.scripts()) + 0.17
        if token in _FENCES:
            self.take()
            return _FENCES[token]
        if token == r"\substack":
            self.take()
            return self.table("}", 0.0)
        if token == r"\begin":
            self.word()
            return self.table(r"\end", 1.0) + 1.1
        if token in _WIDTHS:
            return _WIDTHS[token]
        if token in _FUNCTIONS:
            return _letters(token[1:])
        return _letters(token) if token[0] != "\\" else 0.6

    def table(self, end: str, gap: float) -> float:
        """Return the width of rows and columns up to a token."""
        columns: dict[int, float] = {}
        column = 0
        while self.see() != end:
            columns[column] = max(columns.get(column, 0.0), self.row(end, "&", r"\\"))
            if self.see() != end:
                column = column + 1 if self.take() == "&" else 0
        self.take()
        if end != "}":
            self.word()
        return sum(columns.values()) + gap * (len(columns) - 1)


def _letters(text: str) -> float:
    return sum(_WIDTHS.get(c, 0.76 if c.isupper() else 0.53) for c in text)
