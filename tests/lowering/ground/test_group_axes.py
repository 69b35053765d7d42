"""Groups as several axes, in plain modules: also those without any axes."""

import pytest
import torch

from derive import parse, source

SPEC = """op f(x[n,*q], w[n]) -> y
m[n] = mean[*q](x[n,*q])
y[n,*q] = w[n]*(x[n,*q] - m[n])"""


def test_names_of_the_axes():
    text = source(parse(SPEC), style="plain")
    assert "q_axes = tuple(range(1 - x.dim(), 0))" in text
    assert "m = _mean_over(x, q_axes, keepdim=True)" in text
    assert "_unsqueeze(w, q_axes) * (x - m)" in text


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0,)])
def test_values(shape):
    from derive.check.checks import load_source

    op = parse(SPEC)
    f = load_source(op, source(op, style="plain"))
    x = torch.randn(4, *shape, dtype=torch.float64, requires_grad=True)
    w = torch.randn(4, dtype=torch.float64, requires_grad=True)
    flat = x.reshape(4, -1) if x.numel() else x
    wanted = (w.unsqueeze(1) * (flat - flat.mean(1, keepdim=True))).reshape(x.shape)
    torch.testing.assert_close(f(x, w), wanted)
    assert torch.autograd.gradcheck(f, (x, w))


def test_a_mean_of_a_product_is_a_mean():
    text = source(
        parse("op f(a[n,k], b[k]) -> y; y[n] = sum[k](a[n,k]*b[k])/size(k)"), style="plain"
    )
    assert "(b * a).mean(1)" in text
