"""The code of kernels: axes and numbers of their arguments."""

import numpy as np
import pytest
import torch
from kit.lowered import assert_right
from kit.unwritten import source_without_reuse

import derive


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("y[i,j] = w[j]*x[i,j]*sigmoid(x[i,j])", "w * torch.nn.functional.silu(x)"),
        ("y[i,j] = x[j]*sigmoid(x[j])*w[i,j]", "silu_backward((G * w).sum(0), x)"),
        ("op f(x[i,k]) -> y\ny[k,i] = x[i,k]*sigmoid(x[i,k])", "silu(x.mT)"),
        ("op f(x[i]; a=2) -> y\ny[i] = where(x[i] > 0, x[i], a*expm1(x[i]))", "elu(x, a)"),
        ("y[i,k] = softmax[k](x[i,k])", "_softmax_backward_data(G, y, 1, y.dtype)"),
        (
            "op f(x[*p,k,*q]; dim=axis(k)) -> y\ny[*p,k,*q] = softmax[k](x[*p,k,*q])",
            "(G, y, ctx.dim, ",
        ),
        ("op f(x[k,t]; size(t)=2) -> y\ny[k] = x[k,0]*sigmoid(x[k,1])", "glu(x, 1).squeeze(1)"),
        (
            "op f(x[k,t], w[k]; size(t)=2) -> y\ny = sum[k](w[k]*x[k,0]*sigmoid(x[k,1]))",
            "glu_backward((G * w).unsqueeze(1), x, 1)",
        ),
    ],
)
def test_arguments_are_brought_to_one_layout(text, code):
    assert code in source_without_reuse(derive.parse(text))


GELU = "a[i,j]*(1 + erf(a[i,j]/sqrt(2)))/2"
HUBER = "where(abs({0} - {1}) <= 1, ({0} - {1})**2/2, abs({0} - {1}) - 1/2)"
SMOOTH = HUBER.replace("<=", "<")
SPREAD = {
    "mean of rows": f"y[i] = mean[j]({GELU})",
    "sum of columns": f"y[j] = sum[i]({GELU})",
    "mean of all": f"y = mean[i,j]({GELU})",
    "with a weight": f"y[i] = b[i]*mean[j]({GELU})",
    "pairs": "l[i,j] = " + HUBER.format("x[i]", "y[j]"),
    "pairs in another order": "l[j,i] = " + SMOOTH.format("x[i]", "y[j]"),
    "pairs with a gap": "l[i,k,j] = w[k]*" + HUBER.format("x[i]", "y[j]"),
    "rows": "l[i,j] = " + SMOOTH.format("x[i,j]", "y[i]"),
    "a number": "l[i,j] = " + HUBER.format("x[i,j]", "y"),
}
"""Kernels of two tensors, one of which lacks axes of the other."""


@pytest.mark.parametrize("text", SPREAD.values(), ids=SPREAD)
def test_a_kernel_of_two_tensors_takes_them_in_one_shape(text, capfd):
    op = derive.parse(text)
    f = derive.load(op)
    sizes = {e.name: n for e, n in zip(op.extents, (3, 4, 2), strict=False)}
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        shapes = [[sizes[i.extent] for i in t.axes] for t in op.inputs]
        given = [torch.linspace(-2, 3, 12)[: torch.Size(n).numel()].reshape(n) for n in shapes]
        tensors = [t.to(dtype).requires_grad_() for t in given]
        y = f(*tensors)
        once = torch.autograd.grad(y.sum(), tensors, retain_graph=True)
        again = torch.autograd.grad(y.sum(), tensors, create_graph=True)
        torch.testing.assert_close(once, again)
        batch = torch.vmap(f)(*(torch.stack([t, t]).detach() for t in tensors))
        torch.testing.assert_close(batch[1], y.detach())
    assert "resized" not in capfd.readouterr().err
    assert_right(text)


GATE = "{out}[n,d] = {of}[n,0,d]*sigmoid({of}[n,1,d])\n"


@pytest.mark.parametrize(
    "text",
    [
        # The cotangent of a gate stands on the axis along which the gate before it is taken.
        "op f(x[n,m,d]; size(m)=2) -> y\n"
        + GATE.format(out="h", of="x")
        + "y[n,d] = h[n,d]*(1 + erf(h[n,d]/sqrt(2)))/2",
        # The halves of halves.
        "op f(x[n,c]; size(m)=2) -> y\np[n,m,k] = x[n,(m k)]\n"
        "h[n,m,d] = p[n,0,(m d)]*sigmoid(p[n,1,(m d)])\n" + GATE.format(out="y", of="h"),
    ],
)
def test_a_kernel_inside_of_another_has_an_axis_of_its_own(text):
    shape = (3, 2, 5) if "x[n,m,d]" in text else (3, 20)
    assert_right(text, x=np.random.default_rng(0).normal(size=shape))
