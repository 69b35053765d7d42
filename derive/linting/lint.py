"""Find faults in the text of a file, except those that a comment ``# noqa`` excuses."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Collection
from typing import NamedTuple

from derive.linting.finding import Finding
from derive.linting.functions import functions_of
from derive.linting.names import names_of
from derive.linting.rules import RULES
from derive.linting.source_model import helpers_of, read_function

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
