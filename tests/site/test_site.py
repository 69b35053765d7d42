"""The site: every page is valid and leads somewhere, and says what the engine says."""

import re
from pathlib import Path
from typing import Any

import pytest
from kit.command import ROOT, derive
from kit.each import each_operation, each_row
from kit.pages import HTML, SPECS, broken, check_page, parsed

from derive import catalog, derivation, parse
from derive.api import source
from derive.check.step_values import StepValues, steps_of, verdicts
from derive.errors import DeriveError
from derive.site import documents
from derive.site.build import Entry, operation_page
from derive.site.code import highlighted, owners
from derive.site.plot import plots


@pytest.fixture(scope="module")
def site(tmp_path_factory: Any) -> Path:
    folder = tmp_path_factory.mktemp("site")
    (folder / "own.derive").write_text(SPECS)
    done = derive("site", folder / "out", "--specs", folder / "own.derive")
    assert done.returncode == 0, done.stderr
    assert "2 operations" in done.stdout
    return folder / "out"


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, Any]:
    files = sorted(site.rglob("*.html"))
    return {p.relative_to(site).as_posix(): check_page(p.read_text("utf-8")) for p in files}


def words(element: Any) -> str:
    return re.sub(r"\s+", " ", "".join(element.itertext())).strip()


def with_id(root: Any, name: str) -> Any:
    (found,) = [e for e in root.iter() if e.attrib.get("id") == name]
    return found


def test_every_page_is_there_and_valid(pages):
    guide = {f"guide/{p.stem}.html" for p in (ROOT / "derive" / "docs").glob("*.md")}
    own = {"index.html", "catalog.html", "op/softmax.html", "op/worst.html", "mistakes.html"}
    more = {"guide/readme.html", "guide/contributing.html", "guide/engine.html"}
    assert pages.keys() == own | more | (guide - {"guide/found.html"})


def test_no_link_is_broken(site, pages):
    assert broken(site, pages) == []


def test_the_pages_have_one_title_and_ask_for_nothing_else(site, pages):
    for address, root in pages.items():
        assert len(list(root.iter(f"{HTML}h1"))) == 1, address
        assert len(list(root.iter(f"{HTML}main"))) == 1
    style = (site / "style.css").read_text()
    assert "url(" not in style and "@import" not in style
    assert "http" not in (site / "script.js").read_text()


def test_the_front_page_is_small(site):
    parts = [site / name for name in ("index.html", "style.css", "script.js")]
    assert sum(p.stat().st_size for p in parts) < 150_000


def test_a_page_of_the_catalog_names_every_operation(pages):
    root = pages["catalog.html"]
    entries = [words(e) for e in root.iter(f"{HTML}li")]
    assert entries[0].startswith("softmax Exponentials along dim, divided by their sum. (A; dim)")
    assert entries[1].startswith("worst A loss of the largest difference")


@each_operation(share=7, turns=5)
def test_a_page_of_the_catalog_is_valid(op):
    root = check_page(operation_page(Entry(op, "family", "()")))
    assert [words(e) for e in root.iter(f"{HTML}h1")] == [op.name]


@pytest.mark.long
def test_the_site_of_the_catalog(tmp_path):
    done = derive("site", tmp_path / "out", "-q")
    assert done.returncode == 0, done.stdout + done.stderr
    out = tmp_path / "out"
    assert sum(p.stat().st_size for p in out.rglob("*.*")) < 30_000_000
    files = {p.relative_to(out).as_posix(): p for p in out.rglob("*.html")}
    pages = {address: check_page(p.read_text("utf-8")) for address, p in files.items()}
    assert broken(out, pages) == []
    assert {f"op/{name}.html" for name in catalog.names()} < pages.keys()


def test_a_page_says_what_the_engine_says(pages):
    root = pages["op/softmax.html"]
    gradient = with_id(root, "formula-grad_A")
    shown = words(gradient).replace("\u2062", "").replace(" ", "")
    assert "∂L∂A∗p,k,∗q=S∗p,k,∗q(G∗p,k,∗q−∑jG∗p,j,∗qS∗p,j,∗q)" in shown
    d = derivation(parse(SPECS.partition("\n\n")[0]))
    items = [e for e in root.iter(f"{HTML}li") if "rule" in str([p.attrib for p in e])]
    rules = [words(next(iter(e.iter(f"{HTML}b")))) for e in items]
    assert rules == [s.rule for s in steps_of(d)]
    assert all("checked by value" in words(e) for e in items)


def test_a_formula_and_its_lines_lead_to_each_other(pages):
    root = pages["op/worst.html"]
    text = source(parse(SPECS.partition("\n\n")[2]), style="plain").split("\n")
    rows = [e for e in root.iter(f"{HTML}div") if "data-of" in e.attrib]
    named = {e.attrib["data-of"] for e in rows}
    assert named >= {"d", "w", "total", "average", "grad_x", "grad_y"}
    for row in rows:
        links = list(row.iter(f"{HTML}a"))
        if not links:
            assert row.attrib["data-of"] == "winner"
            continue
        (link,) = links
        line = with_id(root, link.attrib["href"][1:])
        assert row.attrib["data-of"] in line.attrib["data-of"].split()
        n = int(line.attrib["id"].removeprefix("line-"))
        assert words(line) == re.sub(r"\s+", " ", text[n - 1]).strip()
    for line in root.iter(f"{HTML}span"):
        if "data-of" in line.attrib:
            (link,) = line.iter(f"{HTML}a")
            assert with_id(root, link.attrib["href"][1:]).attrib["data-of"] in named


def test_the_page_of_an_operation_has_its_conventions(pages):
    section = words(with_id(pages["op/worst.html"], "conventions"))
    assert "relu slope 0 at 0" in section
    assert "max goes to the first extremum" in section
    assert not [e for e in pages["op/softmax.html"].iter() if e.attrib.get("id") == "conventions"]


def test_text_of_a_spec_is_no_markup(tmp_path):
    spec = '# An <b>operation</b> & a "text".\nop f(x[n]) -> y; y[n] = where(x[n] < 2, x[n], 3)\n'
    (tmp_path / "f.derive").write_text(spec)
    assert derive("site", tmp_path / "out", "--specs", tmp_path / "f.derive").returncode == 0
    text = (tmp_path / "out" / "op" / "f.html").read_text("utf-8")
    root = check_page(text)
    assert 'An <b>operation</b> & a "text".' in words(root)
    assert not [e for e in root.iter(f"{HTML}b") if words(e) == "operation"]


def test_a_site_of_two_files_and_a_second_time(tmp_path):
    first, second = SPECS.split("\n\n", 1)
    (tmp_path / "a.derive").write_text(first)
    (tmp_path / "b.derive").write_text(second)
    out = tmp_path / "out"
    files = tmp_path / "a.derive", tmp_path / "b.derive"
    assert derive("site", out, "--specs", *files).returncode == 0
    assert {p.name for p in (out / "op").iterdir()} == {"softmax.html", "worst.html"}
    assert derive("site", out, "--specs", files[1], "-q").stdout == ""
    assert {p.name for p in (out / "op").iterdir()} == {"worst.html"}


def test_a_folder_of_other_files_is_left_alone(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    done = derive("site", tmp_path)
    assert done.returncode == 2 and "files that are no site" in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["mine.txt"]


def test_an_operation_that_fails_is_told_and_has_no_page(tmp_path, monkeypatch):
    def page(entry: Entry, live: bool, drawn: bool) -> str:
        if entry.name == "worst":
            raise DeriveError("cannot be derived")
        return operation_page(entry, live, drawn)

    monkeypatch.setattr("derive.site.build.operation_page", page)
    monkeypatch.setattr("derive.command.site._SHARE", 3)  # in this process
    (tmp_path / "own.derive").write_text(SPECS)
    done = derive("site", tmp_path / "out", "--specs", tmp_path / "own.derive")
    assert done.returncode == 1
    assert done.stdout.startswith("wrong: worst: cannot be derived\n1 operation, written to")
    assert {p.name for p in (tmp_path / "out" / "op").iterdir()} == {"softmax.html"}
    assert "worst" not in (tmp_path / "out" / "catalog.html").read_text()


def test_the_guide_opens_without_the_catalog(tmp_path, monkeypatch):
    monkeypatch.setattr("derive.loaded.folder", lambda: tmp_path)
    done = derive("docs", "--print")
    first = Path(done.stdout.strip())
    assert first == (tmp_path / "docs" / "guide" / "index.html").resolve() and first.is_file()
    out = tmp_path / "docs"
    found = {p.relative_to(out).as_posix(): parsed(p.read_text()) for p in out.rglob("*.html")}
    assert "catalog.html" not in found
    assert broken(out, found) == []


def test_the_pages_of_the_guide_lead_to_the_next(pages):
    def onward(address: str) -> list[str]:
        navs = [e for e in pages[address].iter(f"{HTML}nav") if e.attrib.get("class") == "around"]
        return [words(e) for nav in navs for e in nav.iter(f"{HTML}a")]

    first = documents.in_order()[1]
    (heading,) = pages[first].iter(f"{HTML}h1")
    assert onward("guide/index.html") == [f"Next: {words(heading)}"]
    assert documents.in_order()[0] == "guide/index.html"
    assert len(onward("guide/notation.html")) == 2
    assert onward("guide/contributing.html") == []


@each_row(
    "text, lines",
    [
        ("def f(a):\n    y = a\n    return y\n", {}),
        ("def f(a):\n    y = a + 1\n    return y\n", {2: "y"}),
        ("def f(a):\n    t = a + 1\n    y = 2*t\n", {2: "y", 3: "y"}),
        ("def f(a):\n    t = a + 1\n    y = 2*t\n    return t\n", {3: "y"}),
        ("def f(a):\n    t = a + 1\n    y = 2*t\n    z = 3*t\n", {3: "y", 4: "z"}),
        ("def f(a):\n    value = a + 1  # z[*p,k]\n", {2: "z"}),
        (
            "def f(a):\n    y = z = None\n    z = (\n        a + 1\n    )\n",
            {3: "z", 4: "z", 5: "z"},
        ),
        ("def f(ctx):\n    y = ctx.saved\n    z, y = ctx.saved_tensors\n", {}),
        (
            "class F:\n    def forward(a):\n        return a + 1\n"
            "    def setup_context(ctx, inputs, z):\n        y = inputs[0]\n",
            {3: "z"},
        ),
        ("def f(ctx, y):\n    y, a = cast(y, a)\n    z = y + a\n", {2: "z", 3: "z"}),
        (
            "def g(a):\n    return a + 1\n\nclass F:\n    forward = staticmethod(g)\n"
            "    def setup_context(ctx, inputs, output):\n        z = output\n",
            {2: "z"},
        ),
        (
            'def f(a, r):\n    if r == "sum":\n        return a.sum()\n    return F.apply(a)\n',
            {3: "z"},
        ),
    ],
)
def test_the_formulas_of_lines(text, lines):
    found = owners(text, ("y", "z"), {"none": "y", "sum": "z"})
    assert {n: " ".join(owner.names) for n, owner in found.items()} == lines


@each_row("language", ["python", "derive", "console", "toml", "text", "no language"])
def test_highlighted_code_has_the_text_of_the_code(language):
    text = 'op f(x[n]) -> y  # "a" < b & c\n\n\ny[n] = x[n]**2\n'
    lines = highlighted(text, language)
    assert len(lines) == 4
    bare = re.sub(r"<[^>]+>", "", "\n".join(lines))
    for sign, entity in (("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"), ("&", "&amp;")):
        bare = bare.replace(entity, sign)
    assert bare == text.rstrip()


def test_facts_of_the_guide():
    known = documents.conventions()
    assert known["relu"] == ("functions", "slope 0 at 0")
    assert known["amax"][0] == "reductions"
    assert "exp" not in known
    assert ("eager, derive / torch's own", 4.2) in documents.measured()["cdist_manhattan"]


def test_a_plot_is_over_the_size_that_counts_most():
    op = parse("op f(x[n], w[k], v[k]) -> y; y[n] = sum[k](x[n]*w[k]**2*v[k])")
    first, second = plots(op, derivation(op).cost)
    assert "flops over k" in first and "backward" in first and "forward" in first
    assert "bytes kept" in second and "nan" not in first + second
    constant = parse("y = x**2")
    assert plots(constant, derivation(constant).cost) == ()


def test_a_step_that_is_wrong_is_not_marked(monkeypatch):
    op = parse("y[n] = x[n]**3")
    d = derivation(op)
    assert set(verdicts(op, d)) == {True}
    computed = StepValues._computed
    last = steps_of(d)[-1].after

    def off(self: StepValues, axes: Any, e: Any) -> Any:
        return computed(self, axes, e) + (e is last)

    monkeypatch.setattr(StepValues, "_computed", off)
    assert list(verdicts(op, d))[-1] is False
    monkeypatch.setattr("derive.check.step_values._MOST_WORK", 3)
    assert set(verdicts(op, d)) == {None}
