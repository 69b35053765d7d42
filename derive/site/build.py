"""Write the pages of a site: the front page, the catalog, the operations, and the guide.

`pages` yields what is quick, and `operation_page` makes the page of one operation, which takes a
part of a second. With ``live``, the site has a page that derives in the browser.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from derive import __version__
from derive.module.templating import environment, template
from derive.notation.advice import WORDS
from derive.site import bundle
from derive.site.documents import MISTAKES, document, in_order, pictures
from derive.site.documents import pages as documents
from derive.site.exercise import exercises
from derive.site.views import Entry, example, operation_view

GUIDE = "guide/index.html"
"""The first page of the guide."""

LIVE = "live.html"
"""The page that derives in the browser."""

NAVIGATION = (
    (LIVE, "Try it"),
    ("catalog.html", "Catalog"),
    (GUIDE, "Guide"),
    (MISTAKES, "Mistakes found"),
)
"""Address and title of the links on top of every page."""

ASSETS = ("style.css", "script.js")
MARKER = ".derive-site"
"""A file that tells a folder of a site from any other."""

_EXAMPLE = "softmax"
"""The operation of the front page, if the site has it; else its first."""


@dataclass(frozen=True)
class Page:
    """What every template needs: titles, and the way to the root of the site."""

    title: str
    description: str
    root: str
    home: str
    navigation: Sequence[Mapping[str, str]]
    footer: str = f"derive {__version__}. Static pages, without requests to other machines."


@dataclass(frozen=True)
class Family:
    """Operations of the catalog that stand together."""

    key: str
    title: str
    entries: tuple[Entry, ...]


def _page(
    address: str, title: str, description: str, whole: bool = True, live: bool = False
) -> Page:
    """Return what a page needs; without the ``whole`` site, there is the guide alone."""
    links = [
        {"address": to, "title": name, "current": ' aria-current="page"' if to == address else ""}
        for to, name in NAVIGATION
        if (live if to == LIVE else whole or to in documents())
    ]
    home = "index.html" if whole else GUIDE
    return Page(title, description, "../" * address.count("/"), home, links)


def _rendered(name: str, page: Page, view: Any) -> str:
    found = environment(escapes=True).get_template(f"site/{name}.html.jinja")
    return found.render(page=page, view=view)


def operation_address(name: str) -> str:
    """Return the address of the page of an operation."""
    return f"op/{name}.html"


def operation_page(entry: Entry, live: bool = False, drawn: bool = False) -> str:
    """Return the page of an operation; if ``drawn``, with the picture that Graphviz draws."""
    view = operation_view(entry, drawn)
    said = entry.description or f"The gradients of {entry.name}, step by step, with code."
    page = _page(operation_address(entry.name), f"{entry.name} · derive", said, live=live)
    return _rendered("operation", page, view)


def pages(entries: Sequence[Entry], own: str = "", live: bool = False) -> Iterator[tuple[str, str]]:
    """Yield (address, text) of every page but those of operations; without these, of the guide.

    ``own`` names the specs of a site of one's own; it is empty for the catalog.
    """
    if entries:
        families = tuple(_families(entries))
        yield "index.html", _front(entries, families, own, live)
        yield "catalog.html", _catalog(entries, families, own, live)
        if live:
            yield LIVE, _live(entries, families)
    found = {address: document(path, address) for address, path in documents().items()}
    around: dict[str, list[tuple[str, str]]] = {}
    for one, two in pairwise(in_order()):
        for here, there, word in ((two, one, "Previous"), (one, two, "Next")):
            to = posixpath.relpath(there, posixpath.dirname(here) or ".")
            around.setdefault(here, []).append((to, f"{word}: {found[there].title}"))
    for address, doc in found.items():
        sections = [row for row in doc.headings if row[0] == 2]
        view = {
            "body": doc.body,
            "sections": sections if len(sections) > 2 else (),
            "around": around.get(address, ()),
        }
        description = f"{doc.title}: a page of the guide to derive."
        page = _page(address, f"{doc.title} · derive", description, bool(entries), live)
        yield address, _rendered("document", page, view)


def assets() -> Iterator[tuple[str, bytes]]:
    """Yield (address, content) of what the pages read: style, script and pictures."""
    for name in ASSETS:
        yield name, template(f"site/{name}").encode()
    for path in pictures():
        yield f"guide/{path.name}", path.read_bytes()
    yield MARKER, b"written by derive site\n"


def live_assets(interpreter: Path) -> Iterator[tuple[str, bytes]]:
    """Yield (address, content) of what the live page loads; ``interpreter`` is Pyodide's folder."""
    yield from bundle.interpreter(interpreter)
    yield "engine.zip", bundle.engine()
    for name in ("live.js", "engine.js", "offline.js"):
        text = template(f"site/{name}").replace("{{ version }}", __version__)
        yield name, text.encode()


def _families(entries: Sequence[Entry]) -> Iterator[Family]:
    found: dict[str, list[Entry]] = {}
    for entry in entries:
        found.setdefault(entry.family, []).append(entry)
    for key, members in found.items():
        yield Family(key, key.replace("_", " ").capitalize(), tuple(members))


def _shown(entries: Sequence[Entry]) -> Entry:
    return next((e for e in entries if e.name == _EXAMPLE), entries[0])


def _live(entries: Sequence[Entry], families: Sequence[Family]) -> str:
    """Return the live page; it starts from the front page's operation or a family's first."""
    chosen = [_shown(entries), *(family.entries[0] for family in families)]
    examples = {e.name: e.text or str(e.operation) for e in chosen}
    title, lead = "Derive in the browser", "The gradients of your equations, as you type them."
    view = {
        "examples": examples.items(),
        "exercises": exercises().items(),
        "engine": "engine.js",
        "words": sorted(WORDS),
    }
    return _rendered("live", _page(LIVE, f"{title} · derive", lead, live=True), view)


def _front(entries: Sequence[Entry], families: Sequence[Family], own: str, live: bool) -> str:
    shown = _shown(entries)
    spec, formulas, code = example(shown)
    title = f"Gradients of {own}" if own else "Backward passes, derived"
    lead = (
        f"{len(entries)} operations with their gradients: formulas, every step that leads to them, "
        "and the code that computes them."
        if own
        else "derive turns the equations of an operation into a PyTorch autograd.Function with a "
        "correct backward that you can read, and finds the mistakes in backward passes "
        "written by hand."
    )
    view = {"title": title, "lead": lead, "families": families, "name": shown.name}
    view |= {"heading": "All operations" if own else "Catalog"}
    view |= {"spec": spec, "formulas": formulas, "code": code}
    template = "front" if own else "welcome"
    return _rendered(template, _page("index.html", f"{title} · derive", lead, live=live), view)


def _catalog(entries: Sequence[Entry], families: Sequence[Family], own: str, live: bool) -> str:
    lead = f"{len(entries)} operations: for each, the gradients, every step, the code and the cost."
    view = {"title": own or "Catalog", "lead": lead, "families": families}
    page = _page("catalog.html", f"{own or 'Catalog'} · derive", lead, live=live)
    return _rendered("catalog", page, view)
