"""Floats as what they are the nearest to, and tensors of numbers that a function writes down."""

from __future__ import annotations

import math

import pytest
import torch

import derive
from derive.tracing.names import spelled


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (math.sqrt(2), "sqrt(2)"),
        (1 / math.sqrt(math.pi), "1/sqrt(pi)"),
        (math.sqrt(2 / math.pi), "sqrt(2/pi)"),
        (math.log(2), "log(2)"),
        (math.log(2 * math.pi) / 2, "log(2*pi)/2"),
        (math.pi**2, "pi**2"),
        (2 / 3, "2/3"),
        (float(torch.tensor(math.pi)), "pi"),
        (float(torch.tensor(1e-6)), "1e-06"),
        (float(torch.tensor(0.044715)), "0.044715"),
    ],
)
def test_what_a_float_is(value, text):
    assert spelled(value)[0] == text


@pytest.mark.parametrize("value", [0.5, 1e-12, 2.0315, 1.7015043497085573, 1e300, math.inf])
def test_what_stays_as_it_is(value):
    assert spelled(value) is None


def test_numbers_of_a_function_that_is_read():
    def density(x, width):
        z = x / (width * math.sqrt(2))
        return torch.erf(-z) / 3 - z * math.pi / 2 + 0.1 * math.log(10) ** 2

    text = str(derive.read_torch(density, torch.randn(5), torch.rand(5) + 0.5))
    assert "sqrt(2)" in text and "pi" in text
    rms = derive.read_torch(torch.nn.RMSNorm(5, eps=1e-6), torch.randn(3, 5))
    assert "+ 0.000001" in str(rms) or "+ 1e-6" in str(rms)


def grey(image):
    weights = torch.tensor([0.299, 0.587, 0.114], dtype=image.dtype)
    return (image * weights[:, None, None]).sum(-3)


def laplace(x):
    kernel = torch.tensor([[0, 1, 0], [1, -4, 1], [0, 1, 0]], dtype=x.dtype)
    return torch.nn.functional.conv2d(x, kernel[None, None])


def bent(x):
    return x.where(x > 0, torch.as_tensor(0.7) * x) * torch.tensor([1.0, 2, 3, 4])


def wrapped(x):
    return x % 1.0 + torch.fmod(x, 2.5) - torch.remainder(x, x.abs() + 1)


def line(function, *shape):
    return str(derive.read_torch(function, torch.randn(shape)))


def test_a_few_numbers_are_chosen_by_position():
    made = line(grey, 2, 3, 4, 5)
    assert "where(c == 0, 0.299, where(c == 1, 0.587, 0.114))" in made
    assert "-4" in line(laplace, 2, 1, 6, 5)


def test_numbers_that_grow_evenly_are_a_position_and_those_of_no_axes_are_numbers():
    made = line(bent, 3, 4)
    assert "(c + 1)" in made
    assert "0.7*x" in made


def test_remainders():
    made = line(wrapped, 3, 4)
    assert "remainder(x[n, c], 1)" in made and "fmod(x[n, c], 2.5)" in made


def test_many_numbers_are_refused():
    table = list(range(70))
    with pytest.raises(derive.DeriveError, match="70 numbers that is not an argument"):
        derive.read_torch(lambda x: x * torch.tensor(table), torch.randn(3, 70))
