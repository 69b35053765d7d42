"""Pages of a site, read by a strict parser."""

import warnings
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import html5lib

HTML, MATH = "{http://www.w3.org/1999/xhtml}", "{http://www.w3.org/1998/Math/MathML}"

SPECS = """\
# Exponentials along dim, divided by their sum.
op softmax(A[*p,k,*q]; dim=axis(k)) -> S
S[*p,k,*q] = exp(A[*p,k,*q]) / sum[j](exp(A[*p,j,*q]))

# A loss of the largest difference; its text <has> "markup" & more.
op worst(x[n,c], y[n,c]; scale=2.0, reduction=mean|sum) -> mean: average | sum: total
d[n,c] = relu(abs(x[n,c] - y[n,c]) - scale)
w[n] = max[c](d[n,c])
total = sum[n](w[n])
average = total/size(n)
"""
"""A small site: an operation without options, and one with options, kinks and ties."""

ARITY = {
    **dict.fromkeys(("mfrac", "msub", "msup", "munder", "mover", "mroot"), 2),
    **dict.fromkeys(("msubsup", "munderover"), 3),
}
TOKENS = {"mi", "mn", "mo", "mtext", "mspace"}
ROWS = {"math", "mrow", "msqrt", "mtable", "mtr", "mtd"}
KNOWN = {
    "mo": {"form", "fence", "stretchy", "separator", "lspace", "rspace", "movablelimits"},
    "mspace": {"width"},
    "math": {"display"},
    "mtable": {"displaystyle"},
}
GLOBAL = {"class", "style"}


def parsed(text: str) -> Element:
    """The tree of a page; an error of its HTML raises."""
    root: Element = html5lib.HTMLParser(strict=True).parse(text)
    return root


def check_math(math: Element) -> None:
    """Every element is one of MathML Core, with as many parts as it has places."""
    for e in math.iter():
        if not isinstance(e.tag, str) or not e.tag.startswith(MATH):
            continue
        name = e.tag.removeprefix(MATH)
        assert name in ARITY or name in TOKENS | ROWS, name
        parts = [part for part in e if isinstance(part.tag, str)]
        assert len(parts) == ARITY.get(name, len(parts)), name
        if name in TOKENS:
            assert not parts
            assert name == "mspace" or "".join(e.itertext()).strip("\n") or parts
        else:
            assert not (e.text or "").strip()
            assert name not in ("mtable", "mtr") or {p.tag for p in parts} == {
                MATH + {"mtable": "mtr", "mtr": "mtd"}[name]
            }
        given = {a for a in e.attrib if "xmlns" not in a}
        assert given <= GLOBAL | KNOWN.get(name, set()), (name, e.attrib)


def attributes(root: Element, name: str) -> list[str]:
    return [e.attrib[name] for e in root.iter() if name in e.attrib]


def maths(root: Element) -> list[Element]:
    return list(root.iter(f"{MATH}math"))


def check_page(text: str) -> Element:
    """The page, whose HTML and MathML are valid, with no id twice and no request elsewhere."""
    root = parsed(text)
    ids = attributes(root, "id")
    assert len(ids) == len(set(ids))
    for math in maths(root):
        check_math(math)
    for e in root.iter():
        if isinstance(e.tag, str) and e.tag.removeprefix(HTML) in ("link", "script", "img"):
            address = e.attrib.get("src") or e.attrib.get("href", "")
            assert address.startswith("data:") or ":" not in address
        assert "onclick" not in e.attrib
    for e in root.iter(f"{HTML}label"):
        assert e.attrib["for"] in ids
    return root


def broken(out: Path, pages: dict[str, Any]) -> list[str]:
    """The links of pages (address -> tree) that lead to no file, or to no place in it."""
    found = []
    for address, root in pages.items():
        for link in (*attributes(root, "href"), *attributes(root, "src")):
            if ":" in link:
                continue
            file, _, anchor = link.partition("#")
            target = (out / address).parent / file if file else out / address
            where = target.resolve().relative_to(out.resolve()).as_posix()
            if not target.is_file():
                found.append(f"{address}: {link}")
            elif anchor and anchor not in attributes(pages[where], "id"):
                found.append(f"{address}: {link}")
    return found
