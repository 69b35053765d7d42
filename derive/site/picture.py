"""Draw a graph in DOT with Graphviz: as a file, or as SVG that stands in a page."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from importlib.util import find_spec
from shutil import which

from derive.errors import DeriveError
from derive.reports.graph import Graph

_HOW = "pip install 'derive-backward[graph]' and, for example, apt-get install graphviz"
_MEASURES = (r"\bwidth", r"\bheight", "viewBox")
_SCALE = 1.1
"""Pixels of a page for a point of the picture, so that text is as large as that of code."""


def missing() -> str:
    """Return what drawing needs and this machine lacks, with how to install it, or ""."""
    lacks = [] if find_spec("graphviz") else ["the Python package graphviz"]
    lacks += [] if which("dot") else ["the program dot of Graphviz"]
    return f"{' and '.join(lacks)} not found; run {_HOW}" if lacks else ""


def drawn(text: str, format_: str) -> bytes:
    """Return a graph in DOT as a file of this format.

    Raises:
        DeriveError: Graphviz is missing, or cannot draw the graph.
    """
    if lacks := missing():
        message = f"{lacks}. A file that ends in .dot needs neither"
        raise DeriveError(message, kind="missing-package")
    import graphviz

    try:
        found: bytes = graphviz.Source(text).pipe(format=format_, quiet=True)
    except graphviz.CalledProcessError as error:
        said = (error.stderr or b"").decode("utf-8", "replace").strip()
        raise DeriveError(f"dot could not draw the graph: {said}", kind="output-file") from None
    return found


def inline(graphs: Sequence[Graph]) -> list[str]:
    """Return each graph as an SVG element of a page; Graphviz is run once."""
    if not graphs:
        return []
    text = drawn("".join(g.dot() for g in graphs), "svg").decode("utf-8")
    found = re.findall(r"<svg\b.*?</svg>", text, re.DOTALL)
    return [_of_page(svg, g) for svg, g in zip(found, graphs, strict=True)]


def _of_page(svg: str, g: Graph) -> str:
    """Return the SVG without what repeats the formulas or names parts, with a title and a text."""
    svg = re.sub(r"<!--.*?-->\s*|<title>.*?</title>\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(<g|<a|<text|<path|<polygon) id="[^"]*"', r"\1", svg)
    width, height, box = (re.search(rf'{name}="([\d. ]+)', svg) for name in _MEASURES)
    assert width and height and box
    width_, height_ = (round(_SCALE * float(found[1])) for found in (width, height))
    inside = svg.partition(">")[2].partition("</svg>")[0]
    inside = re.sub(r"\n+", "\n", inside).strip()
    said = escape(g.summary())
    return (
        f'<svg class="graph" width="{width_}" height="{height_}" viewBox="{box[1]}" role="img" '
        f'aria-label="{said}"><title>{said}</title>\n{inside}\n</svg>'
    )
