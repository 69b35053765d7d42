"""Parts that are joined in another order than they were taken apart or given in."""

import pytest
import torch
from kit.each import some_now
from kit.reads import assert_read

import derive


def both_ways(a, b):
    return torch.cat([a, b], -1) * torch.cat([b, a], -1)


def by_one_name(a, b, c):
    return torch.cat([b, a], -1) * c + torch.cat([a, b], -1)


def of_two(a, b, c):
    one, other = (
        torch.cat([torch.cat([a, b], -1), c], -1),
        torch.cat([a, torch.cat([b, c], -1)], -1),
    )
    return one * other.tanh()


def of_four(a, b, c, d):
    """The sizes of two are those of two others together."""
    return (torch.cat([a, b], -1) * torch.cat([d, c], -1)).sum(-1)


def last_first(x, y):
    return y * torch.cat([x[:, -3:], x[:, :-3]], -1)


def of_both(x, y):
    one, other = torch.cat([x[:, -2:], y[:, :-2]], -1), torch.cat([x[:, :-2], y[:, -2:]], -1)
    return one * other * x


def before(x):
    """What was two steps before."""
    return x.tanh() * torch.cat([x[:, :2], x[:, :-2]], 1)


def by_width(x, cos, sin):
    """A part of each head is rotated, as wide as its angles are."""
    n = cos.shape[-1]
    a, b, rest = x[..., :n], x[..., n : 2 * n], x[..., 2 * n :]
    return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], -1)


def weighted_start(x, w, g):
    n = w.shape[0]
    return torch.layer_norm(torch.cat([x[:, :n] * w, x[:, n:]], 1), g.shape, g)


def steps(x, t):
    """Differences of neighbors, as wide as before by a last one."""
    d = torch.cat([t[:, 1:] - t[:, :-1], torch.full_like(t[:, :1], 3.0)], -1)
    return torch.cumprod(torch.exp(-d * x), -1)


def with_one_more(x, w):
    """An axis of two parts, padded to be as long as that of a weight."""
    return torch.nn.functional.pad(torch.cat([x.sin(), x.cos()], 1), (0, 1)) @ w


def exchanged(x, y, w):
    """One norm of two sequences, which then stand in the other order."""
    h = torch.layer_norm(torch.cat([y, x], 1) @ w, w.shape[:1])
    a, b = h.split([y.shape[1], x.shape[1]], 1)
    return torch.cat([b, a], 1) - h.mean(1, keepdim=True)


def attended(x, y, w):
    h = torch.cat([y, x @ w], 1)
    h = torch.nn.functional.scaled_dot_product_attention(h, h, h)
    return torch.cat([h[:, y.shape[1] :], h[:, : y.shape[1]]], 1).tanh()


def joined_truths(x, a, b):
    none = torch.zeros(a.shape[0], 2, dtype=torch.bool)
    return torch.where(torch.cat([a > 0, b[:, 2:] > 1, none], 1), x, -x).sum(1)


def truths_beside_numbers(a, b):
    pair = torch.stack([a[:, 0] > 0, b[:, 0]], 1) / 2
    return torch.cat([a > 0, a * 2, b.long()], 1), pair, torch.cat([a.long(), b], 1) / 2


def at_other_positions(x, at):
    """The positions are one more than what is read."""
    return x.gather(1, at[:, 1:, None].expand(x.shape[0], x.shape[1] - 1, x.shape[2])).tanh()


READ = {
    both_ways: ([(3, 4), (3, 5)], [(2, 7), (2, 3)]),
    by_one_name: ([(3, 4), (3, 5), (3, 9)], [(2, 3), (2, 5), (2, 8)]),
    of_two: ([(3, 4), (3, 5), (3, 6)], [(2, 7), (2, 3), (2, 4)]),
    of_four: ([(3, 4), (3, 5), (3, 7), (3, 2)], [(2, 6), (2, 3), (2, 8), (2, 1)]),
    last_first: ([(3, 9), (3, 9)], [(2, 7), (2, 7)]),
    of_both: ([(3, 9), (3, 9)], [(2, 7), (2, 7)]),
    with_one_more: ([(2, 3), (7, 4)], [(5, 4), (9, 2)]),
    steps: ([(3, 9), (3, 9)], [(2, 7), (2, 7)]),
    exchanged: ([(2, 6, 4), (2, 5, 4), (4, 4)], [(1, 4, 3), (1, 2, 3), (3, 3)]),
    attended: ([(2, 6, 4), (2, 5, 4), (4, 4)], [(1, 4, 3), (1, 2, 3), (3, 3)]),
    before: ([(3, 9, 4)], [(2, 7, 5)]),
    by_width: ([(2, 3, 5, 10), (5, 3), (5, 3)], [(1, 4, 3, 7), (3, 2), (3, 2)]),
    weighted_start: ([(4, 9), (5,), (9,)], [(3, 7), (2,), (7,)]),
    joined_truths: ([(3, 9), (3, 4), (3, 5)], [(2, 7), (2, 3), (2, 4)]),
    truths_beside_numbers: ([(3, 4), (3, 5)], [(2, 3), (2, 7)]),
    at_other_positions: (
        [(2, 4, 3), torch.tensor([[0, 3, 1, 1], [3, 2, 0, 3]])],
        [(1, 3, 2), torch.tensor([[2, 1, 0]])],
    ),
}


@pytest.mark.parametrize("function", some_now([*READ], len(READ), 3))
def test_parts_in_another_order_are_read(function):
    assert_read(function, *READ[function])


def test_sizes_that_are_none_together_are_refused_at_the_call():
    op = derive.read_torch(of_four, *(torch.ones(3, n) for n in (4, 5, 7, 2)))
    with pytest.raises(ValueError, match="size"):
        derive.load(op)(*(torch.ones(3, n) for n in (4, 5, 7, 3)))


def test_sums_of_sizes_are_one_in_any_order():
    text = (
        "op f(a[n,i], b[n,j]; size(k)=size({})) -> y, z\n"
        "y[n,k] = concat[k](a[n,k], b[n,k])\nz[n,k] = concat[k](b[n,k], a[n,k])"
    )
    derive.parse(text.format("i) + size(j"))
    derive.parse(text.format("j) + size(i"))
    with pytest.raises(derive.SpecError, match="index k has two sizes"):
        derive.parse(text.format("i) + 2*size(j"))
