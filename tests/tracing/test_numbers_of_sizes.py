"""Numbers that are made of sizes, and of sizes and an argument together."""

import math
from types import FunctionType

import pytest
import torch
import torch.nn.functional as F
from kit.reads import assert_read

import derive
from derive.tracing.read import reading

WITH_A_NUMBER = {
    "*s/size(c)": lambda x, s=0.25: x * (s / x.shape[-1]),
    "*s/sqrt(size(c))": lambda x, s=0.25: x * (1 / x.shape[-1] ** 0.5 * s),
    "*(1 - s) + s/size(c)": lambda x, s=0.25: x * (1 - s) + s / x.shape[-1],
    "*(1 - s/size(c))": lambda x, s=0.25: x * (1 - s / x.shape[-1]),
    "*(s*size(c) - s)": lambda x, s=0.25: x * ((x.shape[-1] - 1) * s),
    "(s/size(c))**(c/size(c))": lambda x, s=0.25: (
        x * (s / x.shape[-1]) ** (torch.arange(x.shape[-1]) / x.shape[-1])
    ),
    "q[n,c]*s/size(c)": lambda q, s=0.25: F.scaled_dot_product_attention(
        q[None], q[None], q[None], scale=s / q.shape[-1]
    ),
}


@pytest.mark.parametrize("said", WITH_A_NUMBER)
def test_an_argument_beside_sizes_is_a_parameter(said):
    function = WITH_A_NUMBER[said]
    made = reading(function, torch.randn(3, 4), name="f", comments=False)
    assert said in made.text and made.numbers == ("s",)
    read = derive.load(made.operation)
    x = torch.rand(2, 5, dtype=torch.float64, requires_grad=True)
    for s in (0.25, 0.7):
        ours, theirs = read(x, s=s), function(x, s=s)
        torch.testing.assert_close(ours, theirs)
        G = torch.randn_like(ours)
        torch.testing.assert_close(*(torch.autograd.grad(y, x, G) for y in (ours, theirs)))


def test_what_is_asked_of_an_argument_and_sizes_leaves_it_a_number():
    def scaled(x, s=0.25):
        return x * s if s / x.shape[-1] < 0.2 else x - s

    made = reading(scaled, torch.randn(3, 4), comments=False)
    assert made.numbers == ()
    x = torch.randn(2, 4)
    torch.testing.assert_close(derive.load(made.operation)(x), scaled(x))


def scaled_attention(q):
    return F.scaled_dot_product_attention(q, q, q, scale=q.size(-1) ** -0.5)


OF_SIZES = {
    "attention": (scaled_attention, [(2, 3, 4)], [(1, 5, 6)]),
    "another scale": (
        lambda q: F.scaled_dot_product_attention(q, q, q.tanh(), scale=1 / q.shape[-1]),
        [(2, 3, 4)],
        [(1, 5, 6)],
    ),
    "a tensor of a size": (
        lambda x: x * torch.tensor(x.shape[-1], dtype=x.dtype).sqrt(),
        [(3, 4)],
        [(2, 5)],
    ),
    "a rest in sight": (lambda x: x * (x.shape[-1] // 2) + x.shape[0] % 2, [(3, 4)], [(2, 5)]),
    "a length": (lambda x: x / len(x) + torch.arange(len(x))[:, None], [(3, 4)], [(5, 2)]),
    "a float of a size": (
        lambda x: x.sum(0) / float(len(x)) + x.mean() * float(x.numel()) * int(x.shape[1]),
        [(3, 4)],
        [(5, 2)],
    ),
    "a number or several": (
        lambda x: x * sum([n] * 2 if isinstance(n := x.shape[1], int | float) else n),
        [(3, 4)],
        [(5, 2)],
    ),
    "a whole part": (
        lambda x: x[:, : int(x.shape[1] * 0.75)] / int(math.sqrt(len(x))),
        [(3, 8)],
        [(10, 12)],
    ),
    "positions between numbers": (
        lambda x: (
            x * torch.linspace(-1, 2, x.shape[1])
            + torch.linspace(0, 1, len(x), dtype=x.dtype)[:, None]
        ),
        [(3, 4)],
        [(5, 1)],
    ),
    "positions of floats": (
        lambda x: x * torch.arange(1.0, x.shape[1] + 1) + torch.arange(len(x), 0, -1.0)[:, None],
        [(3, 4)],
        [(5, 2)],
    ),
    "windows": (
        lambda x: (
            x * torch.hann_window(x.shape[1])
            + torch.hamming_window(4) * x[:, :4]
            + torch.blackman_window(len(x), periodic=False)[:, None]
        ),
        [(3, 4)],
        [(5, 4)],
    ),
    "alpha": (lambda x: torch.add(x, x.tanh(), alpha=x.shape[-1] // 2), [(3, 4)], [(2, 5)]),
    "steps": (
        lambda x: x * abs(x.shape[-1] - x.shape[0]) + math.ceil(x.shape[0] / 2),
        [(3, 4)],
        [(2, 5)],
    ),
}


# A window of length 1 is 1 in torch.
@pytest.mark.filterwarnings("ignore:the spec differs from the function at an axis of size 1")
@pytest.mark.parametrize("name", OF_SIZES)
def test_numbers_of_sizes_are_those_of_all_sizes(name):
    assert_read(*OF_SIZES[name])


def test_a_scale_that_is_usual_is_not_said():
    text = reading(scaled_attention, torch.randn(2, 3, 4), comments=False).text
    assert "/sqrt(size(c))" in text and text.count("\n") == 4


def test_a_float_that_is_a_dtype():
    """The size is a plain number where the name is no call."""
    assert_read(lambda x: x.to(float) * float(x.shape[0]), [(3, 4)], [(3, 2)])


def _sums(x):
    return x.sum(0) / float(len(x)) + math.sqrt(x.shape[1])


ELSEWHERE = FunctionType(_sums.__code__, {"math": math, "__name__": "elsewhere"})
"""A function with globals of its own, as one that is imported."""


class Elsewhere(torch.nn.Module):
    def forward(self, x):
        return self.sums(x)

    @staticmethod
    def sums(x):
        return ELSEWHERE(x)


@pytest.mark.parametrize("function", [lambda x: ELSEWHERE(x), Elsewhere()], ids=["one", "module"])
def test_numbers_of_sizes_in_a_function_of_another_file_are_those_of_all_sizes(function):
    assert_read(function, [(3, 4)], [(5, 2)])


def test_a_number_that_torch_takes_of_a_size_fixes_the_size():
    def loss(x, y):
        return F.smooth_l1_loss(x, y, beta=1 / x.shape[-1])

    op = assert_read(loss, [(3, 4), (3, 4)], [(2, 4), (2, 4)])
    with pytest.raises(ValueError, match="must have size 4"):
        derive.load(op)(torch.ones(2, 5), torch.zeros(2, 5))
