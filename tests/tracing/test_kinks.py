"""What is read has the values and slopes of torch where a function has a kink or is undefined."""

import pytest
import torch
import torch.nn.functional as F

from derive import DeriveError, load
from derive.tracing.read import reading

POINTS = torch.tensor([-3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0, 6.0, 7.0], dtype=torch.float64)
KINKED = {
    "relu6": F.relu6,
    "hardtanh": F.hardtanh,
    "hardtanh with bounds": lambda x: F.hardtanh(x, -0.5, 3.0),
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
    "a straight softplus": lambda x: F.softplus(x, 2.0, 5.0),
    "softplus that bends": lambda x: F.softplus(x, 3.0),
    "xlogy": lambda x: torch.xlogy(x, x.abs() + 2),
    "xlogy of itself": lambda x: torch.xlogy(x.relu(), x.relu()),
    "xlog1py": lambda x: torch.special.xlog1py(x, x.abs() + 2),
    "clamp": lambda x: x.clamp(-1, 3),
}


def held_at(f, *given):
    """What f is read as has its values and gradients at these tensors."""
    made = load(reading(f, *given).operation)
    given = [t.detach().clone() for t in given]
    leaves = [t.requires_grad_() for t in given if t.is_floating_point()]
    for have, want in zip(*((y, *torch.autograd.grad(y.sum(), leaves))
                            for y in (made(*given), f(*given))), strict=True):  # fmt: skip
        torch.testing.assert_close(have, want)


@pytest.mark.parametrize("f", KINKED.values(), ids=KINKED)
def test_the_slope_at_a_kink_is_that_of_torch(f):
    held_at(f, POINTS)


@pytest.mark.parametrize("order", [-2.5, -1, 0.5, 3])
def test_a_norm_of_any_order_is_that_of_torch_at_zeros(order):
    x = torch.tensor([[1.0, 0.0, 2.0], [1.0, 2.0, 3.0]], dtype=torch.float64)
    held_at(lambda x: torch.linalg.vector_norm(x, order, dim=1), x)


SPREAD = {
    "std": lambda x: x.std(1),
    "z scores": lambda x: (x - x.mean(1, keepdim=True)) / (x.std(1, keepdim=True) + 1e-5),
    "std_mean": lambda x: torch.std_mean(x, 1, correction=0)[0],
}


@pytest.mark.parametrize("f", SPREAD.values(), ids=SPREAD)
def test_the_deviation_of_equal_values_has_no_gradient(f):
    x = torch.randn(3, 4, dtype=torch.float64)
    x[1] = 0.3
    held_at(f, x)


def test_what_is_written_without_a_graph_has_the_gradient_of_what_was_there():
    def clamped(v, x):
        v = v.clone()
        with torch.no_grad():
            v.clamp_(min=0.3)
        return v * x

    v = torch.tensor([0.1, 0.2, 0.7, 0.9], dtype=torch.float64)
    held_at(clamped, v, torch.randn(4, dtype=torch.float64))
    small = torch.tensor([1e-9, 0.1, 0.0, 2.0], dtype=torch.float64)
    x, y = torch.randn(2, 4, dtype=torch.float64)
    held_at(lambda x, y, v: F.gaussian_nll_loss(x, y, v, reduction="none"), x, y, small)


def test_a_bound_of_an_integer_is_no_infinite_one():
    rows = torch.randn(3, 4, dtype=torch.float64)
    held_at(lambda x, t: x.gather(1, t.clamp(min=0)[:, None]), rows, torch.tensor([-1, 0, 2]))
    held_at(lambda w, t: F.embedding(t.clamp(max=2), w), rows, torch.tensor([5, 0, 2, 1]))


def test_means_by_lengths_are_read_though_one_of_them_may_be_empty():
    def mean(x, lengths):
        kept = torch.arange(x.shape[1])[None] < lengths[:, None]
        return (x * kept).sum(1) / lengths

    held_at(mean, torch.randn(3, 5, dtype=torch.float64), torch.tensor([2, 4, 1]))


def test_an_output_that_is_infinite_somewhere_is_refused():
    with pytest.raises(DeriveError, match="an output is infinite where a condition holds"):
        reading(lambda x: x.masked_fill(x < 0, float("-inf")), torch.randn(3, 4))


EXTREMA = {
    "a number last": lambda x: x / max(x.sum(), 1.5),
    "a number first": lambda x: x * max(1.5, x.sum()),
    "the least": lambda x: x * min(x.mean(), x.sum(), 0.5),
    "of numbers": lambda x: x * max(2, 3) * max([1, 4]) * min((), default=5),
    "of a count": lambda x: x.sum() / max((x > 0.5).sum(), 1),
}


@pytest.mark.parametrize("f", EXTREMA.values(), ids=EXTREMA)
@pytest.mark.parametrize("at", [[0.25, 0.25, 0.75], [0.5, 0.5, 0.5], [1.5, 0.0, 0.0], [0.125] * 3])
def test_of_a_tie_python_takes_the_first(f, at):
    held_at(f, torch.tensor(at, dtype=torch.float64))


def test_the_extremum_of_tensors_of_many_elements_is_an_error():
    with pytest.raises(DeriveError, match="ambiguous"):
        reading(lambda x: max(x[0], x[1]).sum(), POINTS.reshape(3, 3))
