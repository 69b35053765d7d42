"""Options that several commands share."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from enum import StrEnum
from math import isnan
from pathlib import Path
from typing import Annotated

import typer

from derive.command.project import complete_name
from derive.errors import DeriveError, DeriveWarning


def _positive(seconds: float) -> float:
    if isnan(seconds) or seconds <= 0:
        raise typer.BadParameter("must be a positive number of seconds")
    return seconds


OPERAND = typer.Argument(
    metavar="NAME | FILE:NAME",
    help="An operation of the project or the catalog, or of a spec file.",
    autocompletion=complete_name,
)
Operand = Annotated[str | None, OPERAND]
SpecText = Annotated[
    str | None, typer.Option(metavar="TEXT", help="The operation itself, in index notation.")
]


def require_one(name: str | None, spec: str | None) -> None:
    """Check that an operation is given by its name or as a text, and not both."""
    if (name is None) == (spec is None):
        raise typer.BadParameter("give one operation: NAME, FILE:NAME, or --spec TEXT")


Specs = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="SPEC_FILE | NAME",
        help="Spec files, folders, or operations. Default: the specs of [tool.derive].",
    ),
]
Blocks = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=n",
        help="Process index n of operation NAME in blocks. NAME= disables blocks. Repeatable.",
    ),
]


class Save(StrEnum):
    """What a module saves for its backward."""

    balanced = "balanced"
    least = "least"


Saves = Annotated[
    Save | None,
    typer.Option(
        "--save",
        help="What the forward saves. balanced: also intermediates that are cheaper to keep than "
        "to recompute. least: inputs and outputs only. Default: as in the existing module.",
    ),
]


class Style(StrEnum):
    """How a module is written."""

    production = "production"
    plain = "plain"


Styles = Annotated[
    Style | None,
    typer.Option(
        "--style",
        help="How the module is written. production: fast, with checks of its arguments. plain: "
        "short, to be read: the formulas as a Function. Default: as in the existing module.",
    ),
]
Standalone = Annotated[
    bool | None,
    typer.Option(
        "--standalone/--shared",
        help="Whether each module has copies of the functions that it calls, or imports the "
        "_runtime.py beside it. Default: standalone of [tool.derive], else shared.",
    ),
]
Out = Annotated[
    str | None, typer.Option(metavar="DIR", help="The folder of the generated modules.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Watch = Annotated[
    bool, typer.Option("--watch", help="Run again whenever a spec file changes, until Ctrl-C.")
]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Print errors only.")]
Limit = Annotated[
    float,
    typer.Option(
        "--spec-timeout",
        metavar="SECONDS",
        callback=_positive,
        help="Time limit per spec file, in seconds.",
    ),
]


def hush(quiet: bool) -> None:
    """Disable warnings if ``quiet``."""
    if quiet:
        warnings.simplefilter("ignore", DeriveWarning)


def warn(texts: Iterable[str]) -> None:
    """Issue the warnings, each as soon as it is known."""
    for text in texts:
        warnings.warn(text, DeriveWarning, stacklevel=2)


def need_torch() -> None:
    """Import torch, so that forks have it; raise a DeriveError if it is not installed."""
    try:
        import torch  # noqa: F401
    except ImportError:
        text = "PyTorch is not installed; run: pip install 'derive-backward[torch]'"
        raise DeriveError(text, kind="missing-package") from None
