"""The functions that generated modules share: `_runtime.py` beside them, or copies inside.

The engine calls them as ``rt.where(x > 0, x, 0)``. `standalone` is the one place in which a module
gets copies of what it calls instead, under private names: ``_where(x > 0, x, 0)``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any, NamedTuple

from derive.module.templating import environment, template

FILE = "_runtime.py"
"""The file of the shared functions."""

IMPORT = "from . import _runtime as rt"

_SECTIONS = (
    *("private_names", "functions", "parameters", "dtypes", "own", "reuse", "choices"),
    *("views", "positions", "along", "scans", "orders", "ieee", "norms", "attention", "tangents"),
    *("blocks", "explained"),
)
"""The files of templates/helpers, in reading order."""

_STATEMENTS = {
    "contextlib": "import contextlib",
    "math": "import math",
    "Literal": "from typing import Literal",
    "torch": "import torch",
}


def imports_of(lines: Iterable[str]) -> list[str]:
    """Return the import statements of code: the standard library, torch, the runtime."""
    return _statements(_imported_names("\n".join(lines)))


def _imported_names(code: str) -> set[str]:
    """Return the names that code reads of what it may import."""
    read = r"\b(contextlib|math|torch|rt)\.|\b(Literal)\[|\b(forward_ad)\b"
    return {name for found in re.findall(read, code) for name in found if name}


def _statements(names: Collection[str]) -> list[str]:
    standard = [s for name, s in _STATEMENTS.items() if name in names and name != "torch"]
    torch = [_STATEMENTS["torch"]] if "torch" in names else []
    torch += ["from torch.autograd import forward_ad"] if "forward_ad" in names else []
    groups = [group for group in (standard, torch, [IMPORT] if "rt" in names else []) if group]
    return [line for group in groups for line in ("", *group)][1:]


@cache
def runtime() -> str:
    """Return the text of `_runtime.py`."""
    first, *others = [_section(template(f"helpers/{name}.py")) for name in _SECTIONS]
    sections = [{**first, "above": ""}, *({**other, "above": "\n"} for other in others)]
    return environment().get_template("runtime.py.jinja").render(sections=sections)


@cache
def plain_runtime() -> str:
    """Return the functions that plain modules have copies of: some differ, in public calls."""
    return f"{runtime()}\n\n{_section(template('helpers/plain.py'))['code']}\n"


def _section(text: str) -> dict[str, Any]:
    """Return the remarks and the code of a file of functions."""
    tree = ast.parse(text)
    said = re.sub(r"[;.]?\s*[Rr]ead as text\b.*", "", ast.get_docstring(tree) or "", flags=re.S)
    first = next(n for n in tree.body[1:] if not isinstance(n, ast.Import | ast.ImportFrom))
    remarks = [line for line in f"{said.rstrip('.')}.".split("\n") if line]
    code = "\n".join(text.rstrip("\n").split("\n")[first.lineno - 1 :])
    blanks = "\n" if isinstance(first, ast.FunctionDef) else ""
    return {"remarks": remarks, "code": code, "blanks": blanks}


class _Word(NamedTuple):
    """A name in a text that is no attribute; of a call of ``rt``, both with the dot between."""

    name: str
    start: int
    end: int
    of_runtime: bool


@dataclass(frozen=True)
class _Definition:
    """A function or a constant of the runtime, with the others that it reads."""

    text: str
    words: tuple[_Word, ...]
    reads: frozenset[str]
    imports: frozenset[str]
    is_function: bool


@lru_cache(maxsize=8)
def _definitions(text: str) -> Mapping[str, _Definition]:
    """Return the definitions of a runtime by name, in order."""
    lines = text.split("\n")
    found = {}
    for n in ast.parse(text).body:
        match n:
            case ast.FunctionDef("__getattr__"):
                continue
            case ast.FunctionDef(name) | ast.ClassDef(name) | ast.Assign([ast.Name(name)]):
                found[name] = n, "\n".join(lines[n.lineno - 1 : n.end_lineno])
    made = {}
    for name, (n, own) in found.items():
        words = tuple(_words(own))
        reads = frozenset(w.name for w in words) & found.keys() - {name}
        is_function = isinstance(n, ast.FunctionDef | ast.ClassDef)
        needs = frozenset(_imported_names(own))
        made[name] = _Definition(own, words, reads, needs, is_function)
    return made


def imports(text: str) -> bool:
    """True if a module imports the runtime beside it."""
    return IMPORT in text.split("\n")


def missing(text: str, shared: str) -> list[str]:
    """Return the functions that a module calls of a runtime that lacks them."""
    calls = re.findall(r"(?<![\w.])rt\.(\w+)", text) if imports(text) else []
    return sorted({*calls} - _definitions(shared).keys())


def standalone(text: str, shared: str | None = None) -> str:
    """Return a module with copies of the shared functions that it calls; it imports torch alone.

    ``shared`` is the text of the `_runtime.py` beside it, by default that of this version.

    Raises:
        KeyError: the module calls a function that the runtime lacks.
    """
    if not imports(text):
        return text
    known = _without_idle_checks(_definitions(runtime() if shared is None else shared), text)
    words = list(_words(text))
    calls = [w for w in words if w.of_runtime]
    needed = _closure((w.name for w in calls), known)
    taken = {w.name for w in words if not w.of_runtime}
    new = {name: _private(name, taken) for name in needed}
    statements = (w.start for w in words if w.name in ("import", "from"))
    first = next(n for n in statements if text[n - 1 : n] in ("", "\n"))
    end = next(_IMPORTS.finditer(text, first)).end()
    constants, functions = _copies(known, new)
    names = _aliases(text[first:end]).union(*(known[name].imports for name in new)) - {"_runtime"}
    rest = _edited(text, calls, new, end)
    body = re.sub(rf"\n +{IMPORT}\n", "\n", rest).lstrip("\n").split("\n")
    copies = [*(["", *constants] if constants else []), "", "", *functions]
    return text[:first] + "\n".join([*_statements(names), *copies, *body])


_LETTERS = r"(?:\(|\b(\w+)(?=[],= ])[^;]*[*,= \[]\1[],=])"
"""In the tensors of a signature, a composite axis or an index that stands twice: x[n,k], w[k]."""

_RULE = r"; [^; <>!]+=(?!axis\(|keep\()"
"""A size that a clause gives: k=3, c=(g c)/g."""

_APPLIES = {
    "_flags": r"=keep\(",
    "_places": r"=axis\(",
    "_bounds": r"=size\(|[<>]|!=",
    "_devices": "^[^;]*, ",
    "_divisors": " is a divisor",
    "_shapes": rf"^[^;]*{_LETTERS}|{_RULE}",
    "_groups": r"\*",
    "_quotients": "=[^;]*/",
    "_products": rf"^[^;]*\(|{_RULE}",
    "_optional": "=None",
    "_signs": " is (?:positive|not negative)",
    "_choices": " in ",
}
"""A check of arguments, and what a signature has in which it may find a fault."""


_SIGNATURES = re.compile(
    r'(?:\brt\.explained\(\s*"\w+",\s*|\n +signature = \(?\s*)((?:"[^"\n]*"\s*)+)'
)
"""The text of a signature in the error of its call."""


def _without_idle_checks(known: Mapping[str, _Definition], text: str) -> dict[str, _Definition]:
    """Return the definitions, with no check of arguments that finds nothing in this module."""
    texts = ["".join(re.findall('"(.*)"', m[1])) for m in _SIGNATURES.finditer(text)]
    applies = (name for name, words in _APPLIES.items() if any(re.search(words, t) for t in texts))
    idle = _APPLIES.keys() - set(applies)
    made = dict(known)
    for name in ("_checks", "_shape_checks"):
        if texts and name in known:
            start, _, names = known[name].text.partition("    return (")
            kept = [n for n in re.findall(r"\w+", names) if n not in idle]
            listed = "".join(f"\n        {n}," for n in kept) + "\n    "
            own = f"{start}    return ({listed if len(kept) > 1 else f'{kept[0]},'})"
            reads = known[name].reads - idle
            made[name] = replace(known[name], text=own, words=tuple(_words(own)), reads=reads)
    return made


def _aliases(statements: str) -> set[str]:
    nodes = (n for n in ast.parse(statements).body if isinstance(n, ast.Import | ast.ImportFrom))
    return {alias.name for n in nodes for alias in n.names}


_IMPORTS = re.compile(r"(?:(?:import|from) .*\n+)+")

_WORDS = re.compile(
    r"""
    (?:\b[bfru]{1,2})?
    (?:\"{3}(?:\\.|[^\\])*?\"{3} | '{3}(?:\\.|[^\\])*?'{3} | "(?:\\.|[^"\\])*" | '(?:\\.|[^'\\])*')
    | \#[^\n]* | \.?\d[\w.]* | \.\s*[^\W\d]\w* | (rt\.)?([^\W\d]\w*)
    """,
    re.VERBOSE | re.DOTALL,
)
"""Strings, comments, numbers, attributes, and the names that are none of these."""


def _words(text: str) -> Iterator[_Word]:
    for m in _WORDS.finditer(text):
        if m[2]:
            yield _Word(m[2], *m.span(), m[1] is not None)


def _closure(names: Iterable[str], known: Mapping[str, _Definition]) -> list[str]:
    """Return the names and those that their definitions read, in the order of the runtime."""
    found: set[str] = set()
    pending = list(names)
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending += known[name].reads
    return [name for name in known if name in found]


def _private(name: str, taken: Collection[str]) -> str:
    """Return the name of a copy: private, and none that the module has."""
    private = name if name.startswith("_") else f"_{name}"
    return f"_rt{private}" if private in taken else private


def _edited(text: str, words: Iterable[_Word], new: Mapping[str, str], start: int = 0) -> str:
    """Return the text from ``start`` on with these words replaced where they are in ``new``."""
    parts = []
    for w in words:
        if w.name in new:
            parts += [text[start : w.start], new[w.name]]
            start = w.end
    return "".join([*parts, text[start:]])


def _copies(
    known: Mapping[str, _Definition], new: Mapping[str, str]
) -> tuple[list[str], list[str]]:
    """Return the lines of constants and of functions, under their new names."""
    constants: list[str] = []
    functions: list[str] = []
    for name in new:
        lines = _edited(known[name].text, known[name].words, new).split("\n")
        if known[name].is_function:
            functions += [*lines, "", ""]
        else:
            constants += lines
    return constants, functions
