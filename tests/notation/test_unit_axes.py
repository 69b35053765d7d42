"""Axes of size 1, written 0 on an op line."""

import pytest
import torch

import derive


def test_a_mask_for_all_heads():
    op = derive.parse(
        "op f(x[0,0], mask[b,0,i,j]: bool, s[b,h,i,j]) -> y\n"
        "y[b,h,i,j] = where(mask[b,0,i,j], s[b,h,i,j], 0)*x[0,0]"
    )
    assert derive.parse(str(op)) == op and "mask[b, 0, i, j]: bool" in str(op)
    f = derive.load(op)
    x = torch.randn(1, 1, dtype=torch.float64, requires_grad=True)
    s = torch.randn(2, 5, 3, 4, dtype=torch.float64, requires_grad=True)
    mask = torch.rand(2, 1, 3, 4) > 0.5
    torch.testing.assert_close(f(x, mask, s), torch.where(mask, s, 0) * x)
    assert torch.autograd.gradcheck(lambda x, s: f(x, mask, s), (x, s))
    assert torch.autograd.gradgradcheck(lambda x, s: f(x, mask, s), (x, s))
    with pytest.raises(ValueError, match="axis 1 of mask has size 5, but must have size 1"):
        f(x, mask.expand(s.shape), s)


def test_a_letter_that_is_taken_is_not_used():
    op = derive.parse("op f(one[n,0], x[n,0]) -> y\ny[n,0] = one[n,0]*x[n,0]")
    one, x = torch.randn(3, 1), torch.randn(3, 1)
    torch.testing.assert_close(derive.load(op)(one, x), one * x)
    assert derive.parse(str(op)) == op


def test_the_position_is_written():
    with pytest.raises(derive.SpecError, match="x has 2 axes but is read here with 1"):
        derive.parse("op f(x[n,0]) -> y\ny[n] = x[n]")


def test_in_sympy():
    from sympy import Eq, IndexedBase, symbols

    n = symbols("n", integer=True)
    x, y = IndexedBase("x"), IndexedBase("y")
    op = derive.Operation("f", Eq(y[n], x[n, 0] ** 2), inputs=[x[n, 0]])
    assert op == derive.parse("op f(x[n,0]) -> y\ny[n] = x[n,0]**2")


@pytest.mark.parametrize("shape", [(1, 3), (4, 1), (1, 1)])
def test_what_was_read_takes_what_it_was_read_from(shape):
    def f(x, scale):
        return (x * scale).sum(0, keepdim=True), x.mean() * scale

    x, scale = torch.randn(shape), torch.randn(1)
    read = derive.load(derive.read_torch(f, x, scale))
    for ours, theirs in zip(read(x, scale), f(x, scale), strict=True):
        torch.testing.assert_close(ours, theirs)
