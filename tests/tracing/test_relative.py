"""Positions that are computed from others: relative ones, and those of a diagonal."""

import pytest
import torch
import torch.nn.functional as F
from kit.reads import assert_read


def near(q, table, k=3):
    """Relative positions up to a distance, as Shaw et al. have them."""
    i = torch.arange(q.shape[1])
    return torch.einsum("bid,ijd->bij", q, table[(i[:, None] - i).clamp(-k, k) + k])


def by_table(s, table):
    i, k = torch.arange(s.shape[1]), (table.shape[0] - 1) // 2
    return s + table[torch.clamp(i - i[:, None], -k, k) + k]


def distances(s, table):
    i = torch.arange(s.shape[1])
    return (s + F.embedding((i[:, None] - i).abs().clamp(max=4), table)).softmax(1)


def next_row(x):
    n = x.shape[1]
    return x * x[:, (torch.arange(n) + 1).clamp(max=n - 1)].tanh()


def around(x):
    n = x.shape[1]
    i = torch.arange(n)
    return (x[:, (i[:, None] - i) % n] * x[:, None]).sum(-1)


def merged(x):
    """Patches of 2 by 2, of strided slices along two axes, in one row."""
    parts = [x[:, i::2, j::2] for j in (0, 1) for i in (0, 1)]
    return torch.cat(parts, -1).view(len(x), -1, 4 * x.shape[-1])


READ = {
    near: ([(2, 5, 4), (7, 4)], [(1, 6, 3), (7, 3)]),
    by_table: ([(2, 5, 5), (9,)], [(1, 6, 6), (5,)]),
    distances: ([(5, 5, 3), (5, 3)], [(4, 4, 2), (6, 2)]),
    next_row: ([(2, 5, 4)], [(1, 6, 3)]),
    around: ([(2, 5, 4)], [(1, 6, 3)]),
    merged: ([(2, 4, 6, 3)], [(3, 8, 2, 5)]),
    lambda x: x - torch.diag(x.diag()): ([(4, 4)], [(5, 5)]),
    lambda x: x - torch.diag_embed(x.diagonal(dim1=1, dim2=2)): ([(2, 4, 4)], [(3, 5, 5)]),
}


@pytest.mark.parametrize("function", READ)
def test_positions_are_read(function):
    assert_read(function, *READ[function])


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_classes_before_the_first_mark(reduction):
    target = torch.tensor([[0, 2, -1, 0, 0], [3, -1, 1, 0, -1], [1, 4, 2, 0, 3], [-1, 0, 0, 0, 0]])
    loss = torch.nn.MultiLabelMarginLoss(reduction=reduction)
    assert_read(loss.forward, [(4, 5), target])
    assert_read(loss.forward, [(4, 5), target], [(2, 5), target[1:3]])


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_one_size(mode):
    def bags(table, rows):
        return F.embedding_bag(rows, table, mode=mode)

    assert_read(bags, [(7, 5), torch.tensor([[2, 0, 6, 1], [3, 3, 5, 4]])])


def test_bags_with_scales():
    def bags(table, rows, scales):
        return F.embedding_bag(rows, table, mode="sum", per_sample_weights=scales)

    assert_read(bags, [(7, 5), torch.tensor([[2, 0, 6, 1], [3, 3, 5, 4]]), (2, 4)])
