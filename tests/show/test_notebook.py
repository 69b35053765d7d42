"""What a notebook shows: of each kind of result in HTML, Markdown and LaTeX."""

import re
from typing import Any
from xml.etree import ElementTree

import pytest
import torch
from kit.tex import needs_tex, typeset
from markdown_it import MarkdownIt

import derive
from derive import catalog
from derive.auditing.report import InputVerdict, Report
from derive.reports.document import as_article
from derive.show.tables import Table


class Wrong(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_1: Any, weight: Any) -> Any:
        ctx.save_for_backward(x_1, weight)
        return x_1 * x_1.sigmoid() * weight

    @staticmethod
    def backward(ctx: Any, G: Any) -> Any:
        x_1, weight = ctx.saved_tensors
        s = x_1.sigmoid()
        return G * (s + x_1 * s) * weight, (G * x_1 * s).sum(0)


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    """A result of each kind."""
    made = derive.derivation(catalog.find("layer_norm"))
    found: dict[str, Any] = {"operation": catalog.find("layer_norm"), "derivation": made}
    found |= {"tangents": made.tangents, "formula": made.gradients["weight"]}
    found |= {"step": made.gradients["weight"].steps[0]}
    found["audit"] = derive.audit(Wrong, torch.randn(3, 5), torch.randn(5))
    op = derive.parse("op f(x_1[n], w[n]) -> y; y[n] = x_1[n]*exp(w[n])")
    x, w = (torch.randn(3, dtype=torch.float64) for _ in range(2))
    gradients = {"x_1": w.exp(), "w": x * w.exp() + 1}
    found["comparison"] = derive.compare(op, gradients, x, w)
    return found


KINDS = ("operation", "derivation", "tangents", "formula", "step", "audit", "comparison")


@pytest.mark.parametrize("kind", KINDS)
def test_html_is_well_formed(results, kind):
    html = results[kind]._repr_html_()
    root = ElementTree.fromstring(f"<body>{html}</body>")
    formulas = root.iter("{http://www.w3.org/1998/Math/MathML}math")
    assert [*formulas] or root.find("table") is not None


@pytest.mark.parametrize("kind", KINDS)
def test_markdown_has_mathematics_or_a_table(results, kind):
    text = results[kind]._repr_markdown_()
    beside = re.sub(r"\$\$.*?\$\$|\$[^$]*\$", "", text, flags=re.DOTALL)
    html = MarkdownIt("commonmark").enable("table").render(beside)
    assert beside != text or "<table>" in html
    assert "<em>" not in html


@needs_tex
def test_latex_is_typeset(results, tmp_path):
    texts = [results[kind]._repr_latex_() for kind in KINDS]
    article = as_article([]).replace(r"\end{document}", "\n\n".join([*texts, r"\end{document}"]))
    typeset(article, tmp_path)


def test_an_audit_is_a_table_of_its_inputs(results):
    report = results["audit"]
    assert not report.right
    cells = [
        c.text or "" for c in ElementTree.fromstring(f"<b>{report._repr_html_()}</b>").iter("td")
    ]
    assert [cells[0], cells[1]] == ["x_1", "wrong"]
    assert cells[2] == report.rows[0].wrong
    assert [cells[3], cells[4], cells[5]] == ["weight", "right", ""]
    for heading in ("derived", "written"):
        assert (heading in str(report)) == (f"<p>{heading}</p>" in report._repr_html_())
    every = report._repr_html_() + report._repr_markdown_()
    assert all(every.count(line.strip()) for line in report.formulas)


def test_a_comparison_is_a_table_of_its_gradients(results):
    lines = results["comparison"]._repr_markdown_().splitlines()
    assert lines[0] == "| gradient | exact | approximate | maxdiff |"
    assert lines[2].startswith(r"| x\_1 | True | True |")
    assert lines[3] == "| w | False | False | 1 |"


def test_text_in_a_table_is_no_markup():
    row = InputVerdict("x|y", False, wrong="a < b & `c` * $d$ _e_ [f](g) 100 % #1 ∂x·√2 ^ ~ \\ {h}")
    report = Report("<name>", (row,))
    html = MarkdownIt("commonmark").enable("table").render(report._repr_markdown_())
    assert not re.search(r"<(code|em|a|name)\b", html)
    cells = re.findall(r"<td>(.*?)</td>", html)
    assert len(cells) == 3
    ElementTree.fromstring(f"<body>{report._repr_html_()}</body>")


@needs_tex
def test_text_in_a_table_is_typeset(tmp_path):
    text = "a < b & `c` * $d$ _e_ [f] 100 % #1 ∂x·√2 ^ ~ \\ {h} Σₖ′ −x² ≤ ⌊δ⌋ ∞ π"
    shown = Table("", ("one", "two_"), [(text, "")]).latex()
    typeset(as_article([]).replace(r"\end{document}", shown + "\n\\end{document}"), tmp_path)
