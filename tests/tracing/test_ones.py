"""Axes of size 1, and outputs of which nothing is left but integers."""

import pytest
import torch
import torch.nn.functional as F
from kit.reads import assert_read

from derive import read_torch

ALONG = {
    "softmax": lambda x: x.softmax(-1),
    "log_softmax": lambda x: x.log_softmax(1) * 2,
    "norm": lambda x: x.norm(dim=-1),
    "unit rows": lambda x: F.normalize(x, dim=-1),
    "pairs": lambda x: F.pairwise_distance(x, x.tanh()),
    "cdist": lambda x: torch.cdist(x, x[1:] * 2),
    "largest norm": lambda x: torch.linalg.vector_norm(x, float("inf"), 1),
    "max": lambda x: x.max(-1),
    "argmin": lambda x: x * x.argmin(1, keepdim=True) + x,
    "cumsum": lambda x: x.cumsum(-1),
    "cumprod": lambda x: x.cumprod(-1),
    "logcumsumexp": lambda x: x.logcumsumexp(-1),
    "triangle": lambda x: torch.tril(x @ x[:1].T, -1),
    "what follows": lambda x: torch.cat([x[:, :1], (x[:, 1:] - x[:, :-1]).tanh()], 1).cumprod(1),
    "nothing": lambda x: (x[:, 1:], x[:, :-1].sum(1) + x[:, 0]),
    "first row": lambda x: x[:1] @ torch.eye(1) + torch.arange(1),
}


@pytest.mark.parametrize("f", ALONG.values(), ids=ALONG)
def test_what_is_done_along_an_axis_of_size_1(f):
    dtype = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        assert_read(f, [(4, 1)], [(3, 1)])
    finally:
        torch.set_default_dtype(dtype)


def attention(q, k, v):
    p = (q @ k.mT).softmax(-1)
    return p @ v, p


def causal(x):
    t = x.shape[1]
    return (x @ x.mT).masked_fill(torch.ones(t, t).tril() <= 0, -1e9).softmax(-1) @ x


ONE_KEY = {
    "attention": (attention, [(2, 3, 4), (2, 1, 4), (2, 1, 5)]),
    "torch's own": (F.scaled_dot_product_attention, [(2, 3, 4), (2, 1, 4), (2, 1, 5)]),
    "a causal step": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        [(2, 1, 4), (2, 3, 4), (2, 3, 5)],
    ),
    "a token": (causal, [(2, 1, 4)]),
}


@pytest.mark.parametrize("name", ONE_KEY)
def test_attention_to_one_key_or_of_one_query(name):
    assert_read(*ONE_KEY[name])


WHOLE = {
    "sign": lambda x: ((x > 0).to(x.dtype), x * 2),
    "count": lambda x: ((x > 0).to(x.dtype).sum(-1), x * 2),
    "zeros": lambda x: (torch.zeros_like(x), x * 2),
    "positions": lambda x: torch.arange(x.shape[1], dtype=x.dtype),
}


@pytest.mark.parametrize("f", WHOLE.values(), ids=WHOLE)
def test_a_floating_point_output_of_whole_numbers_has_its_dtype(f):
    assert_read(f, [(3, 4)], [(2, 5)])


def test_no_gradient_is_asked_for_at_a_size_of_one():
    """torch's own may crash there, as that of grid_sample at nan."""
    rows = set()

    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            rows.add(g.shape[0])
            return g * 2

    read_torch(lambda x: Twice.apply(x) / (x.shape[0] - 1), torch.randn(3, 4))
    assert rows and 1 not in rows
