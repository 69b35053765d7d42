"""``derive lint``: find faults in the source of hand-written Functions."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from derive.command.console import count, print_json, print_note, shown
from derive.command.options import Json, Quiet
from derive.command.project import lint_table
from derive.errors import DeriveError

if TYPE_CHECKING:
    from derive.linting.source_model import Finding


class LintStyle(StrEnum):
    """The output formats of ``lint``."""

    text = "text"
    github = "github"


class _LintedFunction(NamedTuple):
    file: str
    finding: Finding


def lint(
    paths: Annotated[
        list[Path] | None, typer.Argument(metavar="[FILE | FOLDER]...", help="Else this folder.")
    ] = None,
    select: Annotated[
        list[str] | None,
        typer.Option(metavar="CODES", help="These rules alone: DRV101,DRV4; repeated."),
    ] = None,
    ignore: Annotated[
        list[str] | None, typer.Option(metavar="CODES", help="All rules but these; repeated.")
    ] = None,
    explain: Annotated[
        str | None, typer.Option(metavar="CODE", help="Print the page of a rule.")
    ] = None,
    format_: Annotated[
        LintStyle, typer.Option("--format", help="Lines of text, or annotations of GitHub.")
    ] = LintStyle.text,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Report faults of hand-written Functions from their source.

    Exits with 0 where there is none, 1 where there is one, 2 where a file cannot be read.
    """
    from derive.linting.lint import RULES, page

    if explain is not None:
        if explain not in RULES:
            text = f"no rule {explain}; the rules are {', '.join(RULES)}"
            raise DeriveError(text, kind="unknown-code")
        typer.echo(page(explain))
        return
    table = lint_table(Path.cwd())
    codes = _selected_codes(select or table.get("select", []), ignore or table.get("ignore", []))
    found, functions, files, unread = _lint(paths or [Path()], codes, table.get("exclude", []))
    _print_linted(found, format_, json_)
    if not (quiet or json_) and format_ is LintStyle.text:
        typer.echo(_summary(len(found), functions, files))
    raise typer.Exit(2 if unread else 1 if found else 0)


def _lint(
    paths: Sequence[Path], codes: Sequence[str], exclude: Sequence[str]
) -> tuple[list[_LintedFunction], int, int, int]:
    """Return the findings, and the numbers of Functions, files with some, and unreadable files."""
    from derive.linting.lint import lint as lint_text
    from derive.linting.lint import python_files

    found: list[_LintedFunction] = []
    functions = files = unread = 0
    for path in python_files(paths, exclude):
        try:
            text = path.read_text(encoding="utf-8-sig")
            if "Function" not in text and path not in paths:
                continue
            linted = lint_text(text, codes)
        except (OSError, SyntaxError, ValueError, RecursionError) as error:
            print_note(_problem(path, error))
            unread += 1
            continue
        files += bool(linted.functions)
        functions += linted.functions
        found += [_LintedFunction(shown(path), finding) for finding in linted.findings]
    return found, functions, files, unread


def _problem(path: Path, error: Exception) -> str:
    """Say why a file cannot be read, with the position of a syntax error."""
    match error:
        case SyntaxError():
            return f"{shown(path)}:{error.lineno or 1}:{error.offset or 1}: {error.msg}"
        case OSError():
            return f"{shown(path)}: {error.strerror}"
        case RecursionError():
            return f"{shown(path)}: the code is nested too deeply"
    return f"{shown(path)}: {error}"


def _selected_codes(select: Sequence[str], ignore: Sequence[str]) -> list[str]:
    """Return the selected codes that are not ignored; ``DRV1`` stands for all with that prefix."""
    from derive.linting.lint import RULES

    wanted, unwanted = (
        [code.strip().upper() for text in texts for code in text.split(",")]
        for texts in (select, ignore)
    )
    for prefix in (*wanted, *unwanted):
        if prefix != "ALL" and not (prefix and any(code.startswith(prefix) for code in RULES)):
            message = f"no rule begins with {prefix!r}; the rules are {', '.join(RULES)}"
            raise DeriveError(message, kind="unknown-code")

    def among(code: str, prefixes: Sequence[str]) -> bool:
        return any(prefix == "ALL" or code.startswith(prefix) for prefix in prefixes)

    return [c for c in RULES if (not wanted or among(c, wanted)) and not among(c, unwanted)]


def _print_linted(found: Sequence[_LintedFunction], style: LintStyle, json_: bool) -> None:
    if json_:
        print_json([{"file": file, **finding._asdict()} for file, finding in found])
        return
    for file, finding in found:
        place = f"{file}:{finding.line}:{finding.column}: {finding.code} {finding.message}"
        if style is LintStyle.github:
            where = f"file={file},line={finding.line},col={finding.column}"
            typer.echo(f"::error title=derive ({finding.code}),{where}::{place}")
        else:
            typer.echo(place)


def _summary(found: int, functions: int, files: int) -> str:
    place = f"{count(functions, 'Function')} of {count(files, 'file')}"
    return f"{count(found, 'finding') if found else 'no findings'} in {place}"
