"""Softmaxes along an axis before a group, which may have no axes."""

from __future__ import annotations

import warnings

import pytest
import torch

from derive import load, parse
from derive.program.legalize_axes import legalize_group_axes
from derive.program.torch_ir import FunctionCall, MethodCall, Name, literal, text

x = Name("x")


def test_calls_along_axes_counted_from_the_first():
    code = MethodCall(
        FunctionCall("torch.log_softmax", (FunctionCall("torch.exp", (x,)), literal(1))), "exp"
    )
    assert text(legalize_group_axes(code)) == "_logsoftmax(torch.exp(x), 1).exp()"
    assert (
        text(legalize_group_axes(FunctionCall("torch.softmax", (x, literal(2)))))
        == "_softmax_of(x, 2)"
    )
    last = FunctionCall("torch.softmax", (x, literal(-1)))
    assert legalize_group_axes(last) is last
    named = FunctionCall("torch.softmax", (x, Name("dim")))
    assert legalize_group_axes(named) is named


@pytest.mark.parametrize("shape", [(), (1,), (2, 3), (0,)])
def test_any_axes_of_the_group(shape):
    f = load(parse("op f(x[n,c,*q], w[*q]) -> y\n"
                   "F[n,c,*q] = log_softmax[c](x[n,c,*q])\n"
                   "y = sum[n,c,*q](w[*q]*F[n,c,*q]*exp(2*F[n,c,*q]))"))  # fmt: skip
    x = torch.randn(3, 4, *shape, dtype=torch.float64, requires_grad=True)
    w = torch.randn(shape, dtype=torch.float64)
    plain = torch.log_softmax(x, 1)
    wanted = (w * plain * (2 * plain).exp()).sum()
    torch.testing.assert_close(f(x, w), wanted)
    pairs = zip(torch.autograd.grad(f(x, w), x), torch.autograd.grad(wanted, x), strict=True)
    for found, right in pairs:
        torch.testing.assert_close(found, right)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = torch.compile(f, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(compiled(x, w), wanted)
