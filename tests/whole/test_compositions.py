"""Functions, softmaxes, norms and attentions of each other, weighted and reduced at random.

Fused kernels compute most of them, and one may stand in the cotangent of another.
"""

import random
import warnings
from functools import partial

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
MIXED = (
    "m{k}[b,n] = mean[c]({h})\nu{k}[b,n] = mean[c](({h} - m{k}[b,n])**2)\n"
    "({h} - m{k}[b,n])*rsqrt(u{k}[b,n] + 0.1)",
    "m{k}[c] = mean[b,n]({h})\nu{k}[c] = mean[b,n](({h} - m{k}[c])**2)\n"
    "({h} - m{k}[c])*rsqrt(u{k}[c] + 0.1)",
    "m{k}[b] = mean[n,c]({h})\nu{k}[b] = mean[n,c](({h} - m{k}[b])**2)\n"
    "({h} - m{k}[b])*rsqrt(u{k}[b] + 0.1)*w[c]",
    "u{k}[b,n] = mean[c]({h}**2)\n{h}*rsqrt(u{k}[b,n] + 0.1)*w[c]",
    "u{k}[b,n] = sum[c]({h}**2)\n{h}/sqrt(u{k}[b,n] + 0.1)",
    "u{k}[b,n] = amax[c]({h})\nexp({h} - u{k}[b,n])",
    "u{k}[b,n] = logsumexp[c]({h})\nexp({h} - u{k}[b,n])*z[b,n,c]",
    "q{k}[b,n,k] = sum[c]({h}*M[c,k])\nsum[k](tanh(q{k}[b,n,k])*A[k,c])",
    "a{k}[b,n,t] = softmax[t](sum[c](g{k}[b,n,c]*g{k}[b,t,c]))\nsum[t](a{k}[b,n,t]*g{k}[b,t,c])",
    "a{k}[b,n,t] = softmax[t | t <= n](sum[c](g{k}[b,n,c]*z[b,t,c])/3)\n"
    "sum[t](a{k}[b,n,t]*g{k}[b,t,c])",
    "softmax[n]({h})*z[b,n,c]",
    "tanh(sum[t | t <= n](g{k}[b,t,c]))",
    "sum[t | t <= n](g{k}[b,t,c]*prod[i | t < i and i <= n](sigmoid(z[b,i,c])))",
    "sum[t | n <= t](z[b,t,c]*v[t]*prod[i | n <= i and i < t](tanh(g{k}[b,i,c])))",
    "{h}*g{k}[b,(n + 1) % size(n),c] - sin(g{k}[b,(n - 2) % size(n),c])",
    "u{k}[b,n] = sum[c]({h}*w[c])\nsum[t](sin(u{k}[b,n] - u{k}[b,t])*g{k}[b,t,c])",
)
"""Norms, attentions, layers, running sums, recurrences, stencils and pairs of g{k}.

The last line is the result.
"""
WEIGHTS = (
    "{}",
    "{}*v[n]",
    "{}*w[c]",
    "{}*s",
    "({} + w[c])",
    "({} - z[b,n,c])",
    "{}*z[b,n,c]",
    "{}*tanh(v[n])",
    "{}*(n + 1)/3",
    "{}/(1 + v[n]**2)",
    "where(m[b,n], {}, 0)",
    "where(c <= n, {}, v[n])",
)
RESULTS = (
    "y = sum[b,n,c]({})",
    "y[b,n] = sum[c]({})",
    "y[c] = mean[b,n]({})",
    "y[b,n] = logsumexp[c]({})",
    "y[b,c] = max[n]({})",
    "y[b,n,c] = {}",
    "y = mean[b,n,c](({} - z[b,n,c])**2)",
    "y[b,n] = amin[c]({0})*sum[c]({0}*w[c])",
    "y[b,n] = max[c]({0})*sum[c](tanh({0}))",
    "y[b,n] = -sum[c](z[b,n,c]*log_softmax[c]({}))",
    "l[b,n,c] = log_softmax[c]({})\ny = -mean[b,n](where(m[b,n], l[b,n,T[b,n]], 0))",
    "y[b] = sum[n,c | m[b,n]]({})",
    "y[n,k] = sum[b,c]({}*M[c,k])",
)
SIZES = {"b": 2, "n": 5, "c": 4, "k": 3}
INPUTS = "x[b,n,c], w[c], v[n], s, z[b,n,c], M[c,k], A[k,c], T[b,n]: int, m[b,n]: bool"


def composed(seed: int) -> str:
    """One to three layers, each of a weighted one before, and what is made of the last."""
    chance, text, h = random.Random(seed), f"op f({INPUTS}) -> y\n", "x[b,n,c]"
    for k in range(chance.randint(1, 3)):
        text += f"g{k}[b,n,c] = {chance.choice(WEIGHTS).format(h)}\n"
        made = chance.choice(chance.choice((MIXED, FUNCTIONS)))
        *parts, body = made.format(f"g{k}[b,n,c]", k=k, h=f"g{k}[b,n,c]").splitlines()
        text += "".join(f"{line}\n" for line in (*parts, f"h{k}[b,n,c] = {body}"))
        h = f"h{k}[b,n,c]"
    return text + chance.choice(RESULTS).format(h)


SEEDS = [
    pytest.param(n, marks=[] if n < 1 else pytest.mark.slow, id=f"{25 * n} to {25 * n + 24}")
    for n in range(24)
]


@pytest.mark.parametrize("part", SEEDS)
def test_first_and_second_derivatives_are_those_of_torch(part):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # not every input is used
        for seed in range(25 * part, 25 * part + 25):
            is_right(composed(seed), seed)


def is_right(text: str, seed: int) -> None:
    op = parse(text)
    f, generator = load(op), torch.Generator().manual_seed(seed)

    def drawn(shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    def of_kind(kind, shape):
        if kind == "float":
            return drawn(shape).requires_grad_()
        made = torch.randint(0, 4, shape, generator=generator)
        return made > 0 if kind == "bool" else made

    own = {t.name: of_kind(t.kind, [SIZES[i.name] for i in t.axes]) for t in op.inputs}
    smooth = [t for t in own.values() if t.requires_grad]
    wanted = reference.values(op, own)["y"]
    G = drawn(wanted.shape).requires_grad_()
    options = {"allow_unused": True, "materialize_grads": True}

    def slopes(y, of, along=None, graph=True):
        if not y.requires_grad:  # simplified to a constant
            return tuple(torch.zeros_like(t) for t in of)
        return torch.autograd.grad(y, of, along, create_graph=graph, **options)

    def second(first):
        along = sum((g * way).sum() for g, way in zip(first, ways, strict=True))
        return slopes(along, [*smooth, G])

    ways, first = [drawn(t.shape) for t in smooth], slopes(wanted, smooth, G)
    found = f(*own.values())
    near = partial(torch.testing.assert_close, rtol=1e-6, atol=1e-8, msg=text)
    near(found, wanted)
    near(slopes(found, smooth, G, graph=False), first)
    recorded = slopes(f(*own.values()), smooth, G)
    near(recorded, first)
    near(second(recorded), second(first))
