"""Sums are reductions, contractions where two tensors share an index, or products of sums."""

import pytest
from kit.lowered import assert_code, assert_right

FORMS = {
    "op f(x[i,j]) -> y\ny[i] = sum[j](x[i,j]**2)": "x.square().sum(1)",
    "op f(x[i,j]) -> y\ny = sum[i,j](x[i,j])": "x.sum()",
    "op f(x[i,j]) -> y\ny[j] = mean[i](x[i,j])": "x.mean(0)",
    "op f(x[i], z[j]) -> y\ny = sum[i,j](x[i]*z[j])": "x.sum() * z.sum()",
    "op f(x[i]) -> y\ny[i] = sum[k](x[i])*0 + x[i]": None,
}


@pytest.mark.parametrize("text", [t for t, code in FORMS.items() if code])
def test_a_sum_is_the_call_that_one_would_write(text):
    assert_code(text, [f"y = {FORMS[text]}"])
    assert_right(text)


def test_a_sum_under_a_condition_takes_zeros_elsewhere():
    assert_right("op f(x[i,j]) -> y\ny[i] = sum[j | j >= i](exp(x[i,j]))")
