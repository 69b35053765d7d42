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
        typer.Argument(
            metavar="MODULE:CLASS", help="The Function: MODULE:CLASS, or FILE.py:CLASS."
        ),
    ],
    example: Annotated[
        Path,
        typer.Option(
            metavar="FILE.py",
            help="Defines examples(), which returns lists of forward arguments.",
        ),
    ],
    reference: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:NAME | TEXT",
            help="The intended forward: a torch function, an operation, or index notation.",
        ),
    ] = None,
    fix: Annotated[
        Path | None,
        typer.Option(
            metavar="OUT.py", help="Write a module with the derived backward to this file."
        ),
    ] = None,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Check each gradient of a hand-written autograd.Function.

    A wrong gradient is reported with the wrong term. The exit code is 0 if all gradients are
    right, 1 if one is wrong, 2 if the Function cannot be judged.

    The file of --example returns one list of arguments per call of the forward:

    \b
      import torch
      def examples(): return [[torch.randn(3, 5), torch.randn(5)]]
    """
    need_torch()
    from derive.auditing.judged import audit_all

    hush(quiet)
    report = audit_all(named_object(function), examples_of(example), _reference(reference))
    if fix is not None:
        if not report.fixed:
            raise DeriveError(
                f"{report.name}: the forward could not be read, so there is no derived backward to "
                "write; give the operation in index notation with --reference"
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
