"""Losses of all pairs of a batch, and rows that end elsewhere, as they are written today."""

import pytest
import torch
import torch.nn.functional as F

import derive


def paired(a, b):
    """NT-Xent of two views of a batch."""
    z = F.normalize(torch.cat([a, b]), dim=1)
    scores = z @ z.T / 0.5
    scores.fill_diagonal_(-torch.inf)
    n = a.shape[0]
    return F.cross_entropy(scores, torch.cat([torch.arange(n) + n, torch.arange(n)]))


def paired_by_diagonals(a, b):
    z = torch.cat([a, b])
    scores = (z @ z.T).masked_fill(torch.eye(2 * a.shape[0], dtype=torch.bool), -torch.inf)
    n = a.shape[0]
    own = torch.cat([torch.diag(scores, n), torch.diag(scores, -n)])
    return (torch.logsumexp(scores, 1) - own).mean()


def paired_by_blocks(a, b):
    n, scores = a.shape[0], torch.cat([a, b]) @ torch.cat([a, b]).T
    own = torch.cat([scores[:n, n:].diagonal(), scores[n:, :n].diagonal()])
    return scores.logsumexp(1).mean() - own.mean()


def without_itself(x):
    scores = (x @ x.T).masked_fill(torch.eye(x.shape[0]).bool(), float("-inf"))
    return scores.softmax(-1) @ x


def a_part_alone(a, b):
    scores = torch.cat([a, b], 1)
    kept = torch.arange(scores.shape[1]) < a.shape[1]
    return torch.where(kept, scores, -torch.inf).softmax(1)[:, : a.shape[1]]


def filled_with_a_number(a, b):
    scores = a @ b.T
    scores.fill_diagonal_(2.0)
    return scores.logsumexp(1)


def next_of_each(x):
    """Each row at the place of the next in a joined batch."""
    n = x.shape[0] // 2
    at = torch.cat([torch.arange(n) + n, torch.arange(n)])
    return x * x[at].sin()


def shifted(x):
    """Relative positions by padding and counting the rows anew, as Transformer-XL has it."""
    b, h, n, m = x.shape
    return F.pad(x, (1, 0)).reshape(b, h, m + 1, n)[:, :, 1:].reshape(b, h, n, m).sin()


def counted_anew(x):
    return x.reshape(x.shape[1], x.shape[0]).cumsum(1)


def of_one_channel(x):
    return x.mean(1, keepdim=True).softmax(1) * x + x.sum(1, keepdim=True).log_softmax(1)


def windows(x):
    """Attention within shifted windows of 2 x 2."""
    b, h, w, c = x.shape
    x = torch.roll(x, (-1, -1), (1, 2)).view(b, h // 2, 2, w // 2, 2, c)
    x = x.permute(0, 1, 3, 2, 4, 5).reshape(-1, 4, c)
    x = (x @ x.transpose(1, 2)).softmax(-1) @ x
    x = x.view(b, h // 2, w // 2, 2, 2, c).permute(0, 1, 3, 2, 4, 5).reshape(b, h, w, c)
    return torch.roll(x, (1, 1), (1, 2))


READ = {
    paired: [(4, 3), (4, 3)],
    paired_by_diagonals: [(4, 3), (4, 3)],
    paired_by_blocks: [(4, 3), (4, 3)],
    without_itself: [(5, 3)],
    a_part_alone: [(3, 2), (3, 4)],
    filled_with_a_number: [(4, 3), (4, 3)],
    next_of_each: [(6, 3)],
    shifted: [(2, 3, 4, 5)],
    counted_anew: [(4, 6)],
    of_one_channel: [(3, 4)],
    windows: [(2, 4, 6, 3)],
}


@pytest.mark.parametrize("function", READ, ids=lambda f: f.__name__)
def test_what_is_read_is_the_function(function):
    torch.manual_seed(0)
    shapes = READ[function]
    ours = derive.load(derive.read_torch(function, *map(torch.randn, shapes)))
    given = [torch.randn(s, dtype=torch.float64, requires_grad=True) for s in shapes]
    value, wanted = ours(*given), function(*given)
    torch.testing.assert_close(value, wanted)
    shift = torch.randn_like(wanted)
    found = torch.autograd.grad(value, given, shift)
    torch.testing.assert_close(found, torch.autograd.grad(wanted, given, shift))


@pytest.mark.parametrize("function", [paired, paired_by_diagonals, shifted])
def test_other_sizes_are_those_of_the_function(function):
    torch.manual_seed(0)
    ours = derive.load(derive.read_torch(function, *map(torch.randn, READ[function])))
    sizes = {2: (7, 5), 4: (3, 2, 6, 9)}
    given = [torch.randn(sizes[len(s)], dtype=torch.float64) for s in READ[function]]
    torch.testing.assert_close(ours(*given), function(*given))
