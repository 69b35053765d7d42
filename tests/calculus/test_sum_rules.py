"""Sums with a value that the definitions give: a softmax sums to 1, its gradient to 0."""

import pytest

from derive import derivation, parse


@pytest.mark.parametrize(
    ("line", "gradient"),
    [
        ("y = sum[n](softmax[n](a[n]))", "grad_a[n] = 0"),
        ("y = sum[n](exp(a[n] - logsumexp[m](a[m])))", "grad_a[n] = 0"),
        ("y = sum[n](a[n] - mean[m](a[m]))", "grad_a[n] = 0"),
    ],
)
def test_a_sum_that_is_constant_has_no_gradient(line, gradient):
    assert str(derivation(parse(f"op f(a[n]) -> y\n{line}")).gradients["a"]) == gradient


def test_the_sum_of_differences_from_a_mean_is_left_out():
    op = parse(
        "op f(x[n]; eps=1) -> y\nm = mean[n](x[n])\nd[n] = x[n] - m\n"
        "v = mean[n](d[n]**2)\ny[n] = d[n]*(v + eps)**(-1/2)"
    )
    d = derivation(op)
    assert str(d.gradients["x"]).count("Σ") <= 2
