"""Highlight code as HTML, and tell which formula each line of generated code computes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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
    Token.Generic.Prompt: "c",
    Token.Generic.Output: "o",
}
"""The class of a kind of token; the nearest kind around it counts."""


class _Notation(RegexLexer):  # type: ignore[misc]
    """Specs in index notation."""

    name = "derive"
    tokens = {  # noqa: RUF012
        "root": [
            (r"#.*", Comment),
            (r"\b(op|where|and|or|not|in|if|else|stable)\b", Keyword),
            (rf"\b({'|'.join(sorted({*FUNCTIONS, *REDUCTIONS}))})(?=[\[(])", Name.Function),
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
    return f'<pre class="code {escape(language)}" tabindex="0"><code>{inside}</code></pre>'


def listing(text: str, prefix: str, owners: Mapping[int, Owner]) -> str:
    """Return a Python module as HTML with numbered lines.

    A line that computes formulas has their names as ``data-of``, and a link to the first one. The
    docstring of the module, which repeats the formulas, is left out.
    """
    shown = []
    start = _after_docstring(text)
    for n, line in enumerate(highlighted(text, "python")[start:], start + 1):
        number, own = f'<span data-n="{n}"></span>', ""
        if owner := owners.get(n):
            label = f"line {n}, computes {' and '.join(owner.names)}"
            number = f'<a href="#{anchor(owner.names[0])}" data-n="{n}" aria-label="{label}"></a>'
            own = f' data-of="{" ".join(owner.names)}"'
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


@dataclass(frozen=True)
class Owner:
    """The formulas that a line computes; a helper is a line that only they read."""

    names: tuple[str, ...]
    helps: bool = False


def owners(
    source: str, names: Sequence[str], chosen: Mapping[str, str] | None = None
) -> dict[int, Owner]:
    """Return line -> the formulas of these names that it computes, in a generated module.

    A statement belongs to the name that it assigns or that its comment has. What a forward
    returns belongs to the name that the Function has for it, and what the public function returns
    for an option to the output of that option in ``chosen``. A statement that only those of one
    formula read helps it.
    """
    remarks = {
        n: found[1]
        for n, line in enumerate(source.splitlines(), 1)
        if (found := re.search(r"  # (\w+)(\[|$)", line)) and found[1] in names
    }
    found_lines: dict[int, Owner] = {}
    for body, returned in _functions(ast.parse(source), chosen or {}):
        for statement, owner in _of_statements(body, names, returned, remarks).items():
            for n in range(statement.lineno, (statement.end_lineno or 0) + 1):
                found_lines[n] = owner
    return found_lines


Returned = Mapping[ast.stmt, str]
"""What statements return: the name of an output."""


def _functions(
    tree: ast.AST, chosen: Mapping[str, str]
) -> Iterator[tuple[list[ast.stmt], Returned]]:
    """Yield the statements of each function, and what they return."""
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    outcomes = dict(pair for node in classes for pair in _outcomes(node))
    for node in ast.walk(tree):
        own = dict(_outcomes(node)) if isinstance(node, ast.ClassDef) else outcomes
        for inner in ast.iter_child_nodes(node):
            if isinstance(inner, ast.FunctionDef) and inner.name != "setup_context":
                body = list(_statements(inner.body))
                outcome = own.get(inner.name)
                yield body, {body[-1]: outcome} if outcome else _by_option(inner, chosen)


def _outcomes(function: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """Yield the name of the forward of a Function, and what its setup_context calls the result."""
    forward = "forward"
    for s in function.body:
        match s:
            case ast.Assign([ast.Name("forward")], ast.Call(_, [ast.Name(name)])):
                forward = name
            case ast.FunctionDef("setup_context", ast.arguments(args=[*_, result])):
                renamed = [
                    t.id
                    for inner in s.body
                    if isinstance(inner, ast.Assign) and ast.unparse(inner.value) == result.arg
                    for t in inner.targets
                    if isinstance(t, ast.Name)
                ]
                yield forward, (renamed or [result.arg])[0]


def _by_option(function: ast.FunctionDef, chosen: Mapping[str, str]) -> Returned:
    """Return what the returns of a public function compute: the last one, the first option."""
    found: dict[ast.stmt, str] = {}
    for s in function.body:
        match s:
            case ast.If(ast.Compare(_, _, [ast.Constant(str(option))])) if option in chosen:
                found[s.body[-1]] = chosen[option]
            case ast.Return() if chosen:
                found[s] = next(iter(chosen.values()))
    return found


def _of_statements(
    statements: Sequence[ast.stmt],
    names: Sequence[str],
    returned: Returned,
    remarks: Mapping[int, str],
) -> dict[ast.stmt, Owner]:
    """Return the owner of each statement of a function that computes formulas."""
    found: dict[ast.stmt, Owner] = {}
    for s in statements:
        # A name that is read as well is cast or reshaped, not computed.
        written = [t for t in _written(s) if t in names and t not in _read(s)]
        remark = remarks.get(s.end_lineno or 0) or remarks.get(s.lineno)
        if _computes(s) and (remark or written):
            found[s] = Owner((remark,) if remark else tuple(written))
        elif returned.get(s) in names and isinstance(s, ast.Return) and _is_computed(s.value):
            found[s] = Owner((returned[s],))
    for n in reversed(range(len(statements))):
        s = statements[n]
        if s not in found and _computes(s):
            own = set(_written(s))
            readers = [found.get(r) for r in statements[n + 1 :] if own & _read(r)]
            if len({r and r.names for r in readers}) == 1 and readers[0] is not None:
                found[s] = Owner(readers[0].names, helps=True)
    return found


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


def _is_computed(e: ast.expr | None) -> bool:
    """True unless e is a name, or the call of a Function."""
    is_function = isinstance(e, ast.Call) and ast.unparse(e.func).endswith(".apply")
    return not is_function and not isinstance(e, ast.Name | ast.Tuple)


def _computes(s: ast.stmt) -> bool:
    """True for an assignment of more than None, what ctx keeps, or the arguments."""
    if not isinstance(s, ast.Assign) or isinstance(s.value, ast.Constant):
        return False
    kept = isinstance(s.value, ast.Attribute) and ast.unparse(s.value.value) == "ctx"
    return not kept and not isinstance(s.value, ast.Name)
