"""Tables of text, as a notebook shows them: HTML, Markdown and LaTeX."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from derive.show.typeset import plain

Note = tuple[str, Sequence[str]]
"""A heading, and lines of text below it."""


@dataclass(frozen=True)
class Table:
    """A table with a title above it, and notes below it; all are text."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[Note] = ()

    def html(self) -> str:
        """Return the table as HTML."""
        lines = [f"<p>{escape(self.title)}</p>"] if self.title else []
        lines += ["<table>", _html_row("th", self.head)]
        lines += [*(_html_row("td", row) for row in self.rows), "</table>"]
        for heading, text in self.notes:
            lines += [f"<p>{escape(heading)}</p>"]
            lines += [f"<pre>{escape(chr(10).join(text))}</pre>"] if text else []
        return "\n".join(lines)

    def markdown(self) -> str:
        """Return the table as Markdown."""
        rows = [self.head, ["---"] * len(self.head), *([*map(in_markdown, r)] for r in self.rows)]
        parts = [in_markdown(self.title), "\n".join(f"| {' | '.join(row)} |" for row in rows)]
        for heading, text in self.notes:
            parts += [in_markdown(heading), "\n".join(["```text", *text, "```"]) if text else ""]
        return "\n\n".join(filter(None, parts))

    def latex(self) -> str:
        """Return the rows as an array in a display, which notebooks and LaTeX typeset."""
        rows = [" & ".join(rf"\text{{{plain(cell)}}}" for cell in r) for r in self.rows]
        head = " & ".join(rf"\textbf{{{plain(cell)}}}" for cell in self.head)
        body = " \\\\\n".join(f"  {row}" for row in rows)
        columns = "l" * len(self.head)
        return (
            f"$$\n\\begin{{array}}{{{columns}}}\n  {head} \\\\ \\hline\n{body}\n\\end{{array}}\n$$"
        )


class Tabular:
    """What a notebook shows as a table."""

    def table(self) -> Table:
        """Return the object as a table of text."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        return self.table().html()

    def _repr_markdown_(self) -> str:
        return self.table().markdown()

    def _repr_latex_(self) -> str:
        return self.table().latex()


def in_markdown(text: str) -> str:
    """Return text as Markdown, in which it is no markup."""
    return re.sub(r"([\\`*_<\[\]|$])", r"\\\1", text)


def _html_row(kind: str, cells: Sequence[str]) -> str:
    inside = "".join(f"<{kind}>{escape(cell)}</{kind}>" for cell in cells)
    return f"<tr>{inside}</tr>"
