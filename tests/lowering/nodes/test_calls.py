"""Scalar functions are torch's, and a softmax is one call."""

import pytest
import torch

import derive

POSITIONS = {
    "clamp(t + 300, 0, size(t) - 1)": lambda t, n: (t + 300).clamp(0, len(t) - 1),
    "size(t) - 1 - abs(t - 300)": lambda t, n: len(t) - 1 - (t - 300).abs(),
    "maximum(n[t], minimum(t, 700))": lambda t, n: torch.maximum(n, t.clamp(max=700)),
    "minimum(n[t], t)": lambda t, n: torch.minimum(n, t),
}


@pytest.mark.parametrize("position", POSITIONS)
def test_a_position_is_exact_beside_floats_of_16_bits(position):
    """bfloat16 holds no whole numbers beyond 256; plain code computes in the dtype of its input."""
    op = derive.parse(f"op f(x[t], n[t]: int) -> y\ny[t] = 2*x[int({position})] + 0*n[t]")
    made = {}
    exec(derive.source(op, style="plain"), made)
    n = torch.arange(1400).flip(0)
    x = torch.randn(1400).bfloat16().requires_grad_()
    expected = 2 * x[POSITIONS[position](torch.arange(1400), n)]
    for f in (made["f"], derive.load(op)):
        assert torch.equal(f(x, n), expected)
