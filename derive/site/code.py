"""Highlight code as HTML, and tell which formula each line of generated code computes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from pygments.lexer import Lexer, RegexLexer
from pygments.lexers import get_lexer_by_name
from pygments.token import Comment, Keyword, Name, Number, Operator, String, Token
from pygments.util import ClassNotFound

from derive.algebra.functions import FUNCTIONS
from derive.algebra.reference_values import REDUCTIONS

_CLASSES: Mapping[Any, str] = {
    Comment: "c",
    Keyword: "k",
    Operator.Word: "k",
    String: "s",
    Number: "n",
    Name.Function: "f",
    Name.Class: "f",
    Name.Decorator: "d",
    Name.Builtin: "b",
    Token.Generic.Prompt: "c",
    Token.Generic.Output: "o",
}
"""The class of a kind of token; the nearest kind around it counts."""


class _Notation(RegexLexer):
    """Specs in index notation."""

    name = "derive"
    tokens = {  # noqa: RUF012
        "root": [
            (r"#.*", Comment),
            (r"\b(op|where|and|or|not|in|if|else|stable)\b", Keyword),
            (rf"\b({'|'.join(sorted({*FUNCTIONS, *REDUCTIONS}))})(?=[\[(])", Name.Builtin),
            (r"\d+(\.\d*)?(e[+-]?\d+)?", Number),
            (r"\w+", Token.Text),
            (r"[^\w#]", Token.Text),
        ]
    }


def _lexer(language: str) -> Lexer | None:
    if language == "derive":
        return _Notation()
    try:
        return get_lexer_by_name({"sh": "bash"}.get(language, language), stripnl=False)
    except ClassNotFound:
        return None


def highlighted(text: str, language: str) -> list[str]:
    """Return the lines of the text as HTML, each complete in itself."""
    lexer = _lexer(language)
    if lexer is None:
        return escape(text.rstrip("\n")).split("\n")
    lines = [""]
    for kind, value in lexer.get_tokens(text):
        around = (_CLASSES[k] for k in reversed(kind.split()) if k in _CLASSES)
        found = next(around, None)
        for n, part in enumerate(value.split("\n")):
            if n:
                lines.append("")
            if part:
                shown = escape(part, quote=False)
                lines[-1] += f'<span class="{found}">{shown}</span>' if found else shown
    while lines and not lines[-1]:
        lines.pop()
    return lines


def block(text: str, language: str) -> str:
    """Return the text as a block of code."""
    inside = "\n".join(highlighted(text, language))
    return f'<pre class="code" tabindex="0"><code>{inside}</code></pre>'


def listing(text: str, prefix: str, owners: Mapping[int, Sequence[str]]) -> str:
    """Return a Python module as HTML with numbered lines.

    A line that computes formulas has their names as ``data-of``, and a link to the first one. The
    docstring of the module, which repeats the formulas, is left out.
    """
    shown = []
    start = _after_docstring(text)
    for n, line in enumerate(highlighted(text, "python")[start:], start + 1):
        names = owners.get(n, ())
        if names:
            of = " ".join(names)
            label = f"line {n}, computes {' and '.join(names)}"
            number = f'<a href="#{anchor(names[0])}" data-n="{n}" aria-label="{label}"></a>'
            own = f' data-of="{of}"'
        else:
            number, own = f'<span data-n="{n}"></span>', ""
        shown.append(f'<span class="line" id="{prefix}-{n}"{own}>{number}{line}\n</span>')
    return f'<pre class="code numbered" tabindex="0"><code>{"".join(shown)}</code></pre>'


def _after_docstring(text: str) -> int:
    """Return the number of lines before the first one of code after the docstring."""
    first, *rest = ast.parse(text).body
    is_text = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    return (rest[0].lineno - 1) if is_text and rest else 0


def anchor(name: str) -> str:
    """Return the id of a formula on the page of its operation."""
    return "formula-" + re.sub(r"[^\w.-]+", "-", name)


# ------------------------------------------------------------ the formulas of the lines of a module


def owners(source: str, names: Sequence[str], outputs: Sequence[str]) -> dict[int, tuple[str, ...]]:
    """Return line -> the formulas that it computes, of these names, in a generated module.

    A statement belongs to the name that it assigns or that its comment has, what a forward
    returns belongs to the outputs, and a statement that a single formula reads belongs to that.
    """
    remarks = {
        n: found[1]
        for n, line in enumerate(source.splitlines(), 1)
        if (found := re.search(r"  # (\w+)(\[|$)", line)) and found[1] in names
    }
    found_lines: dict[int, tuple[str, ...]] = {}
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef):
            for statement, of in _of_function(function, names, outputs, remarks):
                for n in range(statement.lineno, (statement.end_lineno or 0) + 1):
                    found_lines[n] = of
    return found_lines


def _of_function(
    function: ast.FunctionDef,
    names: Sequence[str],
    outputs: Sequence[str],
    remarks: Mapping[int, str],
) -> Iterator[tuple[ast.stmt, tuple[str, ...]]]:
    """Yield each statement of a function that computes formulas, and these."""
    statements = list(_statements(function.body))
    forward = re.search(r"(^|_)(forward|composed)$", function.name) is not None
    labels: dict[ast.stmt, tuple[str, ...]] = {}
    for s in statements:
        written = [t for t in _written(s) if t in names]
        remark = remarks.get(s.end_lineno or 0) or remarks.get(s.lineno)
        if _computes(s) and (remark or written):
            labels[s] = (remark,) if remark else tuple(written)
    computed = {name for of in labels.values() for name in of}
    for s in statements:
        if isinstance(s, ast.Return) and forward and not computed & {*outputs}:
            labels[s] = tuple(outputs)
    for n in reversed(range(len(statements))):
        s = statements[n]
        if s not in labels and _computes(s):
            own = set(_written(s))
            readers = {labels.get(r, ()) for r in statements[n + 1 :] if own & _read(r)}
            if len(readers) == 1 and (of := readers.pop()):
                labels[s] = of
    yield from labels.items()


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the simple statements, in order."""
    for s in body:
        if isinstance(s, ast.If | ast.With | ast.For):
            yield from _statements(s.body)
            yield from _statements(getattr(s, "orelse", ()))
        elif not isinstance(s, ast.FunctionDef | ast.ClassDef):
            yield s


def _written(s: ast.stmt) -> list[str]:
    targets = s.targets if isinstance(s, ast.Assign) else []
    nodes = (node for t in targets for node in ast.walk(t))
    return [node.id for node in nodes if isinstance(node, ast.Name)]


def _read(s: ast.stmt) -> set[str]:
    """Return the names that the statement reads."""
    nodes = (node for node in ast.walk(s) if isinstance(node, ast.Name))
    return {node.id for node in nodes if isinstance(node.ctx, ast.Load)}


def _computes(s: ast.stmt) -> bool:
    """True for an assignment of more than None, what ctx keeps, or the arguments."""
    if not isinstance(s, ast.Assign) or isinstance(s.value, ast.Constant):
        return False
    kept = isinstance(s.value, ast.Attribute) and ast.unparse(s.value.value) == "ctx"
    return not kept and not isinstance(s.value, ast.Name)
