"""The range of an index in affine positions is the largest that keeps them on their axes."""

import numpy as np
import pytest

import derive
from derive import SpecError, parse
from derive.algebra.expr import Size
from derive.check import oracle
from derive.notation.operation import Extent
from derive.notation.ranges import ordered


@pytest.mark.parametrize(
    ("position", "count"),
    [("t+k", 8 - 3 + 1), ("2*t+k", (8 - 3) // 2 + 1), ("t+2*k", 8 - 2 * 2), ("3*t+k+1", 2)],
)
def test_windows_fit(position, count):
    op = parse(f"y[t] = sum[k](x[{position}]*w[k])")
    tensors = {"x": np.arange(8.0), "w": np.ones(3)}
    assert oracle.outputs(op, tensors, {})["y"].shape == (count,)


def test_of_two_positions_the_tighter_one_counts():
    op = parse("y[t] = x[t+2] - x[t] + z[t+1]")
    tensors = {"x": np.arange(9.0), "z": np.arange(5.0)}
    assert oracle.outputs(op, tensors, {})["y"].shape == (4,)


def test_a_position_that_no_size_allows_is_refused():
    with pytest.raises(SpecError, match="out of bounds"):
        parse("y[t] = x[t-1]")


def test_a_size_comes_after_those_that_it_is_made_of():
    extents = [Extent("u", size=Size("t") + Size("k")), Extent("t", size=Size("k")), Extent("k")]
    assert [e.name for e in ordered(extents)] == ["k", "t", "u"]


SIZES = {
    "op f(x[n,t], w[k]) -> y\ny[n,u] = sum[k](x[n,2*u+k]*w[k])": ("u", {"t": 11, "k": 4}, 4),
    "op f(x[t], w[k]) -> y\ny[u] = sum[k](x[u+3*k]*w[k])": ("u", {"t": 12, "k": 3}, 6),
    "op f(x[t]) -> y\ny[u] = x[u+1] - x[u]": ("u", {"t": 7}, 6),
}


@pytest.mark.parametrize("text", SIZES)
def test_a_letter_is_as_long_as_its_windows_fit(text):
    letter, given, want = SIZES[text]
    assert derive.derivation(derive.parse(text)).cost.sizes({"n": 2, **given})[letter] == want


def test_a_letter_that_stands_alone_elsewhere_has_its_size_there():
    op = derive.parse("op f(x[t], z[u]) -> y\ny[u] = x[u+1]*z[u]")
    assert {e.name for e in op.extents if e.sources} == {"t", "u"}


def test_two_letters_of_no_other_size_are_refused():
    with pytest.raises(derive.DeriveError, match="does not determine the sizes of i and j"):
        derive.parse("op f(x[t]) -> y\ny[i,j] = x[2*i+j]")
