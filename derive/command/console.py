"""What the command line prints: results on stdout, the rest on stderr. It decides nothing."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import typer

from derive.command.modules import Difference
from derive.spec.operation import Operation

__all__ = [
    "count",
    "print_differences",
    "print_generated",
    "print_json",
    "print_lines",
    "print_warning",
    "progress",
    "shown",
    "table",
]

_Item = TypeVar("_Item")

_WHY = {
    "missing": "",
    "stale": " (generated, but no spec asks for it)",
    "differs": " (edited by hand, or its spec has changed)",
}


def print_json(value: Any) -> None:
    """The value as JSON."""
    typer.echo(json.dumps(value, ensure_ascii=False, indent=2))


def print_lines(lines: Iterable[str]) -> None:
    """A result a line."""
    for line in lines:
        typer.echo(line)


def print_warning(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
    """A warning, as `warnings.showwarning` takes one."""
    typer.echo(f"derive: warning: {message}", err=True)


def print_generated(
    failures: Sequence[str],
    written: Sequence[Path],
    removed: Sequence[Path],
    outcome: tuple[str, str],
) -> None:
    """What was written, or what did not verify; ``outcome`` is (of what, the last line)."""
    for failure in failures:
        typer.echo(f"wrong: {failure}")
    for path in written:
        typer.echo(f"wrote {shown(path)}")
    for path in removed:
        typer.echo(f"removed {shown(path)}: no spec asks for it")
    many, state = outcome
    if failures:
        typer.echo(f"{len(failures)} of {many} did not verify; nothing is written")
    else:
        typer.echo(f"{many} {state}")


def print_differences(found: Sequence[Difference], mend: str, named: bool) -> None:
    """What is not as the specs say, and what mends it; ``named`` where specs were named."""
    for d in found:
        typer.echo(f"{d.kind}: {shown(d.path)}{_WHY[d.kind]}")
        typer.echo(d.patch, nl=False)
    if found:
        typer.echo(f"to mend it: {mend}")
    for d in found:
        if named and d.kind == "stale":
            typer.echo(f"            rm {shown(d.path)}")


def count(operations: Sequence[Operation] | dict[str, str]) -> str:
    """How many operations."""
    return f"{len(operations)} operation{'' if len(operations) == 1 else 's'}"


def shown(path: Path) -> str:
    """The path from here where it lies below."""
    try:
        return str(path.resolve().relative_to(Path.cwd().resolve()))
    except ValueError:
        return str(path)


def table(rows: Sequence[Any]) -> None:
    """One line for each operation and option."""
    from rich.console import Console
    from rich.table import Table

    made = Table("operation", "option", "passed", "wrong")
    lines = dict.fromkeys((row.operation, row.option) for row in rows)
    for operation, option in lines:
        mine = [r for r in rows if (r.operation, r.option) == (operation, option)]
        wrong = ", ".join(dict.fromkeys(r.check for r in mine if not r.ok))
        passed = f"{sum(r.ok for r in mine)} of {len(mine)}"
        made.add_row(operation, option or "", passed, wrong)
    Console(markup=False, highlight=False).print(made)


def progress(items: Iterable[_Item], doing: str, total: int) -> Iterator[_Item]:
    """The items, ``total`` of them, as they come; a bar on stderr where that is a terminal."""
    if not sys.stderr.isatty() or total < 2:
        yield from items
        return
    from rich.console import Console
    from rich.progress import track

    yield from track(items, doing, total=total, console=Console(stderr=True), transient=True)
