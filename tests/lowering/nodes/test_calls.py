"""Scalar functions are torch's, and a softmax is one call."""

from __future__ import annotations

import pytest
from kit.lowered import assert_code, assert_right

FORMS = {
    "op f(x[i], z[i]) -> y\ny[i] = maximum(sqrt(x[i]), log1p(z[i]))": (
        "torch.maximum(x.sqrt(), z.log1p())"
    ),
    "op f(x[i,j]) -> y\ny[i,j] = softmax[j](x[i,j])": "torch.softmax(x, 1)",
    "op f(x[i,j]) -> y\ny[i] = sum[j](log_softmax[j](x[i,j])*x[i,j])": (
        "(x * torch.log_softmax(x, 1)).sum(1)"
    ),
    "op f(x[i]) -> y\ny[i] = erf(x[i])*expm1(x[i])": "x.erf() * x.expm1()",
}


@pytest.mark.parametrize("text", FORMS)
def test_a_function_is_the_one_of_torch(text):
    assert_code(text, [f"y = {FORMS[text]}"])
    assert_right(text)
