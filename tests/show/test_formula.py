"""Formulas: exact strings, and a Unicode text that means what the expression means."""

import math
import re
from fractions import Fraction
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.each import each_row

from derive.algebra import expr as ex
from derive.algebra.interpret import evaluate
from derive.show.formula import equation, latex, mathml, unicode
from derive.show.mathml import MathML, Partial

i, j, k, l, n, c = (ex.Index(name, name) for name in "ijklnc")  # noqa: E741
p, q = ex.Index("p", "p", True), ex.Index("q", "q", True)
hidden_i, hidden_k = ex.Index("_0", "i"), ex.Index("_0", "k")
half = ex.Num(Fraction(1, 2))


def at(tensor, *positions):
    return ex.Access(tensor, positions)


def total(*indices, body, condition=None):
    return ex.Reduce("sum", indices, body, condition)


a, b, d, v, x, y = (at(name) for name in "abdvxy")
softmax = at("S", p, k, q) * (
    at("G", p, k, q) - total(hidden_k, body=at("G", p, hidden_k, q) * at("S", p, hidden_k, q))
)
batch_norm = (
    at("ivar", j)
    * at("gain", j)
    * (
        at("G", i, j)
        - 1
        / (ex.Size("i") - 1)
        * total(hidden_i, body=at("G", hidden_i, j) * at("xhat", hidden_i, j))
        * at("xhat", i, j)
        - total(hidden_i, body=at("G", hidden_i, j)) / ex.Size("i")
    )
)
matmul = total(k, body=at("A", i, k) * at("B", k, j))

UNICODE = [
    (softmax, "S[*p,k,*q]·(G[*p,k,*q] − Σₖ′ G[*p,k′,*q]·S[*p,k′,*q])"),
    (
        batch_norm,
        "ivar[j]·gain[j]·(G[i,j] − xhat[i,j]/(size(i) − 1)·Σᵢ′ G[i′,j]·xhat[i′,j]"
        " − 1/size(i)·Σᵢ′ G[i′,j])",
    ),
    (matmul, "Σₖ A[i,k]·B[k,j]"),
    (
        ex.Call("exp", (at("A", k),)) / total(k, body=ex.Call("exp", (at("A", k),))),
        "exp(A[k])/(Σₖ′ exp(A[k′]))",
    ),
    # Sums, signs and coefficients
    (1 - at("y", i) ** 2, "1 − y[i]²"),
    (-a + b, "b − a"),
    (-(a + b), "−(a + b)"),
    (a - (b - d), "a − (b − d)"),
    (a + (b + d), "a + b + d"),
    (-a * half, "−a/2"),
    (ex.Num(Fraction(3, 2)) * a, "3·a/2"),
    (a * 3 * b * 2, "6·a·b"),
    (ex.num(-3), "−3"),
    (ex.Num(Fraction(-1, 2)), "−1/2"),
    (ex.Mul((ex.num(-1), ex.num(-1), a)), "a"),
    (ex.Add(()), "0"),
    (ex.Mul(()), "1"),
    (ex.Num(Fraction(44715, 1000000)) * x**3, "0.044715·x³"),
    (ex.Num(Fraction(1, 100000)), "1e-5"),
    (ex.Num(Fraction(1, 300)), "1/300"),
    (ex.Const("pi") * x * 2, "2·π·x"),
    (x * ex.Size("k"), "size(k)·x"),
    (-ex.Const("inf"), "−∞"),
    # Fractions, powers, roots
    ((a + b) / 2, "(a + b)/2"),
    (a / (b * d), "a/(b·d)"),
    (a / b / d, "a/(b·d)"),
    (a / (b / d), "a/(b/d)"),
    (x**-2, "1/x²"),
    (ex.Pow(x, half), "√(x)"),
    (ex.Pow(v + ex.Param("eps"), -half), "1/√(v + eps)"),
    (x * ex.Pow(v + ex.Param("eps"), ex.Num(Fraction(-3, 2))), "x/(v + eps)^(3/2)"),
    ((x**2) ** 3, "(x²)³"),
    ((a * b) ** 2, "(a·b)²"),
    ((-a) ** 2, "(−a)²"),
    (x**10, "x¹⁰"),
    (ex.Pow(x, y + 1), "x^(y + 1)"),
    (ex.Call("pow", (x, y)), "x^y"),
    # Reductions
    (total(k, body=at("x", k), condition=ex.Rel("<=", k, i)), "Σ[k | k ≤ i] x[k]"),
    (total(c, k, body=at("x", c, k)), "Σ[c,k] x[c,k]"),
    (total(k, j, body=at("x", k, j)), "Σₖⱼ x[k,j]"),
    (total(p, body=at("x", p)), "Σ[*p] x[*p]"),
    (total(k, body=at("a", k) - b) + d, "d + Σₖ (a[k] − b)"),
    (total(k, body=-at("a", k)), "Σₖ (−a[k])"),
    (total(k, body=at("a", k)) * total(l, body=at("b", l)), "(Σₖ a[k])·(Σₗ b[l])"),
    (total(k, body=at("a", k)) * x / 2, "x/2·Σₖ a[k]"),
    (x / (d * total(k, body=at("a", k))), "x/(d·Σₖ a[k])"),
    (total(k, body=at("a", k)) ** 2, "(Σₖ a[k])²"),
    (x * ex.Reduce("prod", (k,), at("a", k) + b), "x·Πₖ (a[k] + b)"),
    (ex.Reduce("max", (k,), at("x", k) + 1) * 2, "2·maxₖ(x[k] + 1)"),
    (ex.Reduce("logsumexp", (c,), at("x", c)), "logsumexp[c](x[c])"),
    (ex.Reduce("mean", (i,), at("x", i)), "meanᵢ(x[i])"),
    (ex.Reduce("argmax", (k,), at("x", k), ex.Rel("<", k, i)), "argmax[k | k < i](x[k])"),
    # Names of bound indices
    (total(k, body=total(hidden_k, body=at("x", k, hidden_k))), "Σₖ Σₖ′ x[k,k′]"),
    (total(k, body=total(k, body=at("x", k)) * at("y", k)), "Σₖ y[k]·Σₖ′ x[k′]"),
    (at("k") * total(hidden_k, body=at("x", hidden_k)), "k·Σₖ′ x[k′]"),
    (hidden_k * at("x", k, hidden_k), "k′·x[k,k′]"),
    (total(ex.Index("_1", "_u3"), body=at("x", ex.Index("_1", "_u3"))), "Σ[u3] x[u3]"),
    # Positions, conditions, functions
    (
        at("x", n, ex.Guard(ex.Rel(">=", at("T", n), ex.num(0)), at("T", n)), 2 * i + k),
        "x[n,T[n],2·i + k]",
    ),
    (at("x", ex.Size("i") - 1 - i), "x[size(i) − 1 − i]"),
    (at("x", ex.Composite((i, p))), "x[(i *p)]"),
    (at("x", k) * ex.Iverson(ex.Rel("<=", k, i)), "[k ≤ i]·x[k]"),
    (at("x", k) * ex.Delta(i, at("T", n)), "x[k]·δ[i,T[n]]"),
    (ex.Delta(p, ex.Index("r", "p", True)), "δ[*p,*r]"),
    (
        ex.Iverson(
            ex.And((ex.Rel("<", i, j), ex.Not(ex.Or((ex.Rel("==", k, i), ex.Rel("!=", k, j))))))
        ),
        "[i < j and not (k = i or k ≠ j)]",
    ),
    (ex.Where(ex.Rel(">", x, ex.num(0)), x, -x), "where(x > 0, x, −x)"),
    (ex.Call("floordiv", (ex.Size("k") - 1, ex.num(2))), "⌊(size(k) − 1)/2⌋"),
    (ex.Call("abs", (x * 2,)), "|2·x|"),
    (ex.Call("clamp", (x, a, b)), "clamp(x, a, b)"),
    (at("grad_X", i, k), "grad_X[i,k]"),
]
LATEX = [
    (
        softmax,
        r"S_{{*}p,k,{*}q} \, \left(G_{{*}p,k,{*}q} - "
        r"\sum_{k'} G_{{*}p,k',{*}q} \, S_{{*}p,k',{*}q}\right)",
    ),
    (matmul, r"\sum_{k} A_{i,k} \, B_{k,j}"),
    (
        total(k, body=at("x", k), condition=ex.Rel("<=", k, i)) / (a + b),
        r"\frac{1}{a + b} \, \sum_{k : k \le i} x_{k}",
    ),
    ((a + b) / (x * y), r"\frac{a + b}{x \, y}"),
    (x / ex.Pow(v + ex.Param("eps"), half), r"\frac{x}{\sqrt{v + \mathrm{eps}}}"),
    (at("grad_X", i, n) * at("mu", j), r"\mathrm{grad\_X}_{i,n} \, \mu_{j}"),
    (at("A", n, at("T", n)) ** 2, r"A_{n,T_{n}}^{2}"),
    (ex.Size("k") * ex.Delta(i, k), r"N_{k} \, \delta_{i,k}"),
    (ex.Reduce("max", (c,), at("x", c)), r"\max_{c}\left(x_{c}\right)"),
    (ex.Reduce("logsumexp", (k,), at("x", k)), r"\operatorname*{logsumexp}_{k}\left(x_{k}\right)"),
    (
        ex.Where(ex.Rel(">=", x, ex.num(0)), x, ex.Call("exp", (-x,))),
        r"\begin{cases} x & \text{if } x \ge 0 \\ \exp\left(-x\right) & \text{otherwise}"
        r" \end{cases}",
    ),
    (ex.Call("log_sigmoid", (x,)), r"\operatorname{log\_sigmoid}\left(x\right)"),
    (ex.Call("floor", (x,)), r"\left\lfloor x\right\rfloor"),
    (at("x", ex.Composite((i, j))), r"x_{(i \, j)}"),
    (ex.Iverson(ex.Not(ex.Rel("!=", i, j))), r"\left[i = j\right]"),
]


@each_row("e, expected", UNICODE)
def test_unicode(e, expected):
    assert unicode(e) == expected


@each_row("e, expected", LATEX)
def test_latex(e, expected):
    assert latex(e) == expected


def test_mathml():
    assert mathml(at("A", i, k) ** 2 / 3) == (
        '<math xmlns="http://www.w3.org/1998/Math/MathML"><mrow><mfrac><mrow><msup><mrow><msub>'
        "<mrow><mi>A</mi></mrow><mrow><mi>i</mi>"
        '<mo separator="true" lspace="0" rspace="0.1em">,</mo><mi>k</mi></mrow></msub></mrow>'
        "<mrow><mn>2</mn></mrow></msup></mrow><mrow><mn>3</mn></mrow></mfrac></mrow></math>"
    )


def test_a_name_of_a_derivative_is_a_fraction_in_mathml():
    partials = {"grad_A": Partial("L", "A"), "∂S/∂A": Partial("S", "A", 1)}
    own = MathML(partials)
    for name, axes, above, below in (
        ("grad_A", (i, k), "L", "A_ik"),
        ("∂S/∂A", (l, i, k), "S_l", "A_ik"),
    ):
        root = ElementTree.fromstring(equation(name, axes, a, own))
        fraction = next(e for e in root.iter() if e.tag.endswith("mfrac"))
        shown = ("".join(part.itertext()).replace(",", "") for part in fraction)
        assert list(shown) == ["∂" + above.replace("_", ""), "∂" + below.replace("_", "")]


def test_the_name_of_a_sum_is_a_sum_in_mathml():
    root = ElementTree.fromstring(mathml(at("Σ[n,*q] u", c)))
    letters = [e.text for e in root.iter() if e.tag.endswith("}mi")]
    assert letters == ["n", "q", "u", "c"]


@each_row("e", [e for e, _ in UNICODE + LATEX])
def test_every_formula_is_well_formed(e):
    ElementTree.fromstring(mathml(e))
    text = latex(e)
    assert text.count("{") == text.count("}")
    assert text.count(r"\left") - text.count(r"\left\lfloor") >= 0
    assert len(re.findall(r"\\left\b", text)) == len(re.findall(r"\\right\b", text))
    assert not re.search(r"[·−′²]|_\d", text)


def test_equations():
    assert equation("C", (i, j), matmul) == "C[i,j] = Σₖ A[i,k]·B[k,j]"
    assert equation("C", (i, j), matmul, "latex") == r"C_{i,j} = \sum_{k} A_{i,k} \, B_{k,j}"
    assert equation("L", (), total(n, body=at("x", n))) == "L = Σₙ x[n]"
    # The left side keeps its letters: what is bound on the right gives way.
    assert equation("y", (k, ex.num(0)), total(k, body=at("x", k))) == "y[k,0] = Σₖ′ x[k′]"
    formal = ex.Index("_1", "i")
    assert equation("grad_x", (formal, j), at("g", formal, j)) == "grad_x[i,j] = g[i,j]"
    ElementTree.fromstring(equation("C", (i, j), matmul, "mathml"))


def test_renaming_never_captures():
    inner = total(hidden_k, body=at("x", hidden_k, k) * at("y", ex.Index("k'", "k")))
    assert unicode(inner) == "Σₖ″ x[k″,k]·y[k′]".replace("″", "′′")


LEAVES = st.sampled_from([a, b, d, ex.num(2), ex.num(3), ex.num(-1), half, ex.num(1)])


def _grow(inner):
    return st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda e: ex.Add(tuple(e))),
        st.lists(inner, min_size=1, max_size=3).map(lambda e: ex.Mul(tuple(e))),
        st.tuples(inner, st.sampled_from([-2, -1, 2, 3])).map(lambda t: ex.Pow(t[0], ex.num(t[1]))),
        st.tuples(inner, inner).map(lambda t: t[0] - t[1]),
        inner.map(lambda e: ex.Call("sin", (e,))),
        st.tuples(inner, inner).map(lambda t: ex.Call("maximum", t)),
        inner.map(lambda e: ex.Iverson(ex.Rel("<", e, ex.num(1)))),
    )


def _python(text):
    """The Unicode text of a scalar formula as Python."""
    superscripts = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")
    text = re.sub("[⁰¹²³⁴⁵⁶⁷⁸⁹]+", lambda m: "**" + m[0].translate(superscripts), text)
    return text.translate(str.maketrans({"·": "*", "−": "-", "[": "int(", "]": ")"}))


@settings(max_examples=300, deadline=None)
@given(st.recursive(LEAVES, _grow, max_leaves=8))
def test_the_text_means_what_the_expression_means(e):
    values = {"a": 0.7, "b": -1.3, "d": 2.1}
    expected = evaluate(e, {name: np.array(x) for name, x in values.items()}, {}, {}, {})
    if not math.isfinite(expected):
        return
    names = {"sin": math.sin, "maximum": max, "int": int, **values}
    try:
        found = eval(_python(unicode(e)), {"__builtins__": {}}, names)
    except (ZeroDivisionError, OverflowError):
        return
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-12)


LARGE = {
    -340282346638528859811704183484516925440: "−3.4028235e38",
    2**60: "1.1529215e18",
    10**20: "1e20",
    10**17 + 1: "100000000000000001",
    123456789: "123456789",
    int(1e300): "1e300",
}


@each_row("value", LARGE)
def test_a_large_float_has_its_shortest_digits(value):
    assert unicode(ex.num(value)) == LARGE[value]
    read = float(LARGE[value].replace("−", "-"))
    with np.errstate(over="ignore"):
        floats = read, float(np.float32(read))
    assert value == 10**17 + 1 or value in floats
