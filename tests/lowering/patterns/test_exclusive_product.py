"""The product over all positions but one's own: no quotient, so zeros are fine."""

from __future__ import annotations

import pytest
from kit.texts import source

from derive import load, parse

torch = pytest.importorskip("torch")

OP = parse("op f(x[i,j]) -> y\ny[i] = prod[j](x[i,j])")


@pytest.mark.parametrize("zeros", [0, 1, 2])
def test_the_gradient_of_a_product_with_zeros(zeros):
    x = torch.rand(3, 4, dtype=torch.float64) + 0.5
    x[1, :zeros] = 0
    ours, theirs = (x.clone().requires_grad_() for _ in range(2))
    load(OP)(ours).sum().backward()
    theirs.prod(1).sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad)


def test_it_is_a_helper_of_the_module():
    assert "rt.exclusive_prod(x, 1)" in source(OP)
