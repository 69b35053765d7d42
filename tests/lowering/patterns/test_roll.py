"""What leaves an axis at one end and comes in at the other is one call, in both directions."""

import numpy as np
import pytest
import torch
from kit.each import each_row
from kit.lines import made
from kit.lowered import assert_right
from kit.recognised import named

from derive import load, parse
from derive.api import source
from derive.memory import imported

OTHERS = (
    # One position is read twice.
    "op f(x[n,t]) -> y\ny[n,t] = where(t >= 1, x[n,t - 1], x[n,t])",
    "op f(x[n,t]) -> y\ny[n,t] = where(t >= 2, x[n,t - 2], -x[n,t - 2 + size(t)])",
    "op f(x[n,t], z[n,t]) -> y\ny[n,t] = where(t >= 2, x[n,t - 2], z[n,t - 2 + size(t)])",
    "op f(x[n,t], w[t]) -> y\n"
    "y[n,t] = where(t >= 2, w[t]*x[n,t - 2], w[t]**2*x[n,t - 2 + size(t)])",
    "op f(x[n,t]; size(j)=3) -> y\ny[n,j] = x[n,(j + 2) % size(t)]",
    "op f(x[n,t]) -> y\ny[n,t] = x[n,(2*t) % size(t)]",
    "op f(x[n,t]) -> y\ny[n,t] = x[n,(size(t) - 1 - t) % size(t)]",
)


@pytest.mark.parametrize("text", OTHERS, ids=named)
def test_what_is_none_stays(text):
    assert "roll(" not in source(made(text))
    assert_right(text)


@pytest.mark.parametrize("size", [0, 1, 5])
@pytest.mark.parametrize("shift", [-7, 0, 3, 5])
def test_of_any_size_by_any_shift(size, shift):
    f = load(made("op f(x[n,t]; s=1) -> y\ny[n,t] = x[n,(t - s) % size(t)]**2"))
    x = torch.rand(3, size, dtype=torch.float64, requires_grad=True)
    y = f(x, s=shift)
    np.testing.assert_allclose(y.detach(), np.roll(x.detach().numpy() ** 2, shift, 1))
    (found,) = torch.autograd.grad(y.square().sum(), x)
    torch.testing.assert_close(found, 4 * x**3)


def on_ring(x, y, toward, along, shift=0):
    """Sum_j x[j] y[(toward*i + along*j + shift) mod n] on the last axis."""
    n = x.shape[-1]
    at = (toward * torch.arange(n)[:, None] + along * torch.arange(n) + shift) % n
    return (x.unsqueeze(-2) * y[..., at]).sum(-1)


CONVOLUTIONS = {
    "x[b,i], y[b,i]; x[b,j]*y[b,(i - j) % size(i)]": (lambda x, y: on_ring(x, y, 1, -1), (3, 5)),
    "x[b,i], y[b,i]; x[b,j]*y[b,(i + j + 2) % size(i)]": (
        lambda x, y: on_ring(x, y, 1, 1, 2),
        (3, 5),
    ),
    "x[b,i], y[b,i]; exp(x[b,j])*y[b,(j - i - 7) % size(i)]**2*cos(y[b,(j - i - 7) % size(i)])": (
        lambda x, y: on_ring(x.exp(), y.square() * y.cos(), -1, 1, -7),
        (2, 4),
    ),
    "x[b,i], y[b,i]; x[b,j]*y[b,(i - j) % size(i)]*[j < 2]": None,
    "x[b,i], y[b,i]; x[b,j]*x[b,i]**j*y[b,(i - j) % size(i)]": None,
    "x[b,i], y[b,i]; x[b,j]*y[b,(i - 2*j) % size(i)]": None,
    "x[b,i], y[b,i]; x[b,j]*y[b,(-i - j) % size(i)]": None,
    "x[b,i], y[b,i]; x[b,j]**2*exp(y[b,(i - j) % size(i)])": None,
    "x[b,i], y[b,i]; x[b,j]*y[b,(i - j) % (size(i) - 1)]": None,
}


@each_row("text", CONVOLUTIONS)
def test_a_convolution_on_a_ring_is_a_product_of_fourier_transforms(text):
    inputs, _, body = text.partition("; ")
    op = parse(f"op f({inputs}) -> z\nz[b,i] = sum[j]({body})")
    if CONVOLUTIONS[text] is None:
        assert "circular_con" not in source(op).partition("def setup_context")[0]
        return
    plain, shape = CONVOLUTIONS[text]
    assert "index_select" not in source(op)
    own = [torch.randn(shape, dtype=torch.float64).requires_grad_() for _ in range(2)]
    torch.testing.assert_close(load(op)(*own), plain(*own))
    assert torch.autograd.gradcheck(load(op), own, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(load(op), own)


def test_a_filter_and_channels_are_shared_by_what_is_summed_later():
    op = parse("op f(x[b,c,i], y[c,i]) -> z\nz[b,i] = sum[c,j](x[b,c,j]*y[c,(i - j) % size(i)])")
    assert "index_select" not in source(op)
    x, y = (torch.randn(s, dtype=torch.float64).requires_grad_() for s in ((2, 3, 5), (3, 5)))
    torch.testing.assert_close(load(op)(x, y), on_ring(x, y, 1, -1).sum(1))
    assert torch.autograd.gradcheck(load(op), (x, y))
    empty = [torch.zeros(s, requires_grad=True) for s in ((2, 3, 0), (3, 0))]
    assert load(op)(*empty).shape == (2, 0)


OTHERS_ON_RINGS = (
    "z[i] = sum[j](x[j]*y[(-i - j) % size(i)])",
    "z[i,k] = sum[j](x[j]*y[(i + k - j) % size(i)])",
    "z[i] = logsumexp[j](x[j] + y[(i - j) % size(i)])",
    "z = sum[j](x[j]*sin(sum[i](x[i]*y[(j - i) % size(i)])))",
)


@pytest.mark.parametrize("equation", OTHERS_ON_RINGS)
def test_another_sum_on_a_ring_is_no_convolution_of_it(equation):
    size = "; size(k)=size(i)" if "k" in equation else ""
    assert_right(f"op f(x[i], y[i]{size}) -> z\n{equation}")


def test_a_convolution_of_no_rows():
    f = load(parse("op f(x[b,i], y[i]) -> z\nz[b,i] = sum[j](x[b,j]*y[(i - j) % size(i)])"))
    x, y = torch.zeros(0, 3, requires_grad=True), torch.ones(3, requires_grad=True)
    f(x, y).sum().backward()
    assert x.grad.shape == (0, 3) and y.grad.tolist() == [0, 0, 0]


@pytest.mark.parametrize("size", [0, 1, 3])
def test_a_ring_of_no_positions_is_a_part_of_a_join(size):
    op = parse(
        "op f(v[j], x[l,j], z[k]) -> y\n"
        "y[t] = concat[t]([t >= 1]*x[1,(t + 1) % size(t)]*v[t], z[t])"
    )
    v, x, z = torch.rand(size), torch.rand(2, size), torch.rand(4)
    first = torch.where(torch.arange(size) >= 1, x[1].roll(-1) * v, 0)
    torch.testing.assert_close(load(op)(v, x, z), torch.cat((first, z)))


def test_a_ring_sum_of_integers_is_exact():
    f = load(
        parse(
            "op f(a[i]: int, b[i]: int, v[i]) -> z, y\n"
            "z[i] = sum[j](a[j]*b[(i - j) % size(i)])\n"
            "y[i] = v[i]*sum[j](v[j]*b[(i + j) % size(i)])"
        )
    )
    a, b = (torch.arange(12) * n % 17 - 8 for n in (5, 7))
    v = torch.rand(12, dtype=torch.float64).requires_grad_()
    z, y = f(a, b, v)
    assert z.tolist() == on_ring(a, b, 1, -1).tolist()
    torch.testing.assert_close(y, v * on_ring(v, b, 1, 1))
    assert torch.autograd.gradcheck(lambda v: f(a, b, v)[1], v)


def test_a_ring_sum_inside_of_a_function_keeps_its_small_elements():
    """The rounding of a transform would make some of them negative."""
    f = load(parse("op f(x[i], w[i]) -> y\ny[i] = log(sum[j](x[j]*w[(i - j) % size(i)]))"))
    x, w = 10.0 ** -torch.arange(24.0), 10.0 ** -torch.arange(24.0)
    torch.testing.assert_close(f(x, w), on_ring(x, w, 1, -1).log())


def test_a_plain_circular_convolution_runs_in_half_precision():
    op = parse("op f(x[i], w[i]) -> y; y[i] = sum[a](x[a]*w[(i-a) % size(i)])")
    f = imported("f", source(op, style="plain")).f
    x, w = (torch.randn(5).bfloat16().requires_grad_() for _ in range(2))
    y = f(x, w)
    assert y.dtype is torch.bfloat16
    assert all(g.dtype is torch.bfloat16 for g in torch.autograd.grad(y.sum(), (x, w)))
    torch.testing.assert_close(y.float(), f(x.float(), w.float()), rtol=0.05, atol=0.05)
