"""Numbers that are arguments stay parameters, several of them too."""

import math

import pytest
import torch

import derive
from derive.tracing.read import reading


def text(function, *example):
    return reading(function, *example, comments=False).text


def residual(u, dx=0.1, dt=0.01, alpha=0.5):
    u_t = (u[1:, 1:-1] - u[:-1, 1:-1]) / dt
    u_xx = (u[:-1, 2:] - 2 * u[:-1, 1:-1] + u[:-1, :-2]) / dx**2
    return ((u_t - alpha * u_xx) ** 2).mean()


def clipped(ratio, advantage, clip=0.2):
    return torch.min(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage)


def balanced(x, y, weight=0.5, smooth=1.0):
    return weight * x + (1 - weight) * (y + smooth)


def test_all_numbers_of_a_function_are_parameters():
    assert "; dx=0.1, dt=0.01, alpha=0.5)" in text(residual, torch.randn(5, 7))
    made = text(balanced, torch.randn(3), torch.randn(3))
    assert "; weight=0.5, smooth=1.0)" in made
    assert "x[c]*weight + (y[c] + smooth)*(1 - weight)" in made


def test_both_bounds_of_a_number():
    made = text(clipped, torch.rand(4), torch.randn(4))
    assert "clamp(ratio[c], 1 - clip, 1 + clip)" in made


def test_what_is_made_of_two_numbers_is_one_of_them():
    def f(x, a=0.5, b=0.25):
        return x * (a * b) + b

    assert "; b=0.25)" in text(f, torch.randn(3))


def test_a_number_under_a_name_of_the_notation_stays_a_number():
    def f(x, max=2.0, _eps=0.5):
        return x * max + _eps

    assert "y[c] = x[c]*2.0 + 0.5" in text(f, torch.randn(3))


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda x: x.sum(-1) / math.log(x.size(-1)), "/(log(size(c)))"),
        (lambda x: x * math.log(1 / x.size(0)), "-x[n,c]*log(size(n))"),
        (lambda x: x / math.log2(x.size(0)), "log(2)"),
    ],
)
def test_logarithms_of_a_size(function, said):
    op = derive.read_torch(function, torch.randn(4, 3), name="f")
    assert "log(size(" in str(op), (op, said)


def test_a_parameter_that_is_divided_by_a_size():
    def loss(x, t, smoothing=0.1):
        return torch.nn.functional.cross_entropy(x, t, label_smoothing=smoothing)

    x, t = torch.randn(6, 5), torch.tensor([0, 3, 1, 2, 4, 2])
    op = derive.read_torch(loss, x, t)
    assert "smoothing/size(c)" in str(op)
    torch.testing.assert_close(derive.load(op)(x, t, smoothing=0.3), loss(x, t, 0.3))
