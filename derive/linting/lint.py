"""Find faults in the text of a file, except those that a comment ``# noqa`` excuses."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

from derive.linting import cotangents, double_backward, returned_gradients, saved_state
from derive.linting.functions import functions_of, names_of
from derive.linting.source_model import At, Finding, FunctionReading, helpers_of, read_function

# -------------------------------------------------------------------------------------------- rules
# All rules, by their codes.

Rule = Callable[[FunctionReading], Iterator[At]]

_GUIDE = Path(__file__).parents[1] / "docs" / "lint.md"
"""The page of the guide: a section for each rule, with the code as its heading."""

RULES: dict[str, Rule] = {
    "DRV101": saved_state.tensor_on_ctx,
    "DRV102": saved_state.second_save,
    "DRV103": saved_state.unmarked_change,
    "DRV201": returned_gradients.number_of_gradients,
    "DRV202": returned_gradients.number_of_cotangents,
    "DRV203": returned_gradients.unbound_gradient,
    "DRV204": returned_gradients.other_needs,
    "DRV205": returned_gradients.flag_of_copy,
    "DRV301": cotangents.never_read,
    "DRV302": cotangents.without_cotangent,
    "DRV303": cotangents.changed_cotangent,
    "DRV304": cotangents.changed_saved,
    "DRV305": cotangents.viewed_cotangent,
    "DRV401": double_backward.saved_intermediate,
    "DRV402": double_backward.no_derivative,
}
"""DRV1: what forward keeps; DRV2: what backward takes and returns; DRV3: what it does with
cotangents and saved tensors; DRV4: second derivatives."""


def page(code: str) -> str:
    """Return the section of a rule in the guide: what, why it is wrong, an example, the mend."""
    _, _, rest = _GUIDE.read_text(encoding="utf-8").partition(f"\n## {code}\n\n")
    section, _, _ = rest.partition("\n## ")
    return f"{code}: {section.strip()}"


# --------------------------------------------------------------------------------------------- lint

_NOQA = re.compile(r"#\s*noqa(?P<codes>:\s*[A-Z]+\d+(?:[,\s]+[A-Z]+\d+)*)?", re.IGNORECASE)


class Linted(NamedTuple):
    """The findings of a file in order, and the number of its Functions."""

    findings: list[Finding]
    functions: int


def lint(text: str, codes: Collection[str] = tuple(RULES)) -> Linted:
    """Lint the text of a Python file; a SyntaxError if it does not parse."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes in a person's strings
        tree = ast.parse(text)
    names = names_of(tree)
    functions, count = functions_of(tree, names)
    helpers = helpers_of(tree)
    found: dict[Finding, None] = {}
    for function in functions:
        reading = read_function(function, names, helpers)
        for code in codes:
            for node, message in RULES[code](reading):
                line = getattr(node, "lineno", 1)
                column = getattr(node, "col_offset", 0) + 1
                found[Finding(line, column, code, message, function.name)] = None
    lines = text.splitlines()
    kept = [f for f in found if not _excused(f, lines)]
    places = {(f.line, f.column, f.code): f for f in reversed(kept)}
    return Linted(sorted(places.values()), count)


def _excused(finding: Finding, lines: list[str]) -> bool:
    """True if the line has ``# noqa``, or ``# noqa: CODE`` with the code of the finding."""
    comment = _NOQA.search(lines[finding.line - 1]) if finding.line <= len(lines) else None
    if comment is None:
        return False
    codes = re.findall(r"[A-Z]+\d+", (comment["codes"] or "").upper())
    return not comment["codes"] or finding.code in codes


# -------------------------------------------------------------------------------------------- files
# Find the Python files in files and folders.

SKIPPED = (
    ".*",
    "__pycache__",
    "__pypackages__",
    "_build",
    "build",
    "dist",
    "node_modules",
    "site-packages",
    "venv",
)
"""Names of folders that are skipped within a folder."""


def python_files(paths: Sequence[Path], exclude: Sequence[str] = ()) -> Iterator[Path]:
    """Yield the files themselves, and those in folders, sorted by name; each once."""
    seen = set()
    for path in paths:
        for file in _python_files_in(path, exclude) if path.is_dir() else (path,):
            if file not in seen:
                seen.add(file)
                yield file


def _python_files_in(folder: Path, exclude: Sequence[str]) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if _matches(path, exclude):
            continue
        if path.is_dir():
            if not path.is_symlink() and not any(fnmatch(path.name, s) for s in SKIPPED):
                yield from _python_files_in(path, exclude)
        elif path.suffix == ".py":
            yield path


def _matches(path: Path, patterns: Sequence[str]) -> bool:
    """True if the path or its name matches a pattern: ``tests``, ``old/*.py``."""
    return any(fnmatch(path.name, p) or fnmatch(path.as_posix(), p) for p in patterns)
