"""Output of the command line: results on stdout, everything else on stderr."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence, Sized
from pathlib import Path
from shlex import quote
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from derive.errors import DeriveError

if TYPE_CHECKING:
    from derive.command.difference import Difference

_Item = TypeVar("_Item")


def print_json(value: Any) -> None:
    typer.echo(json.dumps(value, ensure_ascii=False, indent=2))


def unwritten(text: str) -> DeriveError:
    """Return the error of a file or folder that cannot be written."""
    return DeriveError(text, kind="output-file")


def clear() -> None:
    """Clear the screen if the output is a terminal."""
    if sys.stdout.isatty():
        typer.echo("\x1b[2J\x1b[H", nl=False)


def print_pages(text: str) -> None:
    """Print a text; on a terminal that it does not fit, in the pager of the user."""
    size = get_terminal_size()
    rows = sum(max(1, -(-len(line) // size.columns)) for line in text.splitlines())
    if not (sys.stdout.isatty() and sys.stdin.isatty()) or rows < size.lines:
        typer.echo(text, nl=False)
        return
    from pydoc import pager

    # As git does: less ends at once if all fits, leaves the text there, and shows colors.
    os.environ.setdefault("LESS", "FRX")
    pager(text)


def print_note(text: str) -> None:
    """Print a note on stderr."""
    typer.echo(f"derive: {text}", err=True)


def print_warning(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
    """Print a warning; replaces `warnings.showwarning`."""
    typer.echo(f"derive: warning: {message}", err=True)


def print_generated(
    failures: Sequence[str],
    written: Sequence[Path],
    removed: Sequence[Path],
    outcome: tuple[str, str],
    keep_going: bool,
    quiet: bool,
) -> None:
    """Print written files and failures; ``outcome`` is (how many, what became of them)."""
    from derive.command.difference import unwanted

    for failure in failures:
        typer.echo(f"wrong: {failure}")
    many, state = outcome
    if not quiet:
        for path in written:
            typer.echo(f"wrote {shown(path)}")
        for path in removed:
            typer.echo(f"removed {shown(path)}: {unwanted(path)}")
    if failures:
        rest = "failed; their files are unchanged" if keep_going else "failed; nothing is written"
        typer.echo(f"{len(failures)} of {many} {rest}")
    if not quiet and (keep_going or not failures):
        typer.echo(state)


def mends(found: Sequence[Difference]) -> bool:
    """True if ``derive generate`` would remove all differences: no foreign file is in the way."""
    return bool(found) and all(d.kind != "foreign" for d in found)


def print_differences(found: Sequence[Difference], mend: str, named: bool, quiet: bool) -> None:
    """Print the differences and the command that fixes them.

    ``named`` is True if specs were given.
    """
    for d in found:
        typer.echo(f"{d.kind}: {shown(d.path)}" + (f" ({d.why})" if d.why else ""))
        if not quiet:
            typer.echo(d.patch, nl=bool(d.patch) and d.patch[-1] != "\n")
    foreign = [d for d in found if d.kind == "foreign"]
    if foreign:
        typer.echo("to fix: move these files, rename the operations, or choose another --out;")
        typer.echo(f"        then {mend}")
        for d in foreign:
            typer.echo(f"        {shown(d.path)}")
    elif found:
        typer.echo(f"to fix: {mend}")
    for d in found:
        if named and d.kind == "stale":
            typer.echo(f"        rm {quote(shown(d.path))}")


def count(things: Sized | int, noun: str = "operation") -> str:
    """Return "N operations", "1 file"."""
    number = things if isinstance(things, int) else len(things)
    return f"{number} {noun}{'s' * (number != 1)}"


def shown(path: Path) -> str:
    """Return the path relative to the working folder if it is below."""
    try:
        return str(path.resolve().relative_to(Path.cwd().resolve()))
    except ValueError:
        return str(path)


def print_line(parts: Sequence[tuple[str, str]]) -> None:
    """Print a line of (text, style) parts; styles show on a terminal only."""
    from rich.console import Console
    from rich.text import Text

    text = Text.assemble(*parts)
    Console(soft_wrap=True).print(text, markup=False, highlight=False)


def progress(items: Iterable[_Item], doing: str, total: int) -> Iterator[_Item]:
    """Yield the items, with a progress bar on stderr if that is a terminal."""
    if not sys.stderr.isatty() or total < 2:
        yield from items
        return
    from rich.console import Console
    from rich.progress import track

    yield from track(items, doing, total=total, console=Console(stderr=True), transient=True)
