"""Parser errors in plain words, with suggestions."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from derive.algebra.reductions import REDUCTIONS
from derive.errors import SpecError
from derive.notation.advice import ADVICE, CONTINUED, KEYWORDS, LISTED, RESULT, SIGNS
from derive.notation.names import KEEPING

if TYPE_CHECKING:
    from lark import Token
    from lark.exceptions import UnexpectedToken


def _error_at(token: Token, message: str) -> SpecError:
    return SpecError(message, line=token.line, column=token.column)


def around(line: str, column: int) -> str:
    """Return the line, or the part of a long line around the column."""
    start = max(0, min(column - _SHOWN_LINE // 2, len(line) - _SHOWN_LINE))
    part = line[start : start + _SHOWN_LINE].strip()
    before, after = "… " if start else "", " …" if start + _SHOWN_LINE < len(line) else ""
    return f"{before}{part}{after}"


_SHOWN_LINE = 400
"""Maximum characters of a line in an error."""


_SHOWN = (
    ("NAME", "a name"),
    ("NUMBER", "a number"),
    ("LPAR", "'('"),
    ("RPAR", "')'"),
    ("LSQB", "'['"),
    ("RSQB", "']'"),
    ("EQUAL", "'='"),
    ("COMMA", "','"),
    ("COLON", "':'"),
    ("VBAR", "'|'"),
    ("END", "the end of the statement"),
)


def unexpected(text: str, error: UnexpectedToken) -> SpecError:
    """Return the error of an unexpected token."""
    token = error.token
    accepts = set(error.accepts or error.expected)
    wanted = [words for kind, words in _SHOWN if kind in accepts]
    hint = ""
    end = len(text) if token.type == "$END" else token.start_pos or 0
    misplaced = _condition_of_a_tensor(text[:end])
    if accepts == {"LPAR"} and misplaced is not None:
        at, message = misplaced
        line = text.count("\n", 0, at) + 1
        return SpecError(message, line=line, column=at - text.rfind("\n", 0, at))
    if wanted:
        hint = "; expected " + " or ".join(filter(None, (", ".join(wanted[:-1]), wanted[-1])))
    if token.type == "$END":
        lines = text.rstrip().split("\n")
        place = {"line": len(lines), "column": len(lines[-1]) + 1}
        return SpecError(f"the text ends in the middle of a statement{hint}", **place)
    if token.type == "END":
        if _ends_with_operator(text[: token.start_pos or 0]):
            hint = f"; {CONTINUED}"
        return _error_at(token, f"the statement ends too early{hint}")
    if token == "=" and "RELATION" in accepts:
        hint = "; write a comparison as =="
    at = token.start_pos or 0
    for sign in (text[at : at + 1], text[max(at - 1, 0) : at + 1]):
        if sign in SIGNS and not accepts & {"END", "EQUAL"}:
            hint = f"; {SIGNS[sign]}"
    before = text[:at]
    if accepts <= {"NAME", "OP", "END", "NEWLINE", "SEMI", "$END"} and token in _OPERATORS:
        hint = f"; {CONTINUED}"
    elif token == "," and _open_bracket_name(before) is None:
        hint = f"; {LISTED}"
    elif token == "[" and before.rstrip().endswith(")"):
        hint = _of_a_result(before)
    near = around(text.split("\n")[(token.line or 1) - 1], token.column or 1)
    if token.type == "NAME" and token in ADVICE:
        hint = f"; {ADVICE[token]}"
    for word in re.findall(r"[^\W\d]\w*", near):
        if word in KEYWORDS:
            hint = f"; {KEYWORDS[word]}"
    return _error_at(token, f"unexpected {str(token)!r}{hint}")


_OPERATORS = (
    "+",
    "-",
    "*",
    "/",
    "//",
    "%",
    "**",
    "^",
    "and",
    "or",
    "==",
    "!=",
    "<",
    "<=",
    ">",
    ">=",
    "|",
)


def _ends_with_operator(text: str) -> bool:
    line = text.rpartition("\n")[2].partition("#")[0].rstrip()
    return re.search(r"([-+*/%^|<>]|[=!<>]=|\band|\bor|\bnot)$", line) is not None


def _open_bracket_name(text: str) -> str | None:
    """Return the name before the innermost open bracket, None without a name.

    Return "" if no bracket is open, or if it is a parenthesis.
    """
    depth = 0
    for at in range(len(text) - 1, -1, -1):
        if text[at] in ")]":
            depth += 1
        elif text[at] in "([":
            depth -= 1
            if depth < 0:
                name = re.search(r"\w+$", text[:at].rstrip())
                return "" if text[at] == "(" else name and name[0]
    return ""


def _of_a_result(before: str) -> str:
    """Return the hint for f(x)[i]."""
    depth, text = 0, before.rstrip()
    for at in range(len(text) - 1, -1, -1):
        depth += (text[at] in ")]") - (text[at] in "([")
        if depth == 0:
            name = re.search(r"[^\W\d]\w*$", text[:at])
            if name is not None and name[0] in ADVICE:
                return f"; {name[0]}: {ADVICE[name[0]]}"
            return f"; {RESULT.format(f'{name[0]}(...)' if name else 'a formula')}"
    return ""


def _condition_of_a_tensor(before: str) -> tuple[int, str] | None:
    """Return the position of the condition in x[n | n > 0], and its error."""
    found = re.search(r"([^\W\d]\w*)\[([^][|]*)\|([^|]*)\]\s*$", before)
    if found is None or found[1] in (*REDUCTIONS, *KEEPING):
        return None
    name, positions, condition = (found[n].strip() for n in (1, 2, 3))
    outer = re.search(r"([^\W\d]\w*)\[([^][|]*)\]\(\s*$", before[: found.start()])
    head, where = outer.groups() if outer else ("sum", positions)
    shown = f"{name}[{positions}]"
    return found.start(3) - 1, (
        "a condition follows the indices of a reduction, not those of a tensor: "
        f"{head}[{where.strip()} | {condition}]({shown}); as a factor, [{condition}]*{shown}"
    )
