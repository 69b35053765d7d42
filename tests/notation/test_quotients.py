"""Quotients rounded down and remainders of positions and integers."""

import pytest
import torch
from sympy import Eq, IndexedBase, symbols

import derive
from derive.notation.heads import size

DOUBLED = "op f(x[n,t]; size(u)=2*size(t)) -> y; "
READ = {
    DOUBLED + "y[n,u] = x[n,u//2]**2": lambda x: x.repeat_interleave(2, 1) ** 2,
    DOUBLED + "y[n,u] = x[n,u%3]**2": lambda x: x[:, torch.arange(2 * x.shape[1]) % 3] ** 2,
    DOUBLED + "y[n,u] = x[n,3*u//4 % 5]*[u%2 == 0]": lambda x: (
        x[:, 3 * (u := torch.arange(2 * x.shape[1])) // 4 % 5] * (u % 2 == 0)
    ),
    "op f(x[n,t]; size(u)=size(t)//2+size(t)%2) -> y; y[n,u] = x[n,2*u]": lambda x: x[:, ::2],
    "op f(x[n,t]; s=3, size(u)=s*size(t)) -> y; y[n,u] = x[n,u//s]": lambda x: x.repeat_interleave(
        3, 1
    ),
    "op f(x[n,t]) -> y; y[n,t] = x[n,t]%2 - (x[n,t]%-2)**2/3": lambda x: x % 2 - (x % -2) ** 2 / 3,
}


@pytest.mark.parametrize("text", READ)
def test_quotients_and_remainders(text):
    op = derive.parse(text)
    assert derive.parse(str(op)) == op
    f = derive.load(op)
    x = torch.randn(2, 5, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(f(x), READ[text](x))
    assert torch.autograd.gradcheck(f, (x,))


def test_the_floor_of_a_quotient_of_integers_is_exact():
    """1/49*49 is less than 1 in floating point."""
    x = torch.randn(2, 50)
    for read in ("u//49", "int(floor(u/49))"):
        f = derive.load(
            derive.parse(f"op f(x[n,t]; size(u)=49*size(t)) -> y; y[n,u] = x[n,{read}]")
        )
        assert torch.equal(f(x), x.repeat_interleave(49, 1))


def test_of_an_integer_tensor():
    f = derive.load(derive.parse("op f(x[t], T[k]: int) -> y; y[k] = x[T[k]%4]*T[k]//3"))
    x, T = torch.rand(4), torch.tensor([6, 9, 1])
    assert torch.equal(f(x, T), (x[T % 4] * T / 3).floor().long())


def test_from_sympy():
    n, t, u = symbols("n t u", integer=True)
    x, y = map(IndexedBase, "xy")
    op = derive.Operation(
        "f",
        Eq(y[n, u], x[n, u // 2] * x[n, u % 3]),
        inputs=(x[n, t],),
        parameters={size(u): 2 * size(t)},
    )
    assert op == derive.parse("op f(x[n,t]; size(u)=2*size(t)) -> y; y[n,u] = x[n,u%3]*x[n,u//2]")
