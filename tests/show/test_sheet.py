"""A derivation in words: printed, as LaTeX that compiles, and in a notebook."""

import re
from xml.etree import ElementTree

import pytest
from kit.command import derive as command

from derive import catalog, derivation, parse
from derive.notation.operation import options
from derive.show.typeset import identity_in_latex

NAMES = ["cross_entropy", "batch_norm", "conv1d", "rotary_embedding", "max_pool1d", "cumprod"]

COMMANDS = set(
    r"\frac \sqrt \sum \prod \left \right \begin \end \text \mathrm \operatorname \operatorname* "
    r"\partial \delta \pi \infty \le \ge \ne \land \lor \lnot \lfloor \rfloor \sigma \psi "
    r"\exp \log \sin \cos \tan \sinh \cosh \tanh \arcsin \arccos \arctan \max \min \item "
    r"\quad \qquad \cdot \substack \bigl \bigr \biggl \biggr "
    r"\paragraph \alpha \beta \gamma \epsilon \mu \rho \lambda \theta \phi".split()
)


def check_latex(text: str) -> None:
    """ASCII, known commands, and everything that opens closes."""
    assert text.isascii(), re.findall(r"[^\x00-\x7f]+", text)
    assert set(re.findall(r"\\[A-Za-z]+\*?", text)) <= COMMANDS
    opened = []
    for mark in re.findall(r"(?<!\\)[{}]|\\begin\{\w+\*?\}|\\end\{\w+\*?\}", text):
        if mark == "{" or mark.startswith(r"\begin"):
            opened.append(mark)
        else:
            before = opened.pop()
            assert before == ("{" if mark == "}" else mark.replace("end", "begin"))
    assert not opened
    assert text.count(r"\left") == text.count(r"\right") + text.count(r"\leftarrow")
    assert len(re.findall(r"(?<!\\)\$", text)) % 2 == 0
    assert not re.search(r"_\{[^{}]*\}_", text), "a second subscript"


@pytest.mark.parametrize("name", NAMES)
def test_latex_with_its_steps_is_latex_throughout(name):
    for option, _ in options(catalog.find(name)):
        made = derivation(catalog.find(name), option)
        text = made.latex(steps=True)
        check_latex(text)
        assert text.count(r"\item") == sum(len(f.steps) for f in made.shown) + len(made.rewritten)
        check_latex(made.latex())
        check_latex(made._repr_latex_())
        check_latex(catalog.find(name)._repr_latex_())


def test_matplotlib_reads_the_formulas(tmp_path):
    parser = pytest.importorskip("matplotlib.mathtext").MathTextParser("path")
    for name in ("batch_norm", "matmul"):
        made = derivation(catalog.find(name))
        for formula in (*made.equations, *made.gradients.values()):
            text = formula.latex().replace("operatorname*", "operatorname")
            parser.parse(f"${text}$")
        for step in made.gradients[next(iter(made.gradients))].steps:
            parser.parse(f"${identity_in_latex(step.states)}$")


@pytest.mark.parametrize(
    ("identity", "expected"),
    [
        ("Σⱼ δ(i, j)·f(j) = f(i)", r"\sum _{j} \delta (i, j) \, f(j) = f(i)"),
        ("a defining sum is its name", r"\text{a defining sum is its name}"),
        ("grad_x by its definition", r"\text{grad\_x by its definition}"),
        (
            "δ(i, 0) = 1 where i is always 0",
            r"\delta (i, 0) = 1 \text{ where }i \text{ is always }0",
        ),
        (
            "(Σₖ exp(f))ᵖ = exp(p·logsumexpₖ f)",
            r"(\sum _{k} \operatorname{exp}(f))^{p} = "
            r"\operatorname{exp}(p \, \operatorname{logsumexp}_{k} f)",
        ),
    ],
)
def test_an_identity_in_latex(identity, expected):
    assert identity_in_latex(identity) == expected


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_shows_mathml(name):
    op = catalog.find(name)
    made = derivation(op)
    for html in (op._repr_html_(), made._repr_html_(), made.equations[0]._repr_html_()):
        root = ElementTree.fromstring(f"<body>{html}</body>")
        assert root.findall(".//{http://www.w3.org/1998/Math/MathML}math")
    assert made._repr_html_().count("<math") == len(
        (*made.equations, *made.definitions, *made.adjoints, *made.gradients)
    )


def test_a_derivation_prints_what_the_command_shows():
    made = derivation(catalog.find("matmul"))
    assert command("show", "matmul").stdout == f"{made}\n"
    assert command("show", "matmul", "--steps").stdout == f"{made.text(steps=True)}\n"
    latex = made.latex(steps=True)
    assert command("show", "matmul", "--steps", "--format", "latex").stdout == f"{latex}\n"


def test_representations_are_short():
    made = derivation(parse("op mm(A[i,k], B[k,j]) -> C\nC[i,j] = sum[k](A[i,k]*B[k,j])"))
    assert repr(made) == "Derivation('mm', gradients: A, B)"
    assert repr(made.gradients["A"]) == "Formula('grad_A[i,k] = Σⱼ G[i,j]·B[k,j]')"
    assert len(repr(made.gradients["A"].steps[0])) < 120
    chosen = derivation(catalog.find("mse_loss"), "sum")
    assert repr(chosen).startswith("Derivation('mse_loss', 'sum', ")


@pytest.mark.parametrize("name", NAMES[:3])
def test_tangents_are_told_as_gradients_are(name):
    made = derivation(catalog.find(name)).tangents
    text = made.latex(steps=True)
    check_latex(text)
    assert text.count(r"\item") == sum(len(f.steps) for f in made.values()) + len(made.rewritten)
    assert str(made) == made.text()
    assert "the tangent of" in str(made)
    ElementTree.fromstring(f"<div>{made._repr_html_()}</div>")
    assert repr(made).startswith(f"Tangents('{name}'")


def test_a_letter_that_is_bound_within_its_own_axis_is_printed_with_a_prime():
    op = parse("op f(x[l], w[l]) -> y\ny[u] = concat[u](x[u], softmax[u](w[u]))")
    text = derivation(op).text(steps=True)
    assert "#" not in text
    assert "[u′]" in text
