"""A graph leads through what the forward keeps where an input would be saved for it alone."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from kit.each import each_row

from derive import load, parse
from derive.check.checks import checks_of

LOSSES = {
    "nll": (
        "op f(x[n,k], t[n]: int) -> y\nF[n,k] = x[n,k] - logsumexp[k](x[n,k])\n"
        "y = -mean[n](F[n,t[n]])",
        lambda x, t: F.cross_entropy(x, t),
    ),
    "smoothed": (
        "op f(x[n,k], t[n]: int; e=0.1) -> y\nF[n,k] = x[n,k] - logsumexp[k](x[n,k])\n"
        "y = -mean[n]((1 - e)*F[n,t[n]] + e*mean[k](F[n,k]))",
        lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1),
    ),
    "each": (
        "op f(x[n,k], t[n]: int) -> y\nF[n,k] = x[n,k] - logsumexp[k](x[n,k])\ny[n] = -F[n,t[n]]",
        lambda x, t: F.cross_entropy(x, t, reduction="none"),
    ),
    "focal": (
        "op f(x[n,k], t[n]: int) -> y\nF[n,k] = x[n,k] - logsumexp[k](x[n,k])\n"
        "y = -mean[n]((1 - exp(F[n,t[n]]))**2*F[n,t[n]])",
        lambda x, t: _focal(F.log_softmax(x, 1).gather(1, t[:, None])).mean(),
    ),
    "along the first axis": (
        "op f(x[k,n], t[n]: int) -> y\nF[k,n] = x[k,n] - logsumexp[k](x[k,n])\n"
        "y = -mean[n](F[t[n],n])",
        lambda x, t: F.cross_entropy(x.T, t),
    ),
    "of all classes": (
        "op f(x[n,k], t[n]: int) -> y\nF[n,k] = x[n,k] - logsumexp[k](x[n,k])\n"
        "y = -sum[n,k](F[n,k]*exp(F[n,k])) - sum[n](F[n,t[n]])",
        lambda x, t: _entropy(F.log_softmax(x, 1)) + F.cross_entropy(x, t, reduction="sum"),
    ),
}


def _focal(p):
    return -((1 - p.exp()) ** 2) * p


def _entropy(p):
    return -(p * p.exp()).sum()


def _given(name, double=True):
    torch.manual_seed(0)
    dtype = torch.float64 if double else torch.float32
    x = torch.randn(*((7, 5) if "first" in name else (5, 7)), dtype=dtype, requires_grad=True)
    return x, torch.tensor([0, 6, 3, 3, 1])


@pytest.mark.parametrize("name", LOSSES)
def test_derivatives_of_all_orders_are_those_of_autograd(name):
    text, plain = LOSSES[name]
    ours = load(parse(text))
    x, t = _given(name)
    shift = torch.randn_like(x)
    results = []
    for f in (ours, plain):
        (first,) = torch.autograd.grad(f(x, t).square().sum(), x, create_graph=True)
        (second,) = torch.autograd.grad((first * shift).sum(), x, create_graph=True)
        (third,) = torch.autograd.grad(second.sin().sum(), x)
        results.append((first, second, third))
    for found, wanted in zip(*results, strict=True):
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("name", LOSSES)
def test_forward_mode_over_the_gradient_is_right(name):
    text, plain = LOSSES[name]
    x, t = _given(name)
    shift = torch.randn_like(x)

    def along(f):
        gradient = torch.func.grad(lambda z: f(z, t).sin().sum())
        return torch.func.jvp(gradient, (x.detach(),), (shift,))[1]

    torch.testing.assert_close(along(load(parse(text))), along(plain))


@pytest.mark.parametrize("name", LOSSES)
def test_every_check_passes(name):
    op = parse(LOSSES[name][0])
    assert not [c for c in checks_of(op, load(op)) if not c.ok]


@each_row("name", LOSSES)
def test_no_more_is_kept_than_by_torch(name):
    text, plain = LOSSES[name]
    x, t = _given(name, double=False)
    assert _kept(load(parse(text)), x, t) <= _kept(plain, x, t) + 200


def _kept(f, x, t):
    """The bytes that are saved of what is made of x."""
    seen = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        seen[storage.data_ptr()] = storage.nbytes(), storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        held = f(x * 1, t)
    assert held.requires_grad
    return sum(size for size, _ in seen.values())


def test_what_is_read_in_other_places_is_kept():
    text = LOSSES["nll"][0] + " + sum[n,k](x[n,k]**2)"
    ours = load(parse(text))
    x, t = _given("nll")
    (found,) = torch.autograd.grad(ours(x, t), x, create_graph=True)
    (wanted,) = torch.autograd.grad(F.cross_entropy(x, t) + x.square().sum(), x)
    torch.testing.assert_close(found, wanted)
