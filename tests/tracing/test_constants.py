"""Tensors of numbers that no argument decides: their values are numbers of the spec."""

import pytest
import torch
import torch.nn.functional as F
from kit.reads import assert_read

import derive


def by_axes(x, t):
    axes = torch.arange(2, len(x.shape)).tolist()
    both = torch.sum(x * t, dim=axes)
    return 1 - (2 * both + 1) / (x.exp().sum(axes) + t.exp().sum(axes))


def by_parts(x, t):
    w = torch.tensor([0.5, 0.25, 0.25])
    return x * w[0] + t * w[1:].sum()


def by_sizes(x, t):
    n = torch.tensor(x.shape)[1:]
    return (x / n[0]).sum() / n[1] * t


def by_scales(x, t):
    h, w = x.shape[2:]
    return x.sum((1, 2, 3))[:, None] / torch.tensor([w, 2.0 * h], dtype=x.dtype) + t.sum()


def in_turn(x, t):
    for k in torch.arange(3):
        t = t + x[:, k] * (k + 1)
    return t


def chosen(x, t):
    for a in torch.linspace(0, 1, 5).tolist():
        if a > 0.3:
            x = x * a
    return x + t


def written(x, t):
    """What is written is no number of the code that made it."""
    w = torch.zeros(3)
    part = w[1:]
    part += t.mean()
    return x * w[2]


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (by_axes, "sum[h, w](x[n, c, h, w]*t[n, c, h, w])"),
        (by_parts, "= x[n, c, h, w]*0.5 + t[n, c, h, w]*0.5"),
        (by_sizes, "/size(c))/size(h)"),
        (by_scales, "where(i == 0, size(w), 2*size(h))"),
        (in_turn, "+ x[n, 0, h, w] + x[n, 1, h, w]*2"),
        (chosen, "x[n, c, h, w]*0.5*0.75*1"),
        (written, "mean["),
    ],
)
def test_numbers_of_a_tensor_are_read(function, said):
    shape = (2, 3, 4, 5)
    other = (2, 4, 5) if function is in_turn else shape
    assert said in str(assert_read(function, [shape, other]))


SCHEDULE = (1 - torch.linspace(1e-4, 0.02, 20)).cumprod(0)
"""Numbers of float32: 1 - SCHEDULE[0] is not 1e-4."""


def noised(x, noise, t):
    return SCHEDULE[t] ** 0.5 * x + (1 - SCHEDULE[t]) ** 0.5 * noise


def noised_once(x, noise):
    return SCHEDULE[4] ** 0.5 * x + (1 - SCHEDULE[4]) ** 0.5 * noise


LONG = torch.linspace(0, 1, 1000)


def antisymmetric(v):
    """A write at positions that are numbers, no two of them equal."""
    i, j = torch.triu_indices(3, 3, 1)
    m = v.new_zeros(v.shape[0], 3, 3)
    m[:, i, j] = v
    return m - m.transpose(-2, -1)


class Filter(torch.nn.Module):
    """A tensor that is an attribute, and no buffer."""

    def __init__(self):
        super().__init__()
        self.weight = torch.tensor([[0.25, -1.5], [0.5, 2.0], [1.0, -0.75]])

    def forward(self, x):
        return x @ self.weight


def counted(x):
    total = torch.tensor(0.0)
    total += x.shape[0]
    return x.sum() / total


def others(x, label):
    """Masks in bytes."""
    same = (label[:, None] == label[None]).byte()
    return (x * (same ^ 1)).sum() + (x * (same & 1)).mean()


@pytest.mark.parametrize(
    ("function", "examples"),
    [
        (noised, [(3, 4), (3, 4), torch.tensor(0)]),
        (noised_once, [(3, 4), (3, 4)]),
        (lambda x: x * LONG[7], [(3,)]),
        (antisymmetric, [(2, 3)]),
        (counted, [(3, 4)]),
        (others, [(4, 4), torch.tensor([0, 1, 0, 2])]),
        (torch.kron, [(2, 3), (4, 5)]),
        (lambda x: x[:, *torch.triu_indices(4, 4, 1)], [(2, 4, 4)]),
        (lambda x, k: F.conv1d(x, k.view(1, 1, -1), dilation=2), [(2, 1, 15), (2, 3)]),
        (lambda x, k: F.conv_transpose1d(x, k.view(1, 1, -1), stride=2), [(2, 1, 4), (2, 3)]),
        (lambda x: torch.logit(x.sigmoid()) + torch.logit(x.sigmoid(), 0.3), [(3, 4)]),
        (lambda x: x.flip(-1).cumsum(-1).flip(-1), [(3, 4)]),
        (lambda x, s: x * F.interpolate(s, size=x.shape[2:]), [(2, 3, 4, 5)] * 2),
    ],
)
def test_what_is_made_of_numbers_alone_is_computed(function, examples):
    assert_read(function, examples)


def test_a_tensor_that_is_an_attribute_stays_what_it_is():
    module, x = Filter(), torch.randn(5, 3)
    torch.testing.assert_close(derive.load(derive.read_torch(module, x))(x), module(x))


def others_of_rows(z):
    s = z @ z.T
    off = ~torch.eye(len(z), dtype=torch.bool)
    return s[off].view(len(z), -1).logsumexp(1).mean() - s[~off].mean()


def of_two_views(z):
    """Labels and scores without the diagonal, as SimCLR has them."""
    n = z.shape[0] // 2
    z, labels = F.normalize(z, dim=1), torch.cat([torch.arange(n) for _ in range(2)])
    alike, s = (labels.unsqueeze(0) == labels.unsqueeze(1)).float(), z @ z.T
    mask = torch.eye(alike.shape[0]).bool()
    alike, s = (x[~mask].view(x.shape[0], -1) for x in (alike, s))
    return -(alike * s.log_softmax(1)).sum(1).mean()


def by_comparison(z):
    s = z @ z.T
    mask, own = torch.eye(len(s)) == 0, torch.eye(len(s)).bool()
    return s[mask].view(len(s), -1).logsumexp(1) - s.masked_select(own)


def by_difference(z):
    s = z @ z.T
    return s[(1 - torch.eye(len(s))).bool()].view(len(s), -1).logsumexp(1)


@pytest.mark.parametrize("function", [others_of_rows, of_two_views, by_comparison, by_difference])
def test_a_mask_of_a_diagonal_selects_as_many_of_each_row(function):
    op = assert_read(function, [(6, 3)], [(4, 5)])
    assert "[d >= n]" in str(op) or "[k >= n]" in str(op)


LEARNED = torch.randn(3, requires_grad=True)


@pytest.mark.parametrize("of", [lambda w: w[0], lambda w: w.sum(), lambda w: w.tolist()[0]])
def test_what_requires_a_gradient_is_no_number(of):
    with pytest.raises(derive.DeriveError, match="requires a gradient and is not an argument"):
        derive.read_torch(lambda x: x * of(LEARNED), torch.randn(4))


def test_a_mask_that_is_written_is_no_diagonal():
    def picked(s):
        mask = torch.eye(len(s), dtype=torch.bool)
        mask[0, 1] = True
        return s[mask].sum()

    assert "n == 0 and n2 == 1 or n == n2" in str(assert_read(picked, [(4, 4)]))


class Missing:
    """Stands for a package that is not installed."""

    def __getattr__(self, name):
        raise ImportError(name)


MISSING = Missing()


def test_a_name_that_cannot_be_looked_at_is_not_followed():
    assert_read(lambda x: MISSING.array(x) if isinstance(x, dict) else x.exp(), [(3, 4)])


def test_values_that_the_function_checks_stay_in_its_range():
    def overlap(p, t):
        if torch.max(t) > 1 or torch.min(p) < 0:
            raise ValueError("a share is from 0 to 1")
        d = (p * t).sum((1, 2)) / (p.sum((1, 2)) + t.sum((1, 2)))
        return ((1 - d) ** 0.5).mean()

    torch.manual_seed(0)
    op = derive.read_torch(overlap, torch.rand(2, 4, 5), torch.rand(2, 4, 5).round())
    assert "(1 - d[n])**0.5" in str(op)
