"""Reads by whole indices name axes; a diagonal, a number and a shift have calls of their own."""

from __future__ import annotations

import pytest
from kit.lowered import assert_code, assert_right

FORMS = {
    "op f(x[i,j]) -> y\ny[j,i] = x[i,j]": "x.mT",
    "op f(x[i,j]) -> y\ny[j] = x[2,j]": "x.select(0, 2)",
    "op f(x[i,i]) -> y\ny[i] = x[i,i]": "x.diagonal(0, 0, 1)",
    "op f(x[u]) -> y\ny[s] = x[s+2]": "x.narrow(0, 2, x.shape[0] - 2)",
}


@pytest.mark.parametrize("text", FORMS)
def test_a_read_is_a_view(text):
    assert_code(text, [f"y = {FORMS[text]}"])
    assert_right(text)
