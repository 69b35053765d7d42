"""How many axes a tensor has is one number, and a group stays a group."""

from __future__ import annotations

import pytest

from derive import SpecError, parse


def test_axes_follow_from_use():
    op = parse("y[*p,i] = sum[k](x[*p,k]*w[k,i])")
    assert {t.name: [a.name for a in t.axes] for t in op.inputs} == {
        "x": ["p", "k"],
        "w": ["k", "i"],
    }
    assert [a.group for a in op.inputs[0].axes] == [True, False]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("y[i] = x[i] + x[i,i]", "x has 1 ax"),
        ("op f(x[i,j]) -> y; y[i] = x[i]", "x has 2 axes"),
        ("y[*p] = x[*p] + sum[k](x[k])", "group"),
    ],
)
def test_two_readings_that_disagree_are_an_error(text, says):
    with pytest.raises(SpecError, match=says):
        parse(text)
