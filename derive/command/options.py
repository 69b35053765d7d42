"""What several commands take: their options, and what these mean."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from enum import StrEnum
from math import isnan
from pathlib import Path
from typing import Annotated

import typer

from derive.errors import DeriveError, DeriveWarning

LIMIT = 30.0
"""Seconds that one spec file may take."""


def complete_name(incomplete: str) -> list[str]:
    """Names of operations; nothing is read but the texts of specs."""
    from derive import catalog
    from derive.command.project import find_project, names_of

    try:
        return [n for n in names_of(find_project(Path.cwd())) if n.startswith(incomplete)]
    except (DeriveError, OSError):
        return list(catalog.names())


def _positive(seconds: float) -> float:
    if isnan(seconds) or seconds <= 0:
        raise typer.BadParameter("a time above 0, in seconds")
    return seconds


Specs = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="[SPEC_FILE | NAME]...",
        help="Files, folders or operations; else those of [tool.derive].",
    ),
]
Blocks = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=n",
        help="An index that the module of NAME takes in blocks, none after NAME= alone; repeated.",
    ),
]


class Save(StrEnum):
    """What a module keeps for its backward."""

    balanced = "balanced"
    least = "least"


Saves = Annotated[
    Save | None,
    typer.Option(
        "--save",
        help="What is kept for the backward: what costs more to compute again, or inputs and "
        "outputs alone; else as each module that is there has it.",
    ),
]
Out = Annotated[str | None, typer.Option(metavar="DIR", help="The folder of the modules.")]
Json = Annotated[bool, typer.Option("--json", help="Write JSON.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Only what is wrong.")]
Limit = Annotated[
    float,
    typer.Option(
        "--spec-timeout",
        metavar="SECONDS",
        callback=_positive,
        help="What one spec file may take.",
    ),
]


def hush(quiet: bool) -> None:
    """Quiet is without warnings: what a spec may do is not wrong."""
    if quiet:
        warnings.simplefilter("ignore", DeriveWarning)


def warn(texts: Iterable[str]) -> None:
    """These warnings, each once it is known."""
    for text in texts:
        warnings.warn(text, DeriveWarning, stacklevel=2)


def need_torch() -> None:
    """A DeriveError where torch is not installed; else it is there for copies of this process."""
    try:
        import torch  # noqa: F401
    except ImportError:
        raise DeriveError("this needs torch: pip install 'derive-backward[torch]'") from None
