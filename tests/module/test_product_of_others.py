"""The derivative of a product: a quotient only where that loses nothing."""

import torch
from kit.each import each_row
from kit.texts import source

import derive

PRODUCT = "op f(x[n,k]) -> y\ny[n] = prod[k](x[n,k])"
ROWS = {
    "plain": [0.5, -3.0, 2.0, 7.0],
    "a zero": [0.5, 0.0, 2.0, 7.0],
    "two zeros": [0.0, 3.0, 0.0, 7.0],
    "near zero on the way": [1e-30, 1e-12, 1e30, 1e-3],
    "infinite": [1e30, 1e20, 2.0, 3.0],
    "a nan": [0.5, float("nan"), 2.0, 0.0],
}


@each_row("row", ROWS)
def test_it_has_the_digits_of_the_products(row):
    x = torch.tensor([ROWS[row], [1.0, 2.0, 3.0, 4.0]], requires_grad=True)
    exact = x.detach().double()
    (found,) = torch.autograd.grad(derive.load(derive.parse(PRODUCT))(x).sum(), x)
    others = [exact[:, [m for m in range(4) if m != k]].prod(1) for k in range(4)]
    want = torch.stack(others, 1).float()
    torch.testing.assert_close(found, want, rtol=1e-5, atol=1e-40, equal_nan=True)


def test_it_is_a_helper_of_the_module():
    assert "rt.exclusive_prod(x, 1)" in source(derive.parse(PRODUCT))


def test_no_value_is_asked_for_where_there_is_none():
    x = torch.empty(3, 5, device="meta", requires_grad=True)
    derive.load(derive.parse(PRODUCT))(x).sum().backward()
    assert x.grad.shape == (3, 5)
