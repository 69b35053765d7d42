"""Norms of any order, whose gradient is 0 where torch's is."""

import pytest
import torch

import derive

ROWS = torch.tensor([[0.0, 0.0, 0.0], [1.0, 0.0, -2.0], [0.5, 3.0, 1.5]], dtype=torch.float64)


@pytest.mark.parametrize("order", [0.5, 1, 1.5, 2, 3, 4.5, float("inf")])
def test_the_gradient_at_zeros(order):
    def norm(x):
        return torch.linalg.vector_norm(x, order, dim=1)

    read = derive.load(derive.read_torch(norm, torch.randn(4, 3)))
    ours, theirs = (
        torch.autograd.grad(f(x).square().sum() + f(x).sum(), x)[0]
        for f, x in ((f, ROWS.clone().requires_grad_()) for f in (read, norm))
    )
    torch.testing.assert_close(ours, theirs)


def test_the_distance_of_equal_points_has_no_gradient():
    from derive.generated.pairwise_distance import pairwise_distance

    x = ROWS.clone().requires_grad_()
    y = torch.zeros_like(ROWS)
    ours = torch.autograd.grad(pairwise_distance(x, y, eps=0.0).sum(), x)[0]
    plain = torch.nn.functional.pairwise_distance(x, y, eps=0.0).sum()
    torch.testing.assert_close(ours, torch.autograd.grad(plain, x)[0])


@pytest.mark.parametrize("offset", [0, 1, -1])
def test_a_diagonal_of_any_matrix(offset):
    def weighed(x):
        return (x.diagonal(offset) ** 3).sum()

    read = derive.load(derive.read_torch(weighed, torch.randn(5, 3)))
    for shape in ((5, 3), (3, 5), (4, 4)):
        x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
        ours, theirs = (torch.autograd.grad(f(x), x)[0] for f in (read, weighed))
        torch.testing.assert_close(ours, theirs)
    x = torch.randn(2, 6)
    trace = derive.load(derive.read_torch(torch.trace, torch.randn(4, 2)))
    torch.testing.assert_close(trace(x), torch.trace(x))
