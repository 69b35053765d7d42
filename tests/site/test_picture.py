"""Pictures of an operation: files that the command writes, and what stands on a page."""

import pytest
from kit.command import derive
from kit.pages import SPECS, check_page

from derive import parse
from derive.api import graph, graph_data
from derive.errors import DeriveError
from derive.site import picture
from derive.site.build import Entry, operation_page

MISSING = picture.missing()
draws = pytest.mark.skipif(bool(MISSING), reason=MISSING)

OWN = "op own(x[n,k], w[k]) -> y; y[n,k] = where(x[n,k] < 2, x[n,k]*w[k], 3)"
STARTS = {"svg": b"<?xml", "pdf": b"%PDF", "png": b"\x89PNG", "dot": b"digraph"}


@draws
@pytest.mark.parametrize("ending", ["svg", "pdf", "png"])
def test_the_command_writes_a_picture(ending, tmp_path):
    out = tmp_path / f"own.{ending}"
    done = derive("graph", "--spec", OWN, "-o", out)
    assert (done.returncode, done.stderr) == (0, "")
    assert out.read_bytes().startswith(STARTS[ending])
    assert f"wrote {out}" in done.stdout


def test_dot_needs_no_program(tmp_path, monkeypatch):
    monkeypatch.setattr(picture, "which", lambda _: None)
    (tmp_path / "own.derive").write_text(OWN)
    assert derive("graph", f"{tmp_path}/own.derive:own", "-o", tmp_path / "own.dot").stderr == ""
    text = (tmp_path / "own.dot").read_text("utf-8")
    assert text == derive("graph", "--spec", OWN).stdout == graph(parse(OWN))
    done = derive("graph", "--spec", OWN, "-o", tmp_path / "own.svg")
    assert done.returncode == 2
    assert "the program dot of Graphviz not found; run" in done.stderr
    assert not (tmp_path / "own.svg").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["relu", "-o", "relu.jpg"], "ends in .dot, .svg, .pdf, .png"),
        (["relu", "--spec", OWN], "give one operation"),
        ([], "give one operation"),
        (["relu", "-o", "missing/relu.svg"], "the folder missing does not exist"),
        (["mse_loss", "--option", "most"], "most"),
    ],
)
def test_wrong_arguments_are_refused(arguments, said, tmp_path):
    done = derive("graph", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr


@draws
def test_a_page_has_a_picture_of_each_option():
    op = parse(SPECS.partition("\n\n")[2])
    root = check_page(operation_page(Entry(op, "family", "()"), drawn=True))
    svg = "{http://www.w3.org/2000/svg}"
    found = [e for e in root.iter(f"{svg}svg") if e.attrib.get("class") == "graph"]
    assert len(found) == 2
    for element, option in zip(found, ("mean", "sum"), strict=True):
        assert element.attrib["role"] == "img"
        title = element.find(f"{svg}title")
        said = graph_data(op, option).summary()
        assert title is not None
        assert title.text == element.attrib["aria-label"] == said
        assert said.startswith(f"worst ({option}): ")
        assert not [e for e in element.iter() if "id" in e.attrib]
        words = "".join(element.itertext())
        assert "grad_x[n,c] =" in words.replace("\u00a0", " ")
        assert "computed again" in words


@draws
def test_text_of_a_formula_is_no_markup_of_a_page():
    (svg,) = picture.inline([graph_data(parse(OWN))])
    assert "x[n,k] &lt; 2" in svg


def test_a_page_without_a_picture_has_no_section():
    text = operation_page(Entry(parse(OWN), "family", "()"))
    check_page(text)
    assert "Picture" not in text


def test_a_site_without_pictures_says_so_once(tmp_path, monkeypatch):
    monkeypatch.setattr(picture, "which", lambda _: None)
    (tmp_path / "own.derive").write_text(SPECS)
    done = derive("site", tmp_path / "out", "--specs", tmp_path / "own.derive")
    assert done.returncode == 0
    assert done.stderr.count("the pages have no pictures: the program dot of Graphviz") == 1
    assert "svg class" not in (tmp_path / "out" / "op" / "softmax.html").read_text("utf-8")


def test_a_graph_that_dot_refuses_is_an_error(monkeypatch):
    if MISSING:
        pytest.skip(MISSING)
    with pytest.raises(DeriveError, match="dot could not draw"):
        picture.drawn("digraph {", "svg")
