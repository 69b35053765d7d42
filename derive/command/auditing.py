"""``derive audit``: a hand-written autograd.Function, right or wrong, and which term."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from derive.command.console import print_json, shown
from derive.command.objects import examples_of, named_object
from derive.command.options import Json, Quiet, hush, need_torch
from derive.errors import DeriveError


def audit(
    function: Annotated[
        str,
        typer.Argument(metavar="MODULE:CLASS", help="A Function; FILE.py:CLASS for one of a file."),
    ],
    example: Annotated[
        Path,
        typer.Option(
            metavar="FILE.py",
            help="Defines examples(), which returns lists of inputs of the forward.",
        ),
    ],
    reference: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:NAME | TEXT",
            help="What the forward is meant to be: a torch function, an operation or its text.",
        ),
    ] = None,
    fix: Annotated[
        Path | None,
        typer.Option(metavar="OUT.py", help="Write the derived backward as a module."),
    ] = None,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Every gradient of a hand-written Function, right or wrong, and which term.

    Exits with 0 where it is right, 1 where it is wrong, 2 where it cannot be judged.
    """
    need_torch()
    from derive.auditing.judged import audit_all

    hush(quiet)
    report = audit_all(named_object(function), examples_of(example), _reference(reference))
    if fix is not None:
        if not report.fixed:
            raise DeriveError(
                f"{report.name} has no derived backward: its forward could not be read; give the "
                "operation by --reference, in index notation"
            )
        fix.write_text(report.fixed, encoding="utf-8")
    if json_:
        print_json(
            {
                "name": report.name,
                "right": report.right,
                "rows": [vars(row) for row in report.rows],
                "remarks": list(report.remarks),
                "second_order": report.second_order,
                "counterexample": report.counterexample,
                "derived": list(report.formulas),
                "written": list(report.written),
            }
        )
    elif not (quiet and report.right):
        typer.echo(str(report))
        if fix is not None:
            typer.echo(f"wrote {shown(fix)}")
    raise typer.Exit(0 if report.right else 1)


def _reference(given: str | None) -> Any:
    """An operation in text, or an object of a module."""
    if given is None or "=" in given:
        return given
    return named_object(given)
