"""One kernel where several differ in their cotangents alone."""

from __future__ import annotations

import pytest
import torch
from kit.unwritten import first_order

import derive

TEXTS = {
    "p[i] = sigmoid(x[i])\ny[] = sum[i](w[i]*p[i])/(1 + sum[i](p[i]))": "sigmoid_backward",
    "p[i] = tanh(x[i])\ny[i] = w[i]*p[i] + p[i]**2 - 3*p[i]": "tanh_backward",
    "y[i,k] = w[k]*tanh(v[i,k]*x[i,k])": "tanh_backward",
    "p[i,k] = softmax[k](x[i,k])\ny[i] = sum[k](w[k]*p[i,k]) + sum[k](v[i,k]*p[i,k])**2": (
        "_softmax_backward_data"
    ),
}


@pytest.mark.parametrize("text", TEXTS, ids=lambda t: t.replace("\n", "; "))
def test_one_kernel_is_called(text):
    op = derive.parse(text)
    assert first_order(derive.source(op)).count(TEXTS[text]) == 1
    f = derive.load(op)
    torch.manual_seed(0)
    sizes = {"i": 3, "k": 5}
    made = [
        torch.randn([sizes[a.name] for a in t.axes], dtype=torch.float64, requires_grad=True)
        for t in op.inputs
    ]
    assert torch.autograd.gradcheck(f, made) and torch.autograd.gradgradcheck(f, made)
