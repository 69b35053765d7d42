"""What cannot be read ends in an error that says what, where and what to do."""

import pytest
import torch
from torch import nn

import derive


def generator(x):
    yield x
    yield x * 2


def branch(x):
    if x.sum() > 0:
        return x * 2
    return x[:2]


def halves(x):
    while x.abs().max() > 1:
        x = x / 2
    return x


def taken_out(x):
    top = round(x.max().item())
    return x * top


def by_numpy(x):
    return torch.tensor(x.detach().numpy() * 2)


def in_a_view(x):
    y = x.view(-1)
    y.mul_(2)
    return x


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (generator, "the function returns a generator, not a tensor; return a list"),
        (
            branch,
            r"the control flow depends on the values of a tensor, and the branches return results "
            r"of different shapes; .* torch.where",
        ),
        (halves, r"py:\d+: while x\.abs.*\): the control flow depends on the values"),
        (
            taken_out,
            r"return x \* top\): the function computes with a number extracted from a tensor",
        ),
        (
            by_numpy,
            r"numpy\(\) \* 2\)\): the function leaves torch for NumPy; use torch operations",
        ),
        (
            in_a_view,
            r"y\.mul_\(2\)\): the function changes an argument.*; change a copy, x\.clone\(\)",
        ),
        (lambda x: x.tolist(), "the function returns a number, not a tensor"),
        (
            lambda x: (x.sum(), f"{x.sum().item():.3f}"),
            r"a value of a tensor is formatted as text; print it outside",
        ),
        (torch.jit.script(nn.Tanh()), "a module of torch.jit cannot be read"),
        (nn.Linear, r"Linear is a class; pass an instance, Linear\(\.\.\)"),
    ],
)
def test_an_error_says_what_to_do(function, said):
    with pytest.raises(derive.DeriveError, match=said):
        derive.read_torch(function, torch.tensor([2.0, 3.0, 1.0]))


def test_a_sum_of_python_does_not_begin_with_a_zero():
    def weighted(xs, ws):
        return sum(x * w for x, w in zip(xs, ws, strict=True))

    op = derive.read_torch(weighted, [torch.ones(3)] * 2, (torch.ones(3), torch.ones(3)))
    assert "+ 0" not in str(op)
