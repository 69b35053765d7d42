"""Load the templates of modules and the functions that they share."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment


@cache
def template(name: str) -> str:
    """Read a template."""
    return (root() / name).read_text(encoding="utf-8")


@cache
def root() -> Path:
    """Return the folder of templates: in the package in the wheel, next to it in the repository."""
    package = Path(__file__).resolve().parents[1]
    inside = package / "templates"
    return inside if inside.is_dir() else package.parent / "templates"


@cache
def environment(escapes: bool = False) -> Environment:
    """Return the template environment; with ``escapes``, for HTML."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    return Environment(
        loader=FunctionLoader(template),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=escapes,
    )
