"""The functions that generated modules share: `_runtime.py` beside them, or copies inside.

The engine calls them as ``rt.where(x > 0, x, 0)``. `standalone` is the one place in which a module
gets copies of what it calls instead, under private names: ``_where(x > 0, x, 0)``.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from derive.module.templating import environment, template

FILE = "_runtime.py"
"""The file of the shared functions."""

IMPORT = "from . import _runtime as rt"

_SECTIONS = (
    *("private_names", "functions", "parameters", "tensors", "dtypes", "own", "reuse", "choices"),
    *("views", "positions", "along", "scans", "ieee", "norms", "attention", "tangents", "blocks"),
    "explained",
)
"""The files of templates/helpers, in reading order."""

_STATEMENTS = {
    "contextlib": "import contextlib",
    "math": "import math",
    "Literal": "from typing import Literal",
    "torch": "import torch",
}
_AUTOGRAD = ("Function", "forward_ad")


def imports_of(lines: Iterable[str]) -> list[str]:
    """Return the import statements of code: the standard library, torch, the runtime."""
    return _statements(_imported_names("\n".join(lines)))


def _imported_names(code: str) -> set[str]:
    """Return the names that code reads of what it may import."""
    read = r"\b(contextlib|math|torch|rt)\.|\b(Literal)\[|\b(Function|forward_ad)\b"
    return {name for found in re.findall(read, code) for name in found if name}


def _statements(names: Collection[str]) -> list[str]:
    standard = [s for name, s in _STATEMENTS.items() if name in names and name != "torch"]
    torch = [_STATEMENTS["torch"]] if "torch" in names else []
    own = [name for name in _AUTOGRAD if name in names]
    torch += [f"from torch.autograd import {', '.join(own)}"] if own else []
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


@dataclass(frozen=True)
class _Definition:
    """A function or a constant of the runtime, with the others that it reads."""

    lines: tuple[str, ...]
    names: tuple[tokenize.TokenInfo, ...]
    """The tokens of all names but attributes."""
    reads: frozenset[str]
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
                found[name] = n, tuple(lines[n.lineno - 1 : n.end_lineno])
    made = {}
    for name, (n, own) in found.items():
        names = tuple(t for t, _ in _names("\n".join(own)))
        reads = frozenset(t.string for t in names) & found.keys() - {name}
        made[name] = _Definition(own, names, reads, isinstance(n, ast.FunctionDef | ast.ClassDef))
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
    known = _definitions(runtime() if shared is None else shared)
    if not imports(text):
        return text
    names = list(_names(text))
    calls = [(rt, t) for t, rt in names if rt is not None]
    needed = _closure((t.string for _, t in calls), known)
    taken = {t.string for t, rt in names if rt is None}
    new = {name: _private(name, taken) for name in needed}
    edits = [(rt.start, t.end, new[t.string]) for rt, t in calls]
    text = "\n".join(_edited(text.split("\n"), edits))
    text = re.sub(rf"\n +{IMPORT}\n", "\n", text)
    constants, functions = _copies(known, new)
    return _with_copies(text, constants, functions)


def _names(text: str) -> Iterator[tuple[tokenize.TokenInfo, tokenize.TokenInfo | None]]:
    """Yield each name that is no attribute, with None, and the name of each call of ``rt``.

    The latter come with the token of ``rt``.
    """
    last: list[tokenize.TokenInfo] = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME:
            after_dot = bool(last) and last[-1].string == "."
            of_rt = after_dot and len(last) > 1 and last[-2].string == "rt"
            if not after_dot:
                yield token, None
            elif of_rt:
                yield token, last[-2]
        last = [*last[-1:], token]


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


def _edited(
    lines: Iterable[str], edits: Iterable[tuple[tuple[int, int], tuple[int, int], str]]
) -> list[str]:
    """Return the lines with parts replaced: (start, end, new), positions of tokens."""
    edited = list(lines)
    for (row, start), (_, end), new in sorted(edits, reverse=True):
        edited[row - 1] = edited[row - 1][:start] + new + edited[row - 1][end:]
    return edited


def _copies(
    known: Mapping[str, _Definition], new: Mapping[str, str]
) -> tuple[list[str], list[str]]:
    """Return the lines of constants and of functions, under their new names."""
    constants: list[str] = []
    functions: list[str] = []
    for name in new:
        edits = [(t.start, t.end, new[t.string]) for t in known[name].names if t.string in new]
        lines = _edited(known[name].lines, edits)
        if known[name].is_function:
            functions += [*lines, "", ""]
        else:
            constants += lines
    return constants, functions


def _with_copies(text: str, constants: Sequence[str], functions: Sequence[str]) -> str:
    """Return the module with these definitions after its imports, and with their imports."""
    lines = text.split("\n")
    imports: list[ast.Import | ast.ImportFrom] = []
    for statement in ast.parse(text).body:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            imports.append(statement)
        elif imports:
            break
    first, end = imports[0].lineno - 1, imports[-1].end_lineno or 0
    names = {alias.name for n in imports for alias in n.names} - {"_runtime"}
    names |= _imported_names("\n".join([*constants, *functions]))
    copies = [*(["", *constants] if constants else []), "", "", *functions]
    return "\n".join([*lines[:first], *_statements(names), *copies, *_without_blanks(lines[end:])])


def _without_blanks(lines: Sequence[str]) -> Sequence[str]:
    first = next(n for n, line in enumerate(lines) if line)
    return lines[first:]
