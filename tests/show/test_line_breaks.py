"""LaTeX in lines: nothing is lost, lines fit, and breaks stand where a person puts them."""

import re

import pytest

from derive import catalog, derivation, parse
from derive.show.line_breaks import PAGE, aligned, equation_lines, width
from derive.show.typeset import Latex

NAMES = ["layer_norm", "gru_cell", "cosine_embedding_loss", "multi_head_attention", "conv2d"]


def in_one_line(lines: list[str]) -> str:
    """The lines as if they had not been broken."""
    found = lines[0]
    for line in lines[1:]:
        line = re.sub(r"^\\q?quad ", "", line)
        factor, sign = line.startswith(r"\cdot "), line.startswith(("+", "-", r"\l"))
        found += Latex.times + line.removeprefix(r"\cdot ") if factor else " " * sign + line
    return re.sub(r"\\bigg?([lr])", lambda m: {"l": r"\left", "r": r"\right"}[m[1]], found)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("room", [24.0, 31.0, PAGE])
def test_lines_lose_nothing(name, room):
    """However narrow: the text is that of a formula in one line, with or without fractions."""
    made = derivation(catalog.find(name))
    whole = {}
    for f in (*made.equations, *made.shown):
        left, lines = equation_lines(*f.parts, room=room)
        whole[f.name] = in_one_line(lines)
        assert left == f.sides("latex")[0]
        if r"\frac" in f.latex() and r"\frac" not in whole[f.name]:
            words = (set(re.findall(r"\w+", text)) for text in (f.sides("latex")[1], *lines))
            expected, *found = words
            assert set().union(*found) - {"quad", "qquad", "cdot", "substack"} >= expected - {
                *("frac", "left", "right", "land")
            }
        elif r"\substack" not in whole[f.name]:
            assert f"{left} = {whole[f.name]}" == f.latex()


def test_a_formula_that_fits_stands_in_one_line():
    made = derivation(catalog.find("matmul"))
    for f in (*made.equations, *made.shown):
        left, lines = equation_lines(*f.parts)
        assert [f"{left} = {line}" for line in lines] == [f.latex()]


def test_breaks_stand_before_terms_then_before_factors_then_in_parentheses():
    op = parse("y[n] = first[n]*second[n] + third[n]*fourth[n] - fifth[n]*sixth[n]")
    (equation,) = derivation(op).equations
    assert equation_lines(*equation.parts, room=13)[1] == [
        r"\mathrm{first}_{n} \, \mathrm{second}_{n}",
        r"\quad + \mathrm{third}_{n} \, \mathrm{fourth}_{n}",
        r"\quad - \mathrm{fifth}_{n} \, \mathrm{sixth}_{n}",
    ]
    op = parse("y[n] = first[n]*(second[n] + third[n])")
    (equation,) = derivation(op).equations
    assert equation_lines(*equation.parts, room=12)[1] == [
        r"\mathrm{first}_{n}",
        r"\quad \cdot \left(\mathrm{second}_{n} + \mathrm{third}_{n}\right)",
    ]
    assert equation_lines(*equation.parts, room=9)[1] == [
        r"\mathrm{first}_{n} \, \bigl(\mathrm{second}_{n}",
        r"\qquad + \mathrm{third}_{n}\bigr)",
    ]


def test_equations_share_a_place_for_their_equals_sign():
    op = parse("op f(x[n]) -> long_name\nlong_name[n] = x[n]**2")
    made = derivation(op)
    text = aligned(f.parts for f in (*made.equations, *made.shown))
    assert text.splitlines() == [
        r"\begin{align*}",
        r"  \mathrm{long\_name}_{n} &= x_{n}^{2} \\",
        r"  \mathrm{grad\_x}_{n} &= 2 \, G_{n} \, x_{n}",
        r"\end{align*}",
    ]


def test_wide_cases_have_their_conditions_below():
    text = "y[n] = where(x[n] > 0, %s, 0)"
    sums = " + ".join(f"exp(x[n]/{k})" for k in range(2, 12))
    (equation,) = derivation(parse(text % sums)).equations
    (line,) = equation_lines(*equation.parts)[1]
    assert r"\quad \text{if } x_{n} > 0 \end{aligned} \\ 0 \quad \text{otherwise}" in line
    assert width(line) < PAGE - 3
