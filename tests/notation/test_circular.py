"""A size that would follow from itself is refused, with the way round."""

from __future__ import annotations

import pytest

from derive import SpecError, parse


@pytest.mark.parametrize(
    "text",
    [
        "op f(x[e]; size(e)=2*size(e)) -> y; y[e] = x[e]",
        "op f(x[n]; size(a)=size(b)+1, size(b)=size(a)+1) -> y; y[a,b] = x[0]*[a < b]",
    ],
)
def test_a_size_is_not_given_by_itself(text):
    with pytest.raises(SpecError, match="depends on itself"):
        parse(text)


def test_an_axis_is_not_composed_of_itself():
    with pytest.raises(SpecError, match=r"size of \w depends on itself.*index of its own"):
        parse("op f(x[(h e)], w[e]) -> y; y[h] = sum[e](x[(h e)]*x[e]*w[e])")


def test_two_letters_of_one_size_are_no_circle():
    op = parse("op f(x[i], z[j]; size(j)=size(i)) -> y; y[i] = x[i]*sum[j](z[j])")
    assert {a.extent for t in op.inputs for a in t.axes} == {"i"}
