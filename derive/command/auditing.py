"""``derive audit``: find wrong and fragile gradients of hand-written autograd.Functions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from derive.command.console import print_json, print_note, shown
from derive.command.objects import examples_of, named_object, reference_of
from derive.command.options import Json, Quiet, hush, need_torch
from derive.errors import DeriveError

if TYPE_CHECKING:
    from derive.auditing.report import Report


def audit(
    function: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:CLASS | PACKAGE",
            help="The Function: MODULE:CLASS, or FILE.py:CLASS. With --examples, a package.",
        ),
    ],
    example: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.py", help="Defines examples(), which returns lists of forward arguments."
        ),
    ] = None,
    examples: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.py",
            help="Defines examples, a mapping from MODULE:CLASS to lists of forward arguments.",
        ),
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:NAME | TEXT",
            help="The intended forward: a torch function, an operation, or index notation.",
        ),
    ] = None,
    constant: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A float argument that needs no gradient; repeatable."),
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Call backward once only: the Function reuses memory.")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 1 for a fragile Function too.")
    ] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Derive the gradients even if all are right.")
    ] = False,
    full: Annotated[
        bool, typer.Option("--full", help="Print all derived formulas, however many.")
    ] = False,
    fix: Annotated[
        Path | None,
        typer.Option(
            metavar="OUT.py", help="Write a module with the derived backward to this file."
        ),
    ] = None,
    timeout: Annotated[
        float,
        typer.Option(metavar="SECONDS", help="Time limit for one Function, in seconds.", min=1.0),
    ] = 120.0,
    format_: Annotated[
        str,
        typer.Option(
            "--format", metavar="text|github|sarif", help="How --examples reports findings."
        ),
    ] = "text",
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Check each gradient of a hand-written autograd.Function.

    A gradient is wrong if backward silently gives other numbers at the structure of the examples;
    the report names the wrong term. It is fragile if backward raises, or is wrong only at sizes or
    values that no example has. The exit code is 0 if no gradient is wrong, 1 if one is, 2 if the
    Function cannot be judged.

    The file of --example returns one list of arguments per call of the forward:

    \b
      import torch
      def examples(): return [[torch.randn(3, 5), torch.randn(5)]]
    """
    need_torch()
    hush(quiet)
    if (example is None) == (examples is None):
        raise typer.BadParameter("give --example FILE.py, or --examples FILE.py for a package")
    if examples is not None:
        from derive.command.audit_table import audit_package

        if reference or constant or fix or explain or once:
            raise typer.BadParameter(
                "with --examples, a Function's options are in its entry: "
                "{'examples': [[..]], 'reference': .., 'constants': [..], 'once': True}"
            )
        raise typer.Exit(audit_package(function, examples, timeout, strict, format_, json_, quiet))
    if format_ != "text":
        raise typer.BadParameter("--format is for --examples; use --json for one Function")
    assert example is not None
    from derive.auditing.audit import audit_all

    given = named_object(function), examples_of(example), reference_of(reference), constant or ()
    report = audit_all(*given, once, explain or fix is not None, timeout)
    if fix is not None:
        if not report.fixed:
            raise DeriveError(
                f"{report.name}: the forward could not be read, so there is no derived backward to "
                "write; give the operation in index notation with --reference",
                kind="audit-inputs",
            )
        fix.write_text(report.fixed, encoding="utf-8")
    if json_:
        from derive.command.audit_table import as_json

        print_json(as_json(report))
    elif not (quiet and report.verdict == "right"):
        typer.echo(report.text(full))
        if fix is not None:
            typer.echo(f"wrote {shown(fix)}")
    if report.verdict == "fragile" and not strict and not quiet and not json_:
        print_note("a fragile Function exits with 0; --strict makes it 1")
    raise typer.Exit(exit_code(report, strict))


def exit_code(report: Report, strict: bool) -> int:
    """Return 1 for a wrong gradient, and with ``strict`` for a fragile one; else 0."""
    return int(report.verdict == "wrong" or (strict and report.verdict == "fragile"))
