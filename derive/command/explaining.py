"""The command ``explain``: what an error means, and what helps."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Annotated

import typer

from derive.command.console import print_pages
from derive.errors import KINDS, DeriveError, code_of
from derive.notation.comments import first_sentence

_PAGE = Path(__file__).parents[1] / "docs" / "error-codes.md"
"""The page of the guide: a section for each kind of error, with the code in its heading."""


def _complete(incomplete: str) -> list[str]:
    known = [*map(code_of, KINDS), *map(str, KINDS)]
    return [word for word in known if word.lower().startswith(incomplete.lower())]


def explain(
    code: Annotated[
        str | None,
        typer.Argument(
            metavar="[CODE]",
            help="D009, d9, or the words: unknown-function.",
            autocompletion=_complete,
        ),
    ] = None,
) -> None:
    """Explain an error by its code, with an example and its mend.

    Messages have the code in brackets at the end of their first line. Without a code, all codes
    are listed.
    """
    if code is None:
        for key, (title, text) in _sections().items():
            typer.echo(f"{key}  {title:<24}  {first_sentence(' '.join(_plain(text.strip())))}")
    else:
        key = _key_of(code)
        title, text = _sections()[key]
        print_pages("\n".join([f"{key}: {title}", *_plain(text)]) + "\n")


def _key_of(given: str) -> str:
    """Return the code that is meant, such as ``D009``.

    Raises:
        DeriveError: there is none.
    """
    words = re.sub(r"\W+", "-", given.strip("[] ").lower())
    number = re.fullmatch(r"d?0*(\d+)", words)
    if number and 0 < int(number[1]) <= len(KINDS):
        return code_of(KINDS[int(number[1]) - 1])
    names = {str(kind): code_of(kind) for kind in KINDS}
    if words in names:
        return names[words]
    near = [f"{names[name]} ({name})" for name in get_close_matches(words, names, 3)]
    meant = f"did you mean {' or '.join(near)}?" if near else "`derive explain` lists all codes"
    raise DeriveError(f"no error has the code {given}; {meant}", kind="unknown-code")


@cache
def _sections() -> Mapping[str, tuple[str, str]]:
    """Return code -> (title, Markdown) of the sections of the page."""
    parts = re.split(r"^## (D\d+): (.+)\n", _PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {
        code: (title, text.rstrip())
        for code, title, text in zip(parts[1::3], parts[2::3], parts[3::3], strict=True)
    }


def _plain(markdown: str) -> Iterator[str]:
    """Yield the lines of Markdown as a terminal shows them: code indented, links as their words."""
    inside = False
    for line in markdown.split("\n"):
        if line.startswith("```"):
            inside = not inside
        elif inside:
            yield f"    {line}".rstrip()
        elif not line.startswith("<!--"):
            yield re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", line)
