"""Turn the guide, which is Markdown, into HTML, and read the facts that its tables state."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from os.path import normpath
from pathlib import Path
from posixpath import relpath

from markdown_it import MarkdownIt
from markdown_it.token import Token

from derive.site.code import block

PACKAGE = Path(__file__).parents[1]
ROOT = PACKAGE.parent
MISTAKES = "mistakes.html"

_FROM_ELSEWHERE = {
    "README.md": "guide/readme.html",
    ".github/CONTRIBUTING.md": "guide/contributing.html",
    "derive/README.md": "guide/engine.html",
    "derive/docs/found.md": MISTAKES,
}
"""Pages of the site that are no file of the guide, or not in its folder."""


@cache
def pages() -> Mapping[str, Path]:
    """Return address -> file of each page that is Markdown; a wheel has only some of the files."""
    guide = {f"guide/{p.stem}.html": p for p in sorted((PACKAGE / "docs").glob("*.md"))}
    # Beside an installed package, a README is that of another one.
    is_checkout = (ROOT / "templates").is_dir()
    found = {
        address: ROOT / name
        for name, address in _FROM_ELSEWHERE.items()
        if is_checkout or name.startswith(PACKAGE.name)
    }
    guide.pop("guide/found.html", None)
    return {address: p for address, p in (guide | found).items() if p.is_file()}


def in_order() -> list[str]:
    """Return the addresses of the guide as its first page links them, that page first."""
    index = PACKAGE / "docs" / "index.md"
    links = re.findall(r"\]\((\w[\w-]*\.md)\)", index.read_text(encoding="utf-8"))
    known = {path: address for address, path in pages().items()}
    return [known[index.with_name(name)] for name in dict.fromkeys([index.name, *links])]


def pictures() -> list[Path]:
    """Return the pictures of the guide, which stand beside its pages."""
    return sorted((PACKAGE / "docs").glob("*.png"))


@dataclass(frozen=True)
class Document:
    """A page: its title, its content as HTML, and its headings (level, anchor, text)."""

    title: str
    body: str
    headings: tuple[tuple[int, str, str], ...]


@cache
def _markdown() -> MarkdownIt:
    return MarkdownIt("commonmark").enable(["table", "strikethrough"])


def document(path: Path, address: str) -> Document:
    """Return a file of the guide as the page at this address of the site."""
    tokens = _markdown().parse(path.read_text(encoding="utf-8"))
    headings: list[tuple[int, str, str]] = []
    taken: set[str] = set()
    for n, token in enumerate(tokens):
        if token.type == "heading_open":
            text = _plain(tokens[n + 1])
            slug = _slug(text, taken)
            token.attrSet("id", slug)
            headings.append((int(token.tag[1]), slug, text))
        if token.children:
            token.children = list(_with_addresses(token.children, path, address))
    body = _rendered(tokens)
    title = headings[0][2] if headings else path.stem
    return Document(title, body, tuple(headings))


def _plain(inline: Token) -> str:
    parts = (t.content for t in inline.children or () if t.type in ("text", "code_inline"))
    return "".join(parts)


def _slug(text: str, taken: set[str]) -> str:
    """Return the anchor of a heading, as GitHub makes it."""
    base = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
    found, n = base, 0
    while found in taken:
        n += 1
        found = f"{base}-{n}"
    taken.add(found)
    return found


def _with_addresses(tokens: Sequence[Token], path: Path, address: str) -> Iterator[Token]:
    """Yield the tokens of a text, each link and picture with its address on the site.

    Of a link to a file that is no page, the text is left.
    """
    kept: list[bool] = []
    for token in tokens:
        name = {"link_open": "href", "image": "src"}.get(token.type)
        target = _on_site(str(token.attrGet(name) or ""), path, address) if name else None
        if token.type == "link_open":
            kept.append(target is not None)
        if token.type == "link_close":
            if kept.pop():
                yield token
        elif name is None or target is not None:
            if name and target:
                token.attrSet(name, target)
            yield token


def _on_site(target: str, path: Path, address: str) -> str | None:
    """Return the address of a link of a file on a page of the site, or None if there is none."""
    if re.match(r"\w+:", target):
        return target
    file, hash_, fragment = target.partition("#")
    if file:
        known = {p: a for a, p in pages().items()} | {p: f"guide/{p.name}" for p in pictures()}
        known[PACKAGE / "docs" / "found.md"] = MISTAKES
        meant = Path(normpath(path.parent / file))
        if meant not in known:
            return None
        file = relpath(known[meant], str(Path(address).parent))
    return file + hash_ + fragment


def _rendered(tokens: Sequence[Token]) -> str:
    parts: list[str] = []
    plain: list[Token] = []
    after = ""
    for token in tokens:
        if token.type == "fence":
            parts.append(_render(plain))
            language = token.info.split()[0] if token.info.strip() else "text"
            parts += [block(token.content, language), after]
            plain, after = [], ""
        elif token.type == "html_block":
            own = re.match(r"<!-- from (derive/examples/found/\w+\.py) -->", token.content)
            after = _whole_file(ROOT / own[1]) if own else ""
        elif token.type == "table_open":
            plain.append(Token("html_block", "", 0, content='<div class="wide" tabindex="0">'))
            plain.append(token)
        elif token.type == "table_close":
            plain += [token, Token("html_block", "", 0, content="</div>")]
        else:
            plain.append(token)
    # A heading without text is none.
    return "".join([*parts, _render(plain)]).replace("<th></th>", "<td></td>")


def _render(tokens: Sequence[Token]) -> str:
    text: str = _markdown().renderer.render(tokens, _markdown().options, {})
    return text


def _whole_file(path: Path) -> str:
    if not path.is_file():
        return ""
    code = block(path.read_text(encoding="utf-8"), "python")
    name = escape(path.name)
    return f"<details><summary><code>{name}</code>, the whole file</summary>{code}</details>"


# ---------------------------------------------------------------------------------- facts of tables


def _tables(name: str) -> Iterator[list[list[Token]]]:
    """Yield each table of a page of the guide as rows of cells."""
    path = PACKAGE / "docs" / name
    rows: list[list[Token]] = []
    for token in _markdown().parse(path.read_text(encoding="utf-8")):
        match token.type:
            case "tr_open":
                rows.append([])
            case "inline" if rows:
                rows[-1].append(token)
            case "table_close":
                yield rows
                rows = []


@cache
def conventions() -> Mapping[str, tuple[str, str]]:
    """Return name -> (anchor of the guide, HTML of what its gradient is at kinks and ties)."""
    found: dict[str, tuple[str, str]] = {}
    for rows in _tables("notation.md"):
        heading = [cell.content for cell in rows[0]]
        place = {"gradient": "reductions", "at kinks and ties": "functions"}.get(heading[-1])
        for first, *_, last in rows[1:] if place else ():
            names = re.findall(r"`(\w+)", first.content)
            said = _render([last]).strip()
            assert place is not None
            found |= {name: (place, said) for name in names if said}
    return found


@cache
def measured() -> Mapping[str, Sequence[tuple[str, float]]]:
    """Return operation -> its measured ratios (what is compared, time over time) in the guide."""
    found: dict[str, list[tuple[str, float]]] = {}
    for rows in _tables("speed.md"):
        if [cell.content for cell in rows[0]][-1:] != ["slowest"]:
            continue
        for what, *_, slowest in rows[1:]:
            for name, ratio in re.findall(r"(\w+) ([\d.]+)", slowest.content):
                found.setdefault(name, []).append((what.content, float(ratio)))
    return found
