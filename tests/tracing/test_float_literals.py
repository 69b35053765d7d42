"""Floats are written as what they are the nearest to."""

import math

import pytest
import torch

import derive
from derive.tracing.literals import spelled


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
