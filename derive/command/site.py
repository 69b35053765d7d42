"""The commands ``site`` and ``docs``."""

from __future__ import annotations

import re
import webbrowser
from collections.abc import Iterator, Sequence
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from derive import catalog
from derive.budget import SECONDS
from derive.command.console import count, print_note, progress, unwritten
from derive.command.options import Limit, Quiet, hush
from derive.command.parallel import each
from derive.command.project import lines_of, operations_of, spec_files
from derive.errors import DeriveError

if TYPE_CHECKING:
    from derive.site.views import Entry

_SHARE = 2
"""Pages of operations that take as long as the start of a worker."""


def site(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The folder of the site.")],
    specs: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="SPEC_FILE",
            help="A spec file or folder, in place of the catalog. Repeatable; further files may "
            "follow as arguments.",
        ),
    ] = None,
    more: Annotated[
        list[Path] | None, typer.Argument(metavar="SPEC_FILE", help="Further spec files.")
    ] = None,
    live: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Add a page that derives in the browser; FOLDER is where npm put Pyodide, for "
            "example node_modules/pyodide.",
        ),
    ] = None,
    quiet: Quiet = False,
    limit: Limit = SECONDS,
) -> None:
    """Write a web site of operations and of the guide.

    The pages need no server and no network: open OUT/index.html, or publish the folder.
    """
    hush(quiet)
    if more and not specs:
        raise typer.BadParameter("spec files follow --specs")
    files = spec_files([*(specs or ()), *(more or ())])
    own = ", ".join(file.name for file in files)
    entries = list(_entries(files or catalog.files(), limit))
    if not entries:
        raise DeriveError(f"{own} has no operation", kind="incomplete-operation")
    _prepare(out)
    written, failures = _write(out, entries, own, live)
    for failure in failures:
        typer.echo(f"wrong: {failure}")
    if written and not quiet:
        typer.echo(f"{count(written)}, written to {out / 'index.html'}")
    if failures:
        raise typer.Exit(1)


def docs(
    print_: Annotated[
        bool, typer.Option("--print", help="Print the path of the first page, and open nothing.")
    ] = False,
) -> None:
    """Open the guide in a browser, from files of this installation."""
    from derive.loaded import folder
    from derive.site.build import GUIDE

    out = folder() / "docs"
    _prepare(out)
    _write(out, [], "")
    first = (out / GUIDE).resolve()
    if print_ or not webbrowser.open(first.as_uri()):
        typer.echo(first)


def _entries(paths: Sequence[Path], limit: float) -> Iterator[Entry]:
    """Yield the operations of spec files; a file is a family."""
    from derive.site.views import Entry

    lines = lines_of(paths, limit)
    texts = {path: _statements(path) for path in paths if path.suffix == ".derive"}
    for name, found in operations_of(paths, limit).items():
        line, path = lines[name]
        text = texts.get(path, {}).get(name, "")
        yield Entry(found.operation, path.stem, line["signature"], line["description"], text)


def _statements(path: Path) -> dict[str, str]:
    """Return the text of each operation of a file in index notation, as it is written."""
    found = {}
    parts = re.split(r"^(?=op\s)", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    for part in parts:
        if name := re.match(r"op\s+(\w+)", part):
            # What follows a blank line is the comment of the next operation.
            found[name[1]] = re.sub(r"\n[ \t]*\n\s*#(.*\n?)*\Z", "", part).strip()
    return found


def _prepare(out: Path) -> None:
    """Make the folder; raise a DeriveError if it has files that are no site."""
    from derive.site.build import MARKER

    if out.exists() and not out.is_dir():
        raise unwritten(f"{out} is not a folder; choose another folder for the site")
    if out.is_dir() and any(out.iterdir()) and not (out / MARKER).exists():
        raise unwritten(f"{out} has files that are no site of derive; choose another folder")
    out.mkdir(parents=True, exist_ok=True)


def _write(
    out: Path, entries: Sequence[Entry], own: str, live: Path | None = None
) -> tuple[list[Entry], list[str]]:
    """Write all files of the site, and remove pages of operations that are gone.

    Returns the operations that have a page, and what is wrong with the others.
    """
    from derive.site.build import assets, live_assets, operation_address, operation_page, pages
    from derive.site.picture import missing

    for address, content in assets():  # the marker of the folder among them, so first
        _put(out / address, content)
    for address, content in live_assets(live) if live else ():
        _put(out / address, content)
    written, failures = [], []
    lacks = missing() if entries else ""
    if lacks:
        print_note(f"the pages have no pictures: {lacks}")
    one_page = partial(operation_page, live=live is not None, drawn=not lacks)
    made = each(one_page, entries, attrgetter("name"), _SHARE)
    shown = progress(made, "writing pages", len(entries))
    for entry, text in zip(entries, shown, strict=True):
        if isinstance(text, DeriveError):
            failures.append(f"{entry.name}: {text}")
        else:
            written.append(entry)
            _put(out / operation_address(entry.name), text.encode())
    for address, page in pages(written, own, live is not None):
        _put(out / address, page.encode())
    known = {out / operation_address(entry.name) for entry in written}
    for path in set((out / "op").glob("*.html")) - known:
        path.unlink()
    return written, failures


def _put(path: Path, content: bytes) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
