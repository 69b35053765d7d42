"""A finding: a place in a file, the code of a rule and a sentence."""

from __future__ import annotations

import ast
from typing import NamedTuple


class Finding(NamedTuple):
    """The report of a rule; lines and columns count from 1."""

    line: int
    column: int
    code: str
    message: str
    function: str = ""


class At(NamedTuple):
    """A node that a rule reports, with the message."""

    node: ast.AST
    message: str


def listed(names: list[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``, in backquotes."""
    quoted = [f"`{name}`" for name in dict.fromkeys(names)]
    return " and ".join(", ".join(quoted).rsplit(", ", 1))
