"""A backward calls nothing but what autograd's older vmap has a rule for, einsum apart."""

from __future__ import annotations

import pytest
import torch

from derive import load, parse
from derive.program.legalize_vmap import legalize_vmap_calls
from derive.program.torch_ir import FunctionCall, MethodCall, Name, Tuple, literal, text

x = Name("x")


def test_flatten_and_unflatten_are_reshaped():
    apart = MethodCall(x, "unflatten", (literal(0), Tuple((literal(2), literal(3)))))
    code = MethodCall(MethodCall(apart, "flatten", (literal(1), literal(2))), "exp")
    assert text(legalize_vmap_calls(code)) == "_flatten(_unflatten(x, 0, (2, 3)), 1, 2).exp()"
    # With no axes named it is one axis of all.
    assert legalize_vmap_calls(MethodCall(x, "flatten")) == MethodCall(x, "flatten")
    assert legalize_vmap_calls(FunctionCall("torch.exp", (x,))) == FunctionCall("torch.exp", (x,))


SPECS = (
    "op f(x[n,(t d)], W[d,e]; size(d)=3) -> y\ny[n,(t e)] = sum[d](x[n,(t d)]*W[d,e])",
    "op f(x[(a b),c]; size(b)=3) -> y\ny[a,(b c)] = x[(a b),c]**2",
)


@pytest.mark.parametrize("spec", SPECS)
def test_a_batch_of_cotangents(spec):
    f = load(parse(spec))
    inputs = [torch.randn(4, 6, dtype=torch.float64, requires_grad=True)]
    inputs = [inputs[0].reshape(6, 4).detach().requires_grad_()] if "(a b)" in spec else inputs
    if "W" in spec:
        inputs.append(torch.randn(3, 2, dtype=torch.float64, requires_grad=True))
    y = f(*inputs)
    many = torch.randn(5, *y.shape, dtype=torch.float64)
    found = torch.autograd.grad(y, inputs, many, is_grads_batched=True, retain_graph=True)
    for n, G in enumerate(many):
        for one, each in zip(
            torch.autograd.grad(y, inputs, G, retain_graph=True), found, strict=True
        ):
            torch.testing.assert_close(each[n], one)


def test_an_empty_axis_is_merged():
    f = load(parse("op f(x[(a b),c]; size(b)=3) -> y\ny[a,(b c)] = x[(a b),c]**2"))
    x = torch.randn(0, 4, requires_grad=True)
    (gradient,) = torch.autograd.grad(f(x).sum(), x)
    assert gradient.shape == (0, 4)
