"""A reading is held at integers that mark a place, and at values like those of the example."""

import pytest
import torch
import torch.nn.functional as F
from kit.reads import assert_read

import derive


def agrees(function, *args):
    """What is read has the value and the gradient of the function, or is refused."""
    try:
        read = derive.load(derive.read_torch(function, *args))
    except derive.DeriveError:
        return True
    x = args[0].double().requires_grad_()
    sides = [f(x, *args[1:]) for f in (read, function)]
    slopes = [torch.autograd.grad(y.sum(), x)[0] for y in sides]
    return torch.allclose(*sides) and torch.allclose(*slopes)


@pytest.mark.parametrize(
    "target",
    [
        torch.tensor([[2, 0, -1, 1], [1, -1, 0, 2], [-1, 3, 2, 0]]),
        torch.tensor([[2, 0, 1, 3], [1, 3, 0, 2], [3, 1, 2, 0]]),
    ],
)
def test_labels_that_end_with_a_mark(target):
    torch.manual_seed(0)
    assert agrees(F.multilabel_margin_loss, torch.randn(3, 4), target)


@pytest.mark.parametrize("mark", [-1, -100, 255])
def test_a_mark_that_no_example_has(mark):
    def picked(x, t):
        kept = t != mark
        chosen = x.gather(1, torch.where(kept, t, 0)[:, None])[:, 0]
        return torch.where(kept, chosen.exp(), 0.0).sum() / kept.sum()

    torch.manual_seed(0)
    x, t = torch.randn(4, 3), torch.tensor([0, 2, 1, 2])
    read = derive.load(derive.read_torch(picked, x, t))
    t[1] = mark
    assert torch.allclose(read(x, t), picked(x, t))


def test_the_integers_of_the_example_are_held():
    """They may have a pattern, here that of a permutation; drawn ones repeat."""
    from torch._subclasses.fake_tensor import FakeTensor

    met = []

    def gathered(x, order):
        if not isinstance(order, FakeTensor):
            met.append(order.tolist())
        return torch.zeros_like(x).index_add(0, order, x)[order]

    derive.read_torch(gathered, torch.randn(5), torch.tensor([3, 0, 4, 1, 2]))
    assert [3, 0, 4, 1, 2] in met
    assert any(len(set(order)) < len(order) for order in met)


def test_values_in_the_order_of_the_example_are_held():
    """A reading is held where the function is finite: lengths of intervals are positive."""
    from torch._subclasses.fake_tensor import FakeTensor

    met = []

    def density(x):
        if not isinstance(x, FakeTensor):
            met.append(x.detach())
        return 1 / (x[:, 1] - x[:, 0]).clamp(min=0)

    start = torch.arange(8.0)
    derive.read_torch(density, torch.stack([start, start + 1], 1))
    larger = [x for x in met if len(x) > 8]
    assert any(bool((x[:, 0] < x[:, 1]).all()) for x in larger)


def test_lengths_stay_above_0():
    """A mean over a length of 0 is nan, and its last position would be -1."""

    def mean_and_last(x, lengths):
        kept = torch.arange(x.shape[1]) < lengths[:, None]
        return (x * kept).sum(1) / lengths + x[torch.arange(x.shape[0]), lengths - 1]

    assert_read(mean_and_last, [(3, 5), torch.tensor([5, 2, 1])], [(2, 4), torch.tensor([1, 4])])


def test_the_last_position_of_a_length():
    """With a length of 0 it would be -1, which torch counts from the end."""

    def last(x, lengths):
        return x[torch.arange(x.shape[0]), lengths - 1].exp()

    op = assert_read(last, [(3, 5), torch.tensor([5, 2, 1])], [(2, 4), torch.tensor([1, 4])])
    with pytest.raises(RuntimeError, match="out of bounds"):
        derive.load(op)(torch.randn(2, 4), torch.tensor([0, 2]))
