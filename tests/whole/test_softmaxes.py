"""Softmax beside log_softmax: the value does not depend on which gradients are wanted."""

from itertools import combinations

import pytest
import torch
from kit.each import some_now

import derive
from derive.check.checks import checks_of

TEXT = """op f(x[n,k], y[n,k], w[k]) -> L
F[n,k] = x[n,k] + y[n,k] - logsumexp[k](x[n,k] + y[n,k])
L = sum[n,k](w[k]*exp(F[n,k]) + w[k]**2*F[n,k])"""


@pytest.mark.parametrize(
    "wanted", [c for n in (1, 2, 3) for c in combinations("xyw", n)], ids="".join
)
def test_gradients_of_any_inputs_are_those_of_autograd(wanted):
    f = derive.load(derive.parse(TEXT))
    tensors = {
        "x": torch.randn(2, 3, dtype=torch.float64),
        "y": torch.randn(2, 3, dtype=torch.float64),
        "w": torch.rand(3, dtype=torch.float64),
    }
    leaves = [tensors[name].requires_grad_() for name in wanted]
    F = torch.log_softmax(tensors["x"] + tensors["y"], 1)
    want = torch.autograd.grad((tensors["w"] * F.exp() + tensors["w"] ** 2 * F).sum(), leaves)
    made = torch.autograd.grad(f(*tensors.values()), leaves)
    torch.testing.assert_close(made, want)


def test_each_is_computed_only_where_it_is_wanted():
    text = derive.source(derive.parse(TEXT))
    backward = text[text.index("def backward") :]
    assert backward.count("torch.log_softmax(") == 0
    assert backward.count("torch.softmax(") == 0


MASKED = {
    # What the logsumexp leaves out is read: exp(A - lse) may be greater than 1 there.
    "op f(A[k], m[k]: bool) -> y\nF = logsumexp[l | m[l]](A[l])\ny[k] = A[k] - F": False,
    "op f(A[k], m[k]: bool) -> y\nF = logsumexp[l | m[l]](A[l])\ny[k] = exp(A[k] - F)": False,
    "op f(A[k], B[k]) -> y\nF[k] = logsumexp[l | l <= k](A[l])\n"
    "y[k] = sum[j | j <= k](B[j]*exp(A[k] - F[j]))": False,
    "op f(A[k], m[k]: bool, n[k]: bool) -> y\nF = logsumexp[l | m[l] and n[l]](A[l])\n"
    "y[k] = [m[k]]*sin(exp(A[k] - F))": False,
    "op f(A[k], m[k]: bool) -> y\nF = logsumexp[l | m[l]](A[l])\n"
    "y[k] = where(m[k], exp(A[k] - F), A[k])": True,
    # One of each row is read there, whose position is put in, where the axes are the same.
    "op f(A[k]) -> y\ny[k] = sum[l | l == k](softmax[l | l <= k](l*A[l]))": False,
    "op f(A[l], z[k]) -> y\ny[k] = z[k]*sum[l | l == k](softmax[l | l <= k](l*A[l]))": True,
    "op f(A[k], m[k]: bool, n[k]: bool) -> y\nF = logsumexp[l | m[l] and n[l]](A[l])\n"
    "y[k] = [m[k] and n[k] and A[k] > 0]*sin(exp(A[k] - F))": True,
}


@pytest.mark.parametrize(
    "text", some_now(MASKED, len(MASKED), 3), ids=lambda text: text.partition("\n")[2]
)
def test_a_softmax_of_some_is_read_only_at_those(text):
    op = derive.parse(text)
    f = derive.load(op)
    assert not [c for c in checks_of(op, f) if not c.ok]
    forward = derive.source(op).partition("def forward(")[2].partition("def setup_context")[0]
    assert ("softmax" in forward) == MASKED[text]
