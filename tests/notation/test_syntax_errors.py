"""What the parser did not expect is said in the words of a person."""

from __future__ import annotations

import pytest

from derive import SpecError, parse
from derive.notation.advice import around


@pytest.mark.parametrize(
    ("text", "says"),
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
