"""Elementwise functions, softmaxes and norms of each other, weighted and reduced at random.

Fused kernels compute most of them, and one may stand in the cotangent of another.
"""

from __future__ import annotations

import random
import warnings

import pytest
import torch

from derive import load, parse
from derive.check import reference

FUNCTIONS = (
    "tanh({})",
    "sigmoid({})",
    "{0}*(1 + erf({0}/sqrt(2)))/2",
    "{0}*sigmoid({0})",
    "{0}*tanh(softplus({0}))",
    "softplus({})",
    "logsigmoid({})",
    "relu({})",
    "exp(-{0}**2)",
    "log(1 + {0}**2)",
    "sqrt(1 + {0}**2)",
    "clamp({}, -1, 1)",
    "sin({})",
    "{}**2",
    "softmax[c]({})",
    "log_softmax[c]({})",
)
NORMS = (
    (
        "m{k}[n] = mean[c]({h})\nu{k}[n] = mean[c](({h} - m{k}[n])**2)\n",
        "({h} - m{k}[n])*rsqrt(u{k}[n] + 0.1)",
    ),
    (
        "m{k}[c] = mean[n]({h})\nu{k}[c] = mean[n](({h} - m{k}[c])**2)\n",
        "({h} - m{k}[c])*rsqrt(u{k}[c] + 0.1)",
    ),
    ("u{k}[n] = mean[c]({h}**2)\n", "{h}*rsqrt(u{k}[n] + 0.1)"),
    ("u{k}[n] = sum[c]({h}**2)\n", "{h}/sqrt(u{k}[n] + 0.1)"),
    ("u{k}[n] = amax[c]({h})\n", "exp({h} - u{k}[n])"),
    ("u{k}[n] = sum[c](exp({h}))\n", "exp({h})/u{k}[n]"),
)
WEIGHTS = (
    "{}",
    "{}*v[n]",
    "{}*w[c]",
    "{}*s",
    "({} + w[c])",
    "({} - z[n,c])",
    "{}*z[n,c]",
    "{}*tanh(v[n])",
    "({}*v[n] + w[c])",
    "{}*(c + 1)",
    "where(z[n,c] > 0, {}, v[n])",
    "{}/(1 + v[n]**2)",
)
RESULTS = (
    "y = sum[n,c]({})",
    "y[n] = sum[c]({})",
    "y[c] = mean[n]({})",
    "y[n] = logsumexp[c]({})",
    "y[n] = max[c]({})",
    "y[n,c] = {}",
    "y = mean[n,c](({} - z[n,c])**2)",
    "y[n] = sum[c]({}*z[n,c])",
    "y[n] = amin[c]({0})*sum[c]({0}*w[c])",
    "y[n] = max[c]({0})*sum[c](tanh({0}))",
    "y[n] = -sum[c](z[n,c]*log_softmax[c]({}))",
    "y[c] = sum[n]({}*v[n])",
    "y = sqrt(sum[n,c](({})**2))",
)


def composed(seed: int) -> str:
    """One to three layers of a weighted function or norm, and what is made of the last."""
    chance, text, h = random.Random(seed), "op f(x[n,c], w[c], v[n], s, z[n,c]) -> y\n", "x[n,c]"
    for k in range(chance.randint(1, 3)):
        h = chance.choice(WEIGHTS).format(h)
        if chance.random() < 0.3:
            text += f"g{k}[n,c] = {h}\n"
            h = f"g{k}[n,c]"
            parts, body = (part.format(k=k, h=h) for part in chance.choice(NORMS))
            text += parts
        else:
            body = chance.choice(FUNCTIONS).format(f"({h})")
        text += f"h{k}[n,c] = {body}\n"
        h = f"h{k}[n,c]"
    h = chance.choice(WEIGHTS).format(h) if chance.random() < 0.4 else h
    return text + chance.choice(RESULTS).format(h)


SEEDS = [
    pytest.param(n, marks=[] if n < 2 else pytest.mark.slow, id=f"{25 * n} to {25 * n + 24}")
    for n in range(24)
]


@pytest.mark.parametrize("part", SEEDS)
def test_first_and_recorded_gradients_are_those_of_torch(part):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # not every input is used
        for seed in range(25 * part, 25 * part + 25):
            is_right(composed(seed), seed)


def is_right(text: str, seed: int) -> None:
    op = parse(text)
    f, generator = load(op), torch.Generator().manual_seed(seed)

    def drawn(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    sizes = {"n": 5, "c": 7}
    own = {t.name: drawn(*(sizes[i.name] for i in t.axes)).requires_grad_() for t in op.inputs}
    wanted = reference.values(op, own)["y"]
    G, inputs = drawn(*wanted.shape), list(own.values())
    options = {"allow_unused": True, "materialize_grads": True}
    slopes = torch.autograd.grad(wanted, inputs, G, **options)
    for graph in (False, True):
        found = f(*inputs)
        torch.testing.assert_close(found, wanted, msg=text)
        made = torch.autograd.grad(found, inputs, G, create_graph=graph, **options)
        torch.testing.assert_close(made, slopes, rtol=1e-6, atol=1e-8, msg=text)
