"""Tensors of numbers that a function writes down."""

from __future__ import annotations

import pytest

import derive

torch = pytest.importorskip("torch")


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
