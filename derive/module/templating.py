"""Load the module templates and the helper functions of generated code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment


def imports_of(lines: Sequence[str]) -> list[str]:
    """Return the import statements that the code needs."""
    whole = "\n".join(lines)
    standard = {
        "contextlib.": "import contextlib",
        "math.": "import math",
        "Literal[": "from typing import Literal",
    }
    found = [statement for use, statement in standard.items() if use in whole]
    if "torch." in whole:
        found += ["", "import torch"] if found else ["import torch"]
    return found


@cache
def _template(name: str) -> str:
    """Read a template: inside the package in the wheel, next to it in the repository."""
    inside = files("derive").joinpath("templates", name)
    if inside.is_file():
        return inside.read_text(encoding="utf-8")
    beside = Path(__file__).resolve().parents[2] / "templates" / name
    return beside.read_text(encoding="utf-8")


@cache
def environment() -> Environment:
    """Return the template environment."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    return Environment(
        loader=FunctionLoader(_template),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )


_HELPERS = (
    *("parameters", "tensors", "blocks", "dtypes", "ieee", "attention", "positions", "scans"),
    *("along", "views", "choices", "own", "norms", "functions", "tangents"),
)
"""The files of helper functions; callers come before the functions that they call."""


@cache
def _helpers() -> dict[str, list[str]]:
    """Return helper name -> lines, callers before the functions that they call."""
    files = (_template(f"helpers/{name}.py") for name in _HELPERS)
    parts = (part for text in files for part in text.rstrip("\n").split("\n\n\n"))
    functions = (part for part in parts if part.startswith("def "))
    return {f[len("def ") : f.index("(")]: f.split("\n") for f in functions}


@cache
def _plain_helpers() -> dict[str, list[str]]:
    """Return helper name -> lines: those of plain modules, then all others."""
    parts = _template("helpers/plain.py").rstrip("\n").split("\n\n\n")
    functions = (part for part in parts if part.startswith("def "))
    return _helpers() | {f[len("def ") : f.index("(")]: f.split("\n") for f in functions}


def plain_helpers_in(lines: Sequence[str]) -> list[str]:
    """Return the source of the helper functions of a plain module."""
    return _called_helpers(_plain_helpers(), lines)


def helpers_in(lines: Sequence[str]) -> list[str]:
    """Return the source of the helper functions that the code calls, directly or not."""
    return _called_helpers(_helpers(), lines)


def _called_helpers(helpers: Mapping[str, list[str]], lines: Sequence[str]) -> list[str]:
    """Return the source of those of the helpers that the code calls, directly or not."""
    found: list[str] = []
    for name, own in helpers.items():
        every = "\n".join((*lines, *found, ""))
        if f"{name}(" in every or f"@{name}\n" in every:
            found += [*own, "", ""]
    return found
