"""What the notation does not say ends in an error that names the nearest thing that it says."""

import re

import pytest
from kit.each import each_row
from sympy import Eq, Function, IndexedBase, symbols

import derive
from derive import SpecError, parse
from derive.notation.advice import ADVICE, KEYWORDS, arity, around, check_name, nearest, plural

ASKED = {
    "y[k] = sort[k](x[k])": "line 1, column 8: unknown reduction sort; with a rank r[k]",
    "y[k] = topk(x[k])": "[r[k] < 3] selects the three least",
    "y = median[k](x[k])": "line 1, column 5: unknown reduction median; with a rank r[k]",
    "y[k] = x[nonzero(m[k])]": "line 1, column 10: unknown function nonzero; its size depends on",
    "y = unique[k](x[k])": "keep the axis and mask it",
    "while x[k] > 0: y[k] = 1": "line 1, column 7: unexpected 'x'; the number of iterations",
    "for t: y[t] = x[t]": "an equation holds for every value of its indices",
    "y[k] = if x[k] > 0: 1": "where(condition, a, b)",
    "h[t] = h[t-1] + x[t]": "h is used in its own definition; an equation cannot be a recurrence",
    "y[k] = dropout(x[k])": "random numbers are inputs",
    "y[i,j] = inverse(A[i,j])": "use torch.linalg",
    "y[k] = cumsum[k](x[k])": "y[k] = sum[l | l<=k](x[l])",
    "y = std[k](x[k])": "s = sqrt(mean[k]((x[k] - m)**2))",
    "y[k] = while(x[k])": "line 1, column 8: unknown function while; the number of iterations",
    "y[m] = x[x[k] > 0]": (
        "x[k] > 0 is a condition, and the number of elements it selects depends on the data: keep"
    ),
    "op f(x[k], m[k]: bool) -> y; y[k] = x[m[k]]": "axis 0 of x: a bool is a condition",
    "y[i,j] = A[i,j] @ B[i,j]": "unexpected character '@'; a matrix product is sum[k]",
    "y[i,j] = A.T[i,j]": "unexpected character '.'; tensors have no attributes",
    "y[i] = x[:,i]": "unexpected ':'; an index reads an axis",
    "y[i] := x[i]": "unexpected ':'; expected '='",
    "y[i] = x[i] +\n z[i]": "the statement ends too early; a statement ends with its line",
    "y[i] = x[i]\n  - z[i]": "line 2, column 3: unexpected '-'; a statement ends with its line",
    "y[i] = x[i] and\n z[i]": "the statement ends too early; a statement ends with its line",
    "y[i,j] = [[a, b], [c, d]]": "unexpected ','; the notation has no lists: give the axis",
    "y[0] = a; y[1] = b": "y is defined twice; one equation defines all components",
    "y[1] = a": (
        "axis 1 of y: an axis on the left must be an index, a group *p, a composite (a b) or "
        "0; one equation defines all components"
    ),
    "y[m] = inv(S)[m,l]*v[l]": "unexpected '['; inv: a matrix decomposition is not an index",
    "y[m] = exp(S)[m]": "unexpected '['; the result of exp(...) cannot be indexed: give it an",
    "y[i] = mod(x[i], 2)": "write it as x % m, whose sign is that of m",
    "y[i] = exp(w x[i])": "a product is written a*b, and the parts of a composite axis are indices",
    "op f(x[(i p)], T[e]) -> y; y[e,p] = x[(T[e] p)]": "unexpected 'p'; expected '(' or ')'; a",
    "y[i] = where(x[i] > 0 && x[i] < 1, 1, 0)": "conditions are combined by and, or, not",
    "y[i] = where(!m[i], x[i], 0)": "a condition is negated by not",
    "y[i] = 1 – x[i]": "a difference is written a - b",
    "```\ny[i] = x[i]\n```": "line 1, column 1: unexpected character '`'; leave out the fence",
    "op f(x[i]) -> y; y[i] = a*x[i]": "unknown name a; declare it on the op line, or define it",
    "op f(x[*p,*p]) -> y; y[*p] = x[*p,*p]": "the split of the axes of x into *p and *p' is",
    "op a(x) -> y; y = x\nop b(x) -> y; y = x": "got 2 (a, b); derive.read(path) returns all",
}


@each_row("text", ASKED)
def test_an_error_says_what_to_do_instead(text):
    with pytest.raises(derive.DeriveError, match=re.escape(ASKED[text])):
        derive.parse(text)


def test_the_error_of_a_sympy_equation_says_it_too():
    k = symbols("k", integer=True)
    x, y = IndexedBase("x"), IndexedBase("y")
    with pytest.raises(derive.DeriveError, match="the number of elements before each one"):
        derive.Operation("f", Eq(y[k], Function("sort")(x[k])))


@each_row("word", ADVICE)
def test_every_word_that_is_advised_on_is_none_of_the_notation(word):
    with pytest.raises(derive.DeriveError, match=re.escape(ADVICE[word])):
        derive.parse(f"y[k] = {word}(x[k])")


@each_row(
    "equation",
    [
        m.group(1)
        for advice in ADVICE.values()
        for m in re.finditer(r"((?:\w+\[[\w,]+\]) = \w+[\w\[].*?)$", advice)
    ],
)
def test_what_is_advised_can_be_written(equation):
    # Indices that no tensor has an axis of get their sizes from the op line.
    size = "op f({}; size({})={}) -> y\n"
    if "T[n]" in equation:
        equation = size.format("T[n]: int, x[n]", "k", 3) + equation
    elif "s == 0" in equation:
        equation = size.format("a[n], b[n]", "s", 2) + equation
    derive.parse(equation)


def test_the_keywords_are_pythons():
    import keyword

    assert all(keyword.iskeyword(word) for word in KEYWORDS)


def test_a_name_is_an_identifier_that_means_nothing_else():
    for name in ("x", "weight_2", "Ω"):
        check_name(name, "a tensor", None)
    for name in ("2x", "x'", "lambda", ""):
        with pytest.raises(SpecError, match="name"):
            check_name(name, "a tensor", None)


def test_the_nearest_name_is_meant():
    assert "softplus" in nearest("softplsu", ["softplus", "sum"])
    assert nearest("qqqq", ["softplus", "sum"]) == ""


def test_functions_take_so_many():
    assert (arity("exp"), arity("maximum"), arity("clamp"), arity("sqrt")) == (1, 2, 3, 1)
    assert (plural(1, "argument"), plural(3, "axis number")) == ("1 argument", "3 axis numbers")


@each_row(
    "text, says",
    [
        ("y[i] = x[i", "line 1"),
        ("y[i] = x[i] +", "line 1"),
        ("y[i] = x[i] x[i]", "line 1"),
        ("y[i] := x[i]", "line 1"),
        ("y[i] == x[i]", "line 1"),
        ("z[i] = x[i]\ny[i] = exp(x[i]))", "line 2"),
    ],
)
def test_the_place_is_told_and_no_token_of_the_grammar(text, says):
    with pytest.raises(SpecError) as caught:
        parse(text)
    assert says in str(caught.value)
    assert not {"__ANON", "Token", "LPAR", "RSQB"} & set(
        str(caught.value).replace("'", " ").split()
    )


def test_a_long_line_is_shown_around_the_place():
    line = "y[i] = " + " + ".join(f"x{n}[i]" for n in range(100))
    shown = around(line, 400)
    assert len(shown) < len(line) and shown.strip("… ") in line
    assert around("y[i] = x[i]", 3).strip() == "y[i] = x[i]"


CONDITIONED = {
    "y = mean[n](x[n | n>0])": (17, "mean[n | n>0](x[n])"),
    "y = x[n | n>0] + 1": (9, "sum[n | n>0](x[n])"),
    "y = x[n | n>0]": (9, "sum[n | n>0](x[n])"),
}


@pytest.mark.parametrize("text", CONDITIONED)
def test_a_condition_stands_behind_the_indices_of_a_reduction(text):
    column, instead = CONDITIONED[text]
    with pytest.raises(SpecError) as caught:
        parse(f"op f(x[n]) -> y\n{text}")
    assert (caught.value.line, caught.value.column) == (2, column)
    assert instead in str(caught.value)
    with pytest.raises(SpecError, match=r"expected '\('"):
        parse("op f(x[n]) -> y\ny = sum[n | n>0] + x[0]")
