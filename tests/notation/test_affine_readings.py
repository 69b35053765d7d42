"""Which letters have their size from the affine positions that they stand in."""

from __future__ import annotations

import pytest

import derive

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
