"""The commands ``verify`` and ``compare``."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from derive import catalog
from derive.budget import SECONDS
from derive.command.console import print_json, print_note, progress, shown
from derive.command.options import OPERAND, Json, Limit, Quiet, hush, need_torch
from derive.command.project import (
    ProjectOperation,
    complete_name,
    find_project,
    lookup,
    module_of,
    operations_of,
)
from derive.command.verify_table import print_verified
from derive.errors import DeriveError

if TYPE_CHECKING:
    from derive.check.invoke import Column


class Dtype(StrEnum):
    """The dtypes of ``compare``."""

    float32 = "float32"
    float64 = "float64"


def complete_check(incomplete: str) -> list[str]:
    """Complete the names of checks."""
    from derive.check.checks import ALL

    return [column.name for column in ALL if column.name.startswith(incomplete)]


def verify(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME",
            help="Operations. Default: all operations of the project, or of the catalog.",
            autocompletion=complete_name,
        ),
    ] = None,
    all_: Annotated[
        bool, typer.Option("--all", help="Run every check, including torch.compile and exports.")
    ] = False,
    check: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CHECK", help="Run only this check. Repeatable.", autocompletion=complete_check
        ),
    ] = None,
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="Explain the checks, and why some do not apply.")
    ] = False,
    json_: Json = False,
    quiet: Quiet = False,
    limit: Limit = SECONDS,
) -> None:
    """Run gradcheck-style tests on generated modules.

    The table has one row per operation and one column per check.
    """
    from derive.command.build import checked

    hush(quiet)
    columns = _columns(all_, check or [])
    project = find_project(Path.cwd())
    found = [lookup(name, project, limit) for name in names or ()]
    if not names and project is not None:
        found = list(operations_of(project.specs, limit).values())
    elif not names:
        found = [ProjectOperation(op) for op in catalog.operations()]
        if not quiet:
            print_note(
                f"no project here: verifying the {len(found)} operations of the catalog, which "
                "takes minutes; to verify a few, give their names"
            )
    need_torch()
    modules = [(one.operation, module_of(one, project)) for one in found]
    rows = []
    for checks in progress(checked(modules, columns), "verifying", len(modules)):
        if isinstance(checks, DeriveError):
            raise checks
        rows += checks
    if json_:
        print_json([vars(row) for row in rows])
    else:
        print_verified(rows, columns, verbose, quiet)
    raise typer.Exit(0 if all(row.ok for row in rows) else 1)


def _columns(every: bool, names: Sequence[str]) -> Sequence[Column]:
    """Return the selected checks."""
    from derive.check.checks import ALL, QUICK

    known = {column.name: column for column in ALL}
    if every and names:
        text = "--all already runs every check: omit one of the two"
        raise typer.BadParameter(text, param_hint="--check")
    for name in names:
        if name not in known:
            text = f"no check is called {name!r}; the checks are {', '.join(known)}"
            raise typer.BadParameter(text, param_hint="--check")
    if names:
        return [column for column in ALL if column.name in names]
    return ALL if every else QUICK


# --------------------------------------------------------------------- compare


def compare(
    name: Annotated[str, OPERAND],
    dtype: Annotated[Dtype, typer.Option("--dtype", help="Dtype of the inputs.")] = Dtype.float32,
    size: Annotated[
        list[str] | None,
        typer.Option(metavar="n=32", help="The size of an index (p=2,3 for a group). Repeatable."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Seed of the random inputs.")] = 0,
    json_: Json = False,
    quiet: Quiet = False,
    limit: Limit = SECONDS,
) -> None:
    """Compare every gradient with torch.autograd.

    The table has one row per input and per equation. The gradients of inputs come from the
    generated module if it exists; all others are derived now.
    """
    from derive.check.comparison import compare_all
    from derive.check.inputs import sizes_of
    from derive.command.build import text_of
    from derive.command.lines import comparison_as_json, comparison_title

    hush(quiet)
    project = find_project(Path.cwd())
    one = lookup(name, project, limit)
    sizes = sizes_of(size or ())
    need_torch()
    path = module_of(one, project)
    module = None if path is None else (shown(path), text_of(path))
    found = []
    for compared in compare_all(one.operation, sizes, dtype.value, seed, module):
        found.append(compared)
        if not json_ and not (quiet and compared.comparison.approximate):
            typer.echo(f"{comparison_title(compared)}\n{compared.comparison}")
    if json_:
        print_json([comparison_as_json(compared) for compared in found])
    raise typer.Exit(0 if all(c.comparison.approximate for c in found) else 1)
