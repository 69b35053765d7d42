"""What is chosen by the number of axes is right for a group of none, one and two."""

import numpy as np
import pytest
import torch
from kit.slopes import along

import derive
from derive.check import oracle

SIZES = {"a": 3, "j": 4, "b": 5, "l": 3}

TEXTS = [
    "y[*p,a,b] = sum[j](A[*p,a,j]*B[*p,j,b]) + sum[j](A[*p,a,j]*C[*p,j,b])",
    "y[*p,a,b] = sum[j](A[*p,a,j]*B[*p,j,b]) + C[*p,a,b]",
    "y[*p,a,b] = sum[j](A[*p,a,j]*B[j,b]) + C[*p,a,b]",
    "y[*p,a,b] = 2*sum[j](A[*p,a,j]*B[*p,j,b]) - 3*C[*p,a,b]",
    "y[*p,a] = sum[j](A[*p,a,j]*B[*p,j]) + C[*p,a]",
    "y[a,*p] = sum[j](A[a,j]*B[j,*p]) + C[a,*p]",
    "y[*p,a] = sum[l | l<=a](A[*p,l])*B[*p,a]",
    "y[*p,a,b] = A[*p,b,a]*B[*p,a,b] - C[*p,a,b]",
    "y[*p,a] = logsumexp[j](A[*p,a,j]) + sum[j](B[*p,a,j]*C[*p,j])",
]


@pytest.mark.parametrize("text", TEXTS)
def test_a_group_of_any_number_of_axes(text):
    op = derive.parse(text)
    function = derive.load(op)
    for lead in ((), (2,), (2, 6)):
        agrees(op, function, lead)


def agrees(op, function, lead):
    random = np.random.default_rng(0)

    def shape(t):
        return sum((lead if axis.group else (SIZES[axis.name],) for axis in t.axes), ())

    given = {t.name: random.normal(size=shape(t)) for t in op.inputs}
    want = oracle.outputs(op, given, {})["y"]
    tensors = [torch.from_numpy(v).requires_grad_() for v in given.values()]
    with torch.no_grad():
        np.testing.assert_allclose(function(*tensors), want, rtol=1e-10)
    y = function(*tensors)
    G = random.normal(size=want.shape)
    for name, grad in zip(given, torch.autograd.grad(y, tensors, torch.from_numpy(G)), strict=True):
        if len(lead) > 1:  # many elements: their derivative along a direction
            way, right = along(op, given, {"y": G}, {}, name)
            grad = (grad * torch.from_numpy(way)).sum()
        else:
            right = oracle.gradient(op, given, {"y": G}, {}, name)
        np.testing.assert_allclose(grad, right, rtol=1e-5, atol=1e-6)
