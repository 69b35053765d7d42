"""A graph leads through what the forward keeps: no input for it alone, nor a second text."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from kit.each import each_row

from derive import load, parse, source
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
    torch.testing.assert_close(*results)


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


OF_ONE_TEXT = {
    "a product": (
        "op f(x[n,k], w[m,k]) -> y\na[n,k] = x[n,k]/sqrt(sum[k](x[n,k]**2))\n"
        "b[m,k] = w[m,k]/sqrt(sum[k](w[m,k]**2))\nL[n,m] = 3*sum[k](a[n,k]*b[m,k]) + 1\n"
        "y = mean[n](sum[m](log(1 + exp((2*[n == m] - 1)*L[n,m]))))",
        lambda x, w: _sigmoid_loss(3 * F.normalize(x) @ F.normalize(w).T + 1),
    ),
    "means, of which maps are read": (
        "op f(x[n,k], w[m,k]) -> y\na[n] = mean[k](x[n,k])\nq[n] = mean[k](x[n,k]**2) - a[n]**2\n"
        "v[m] = mean[k](w[m,k])\n"
        "y = sum[n,m]((2*a[n]*v[m] + 1)/(a[n]**2 + v[m]**2 + 1)*(2*q[n] + 3)/(q[n]**2 + 5))",
        lambda x, w: _similarity(x.mean(1)[:, None], w.mean(1), x.var(1, correction=0)[:, None]),
    ),
    "means of some, one of none": (
        "op f(x[n,k], w[m,k]) -> y\ns[n] = mean[k | x[n,k] > 0](x[n,k])\n"
        "r[m] = mean[k | w[m,k] < 9](w[m,k])\ny = sum[n,m](log(1 + exp(r[m] - s[n])))",
        lambda x, w: F.softplus(w.mean(1) - _positive_mean(x)[:, None]).sum(),
    ),
    "squared distances from a centre": (
        "op f(x[n,k], w[m,k]) -> y\nD[n,m] = sum[k]((x[n,k] - w[m,k])**2)\n"
        "y = sum[n,m](exp(-D[n,m]))",
        lambda x, w: (-(x[:, None] - w).square().sum(2)).exp().sum(),
    ),
}


def _sigmoid_loss(L):
    return F.softplus((2 * torch.eye(*L.shape, dtype=L.dtype) - 1) * L).sum(1).mean()


def _similarity(a, v, q):
    return ((2 * a * v + 1) / (a**2 + v**2 + 1) * (2 * q + 3) / (q**2 + 5)).sum()


def _positive_mean(x):
    return torch.where(x > 0, x, 0).sum(1) / (x > 0).sum(1)


@pytest.mark.parametrize("name", OF_ONE_TEXT)
def test_orders_share_one_text_that_reads_what_is_kept(name):
    text, plain = OF_ONE_TEXT[name]
    backward = source(parse(text)).partition("def backward")[2].partition("\ndef ")[0]
    assert "first_order" not in backward and "detach" not in backward
    torch.manual_seed(0)
    x, w = (torch.randn(n, 4, dtype=torch.float64, requires_grad=True) for n in (3, 5))
    results = []
    for f in (load(parse(text)), plain):
        first = torch.autograd.grad(f(x, w).square(), (x, w), create_graph=True)
        second = torch.autograd.grad(sum(g.sin().sum() for g in first), (x, w), create_graph=True)
        third = torch.autograd.grad(sum(g.square().sum() for g in second), (x, w))
        results.append((*first, *second, *third))
    for found, wanted in zip(*results, strict=True):
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("name", OF_ONE_TEXT)
def test_every_check_of_one_text_passes(name):
    op = parse(OF_ONE_TEXT[name][0])
    assert not [c for c in checks_of(op, load(op)) if not c.ok]


def test_a_kernel_that_torch_differentiates_is_called_in_any_order():
    text = "op f(x[n,k], w[k]) -> y\ns[n,k] = sigmoid(x[n,k])\ny[n] = sum[k](tanh(s[n,k])*w[k])"
    backward = source(parse(text)).partition("def backward")[2].partition("\ndef ")[0]
    assert "sigmoid_backward(" in backward and "_unrecorded" not in backward
    x, w = torch.randn(3, 4, dtype=torch.float64), torch.randn(4, dtype=torch.float64)

    def along(f):
        gradient = torch.func.grad(lambda z: f(z, w).sin().sum())
        return torch.func.jvp(torch.func.vmap(gradient), (x[:, None],), (x[:, None],))

    ours, plain = load(parse(text)), lambda x, w: (x.sigmoid().tanh() * w).sum(1)
    torch.testing.assert_close(along(ours), along(plain))


@pytest.mark.parametrize("graph", [False, True])
def test_a_mask_of_an_adjoint_is_not_lost(graph):
    text = (
        "op f(x[n,k], w[m,k], t[n]: int) -> y\nL[n,m] = sum[k](x[n,k]*w[m,k])\n"
        "P[n,m] = log_softmax[m](L[n,m])\n"
        "l[n] = where(t[n] >= 0, -(1 - exp(P[n,t[n]]))**2*P[n,t[n]], 0)\ny = mean[n](l[n])"
    )
    x, w = torch.randn(3, 4), torch.randn(5, 4, requires_grad=True)
    x[1] = torch.nan
    y = load(parse(text))(x.requires_grad_(), w, torch.tensor([0, -1, 2]))
    (found,) = torch.autograd.grad(y, x, create_graph=graph)
    assert found[1].tolist() == [0, 0, 0, 0] and found[0].isfinite().all()


def test_no_gradient_has_a_copy_of_an_adjoint_without_its_cotangent():
    ours = load(
        parse(
            "op f(x[n,k], w[m,k], h[m]: bool) -> y\nD[n,m] = sum[k]((x[n,k] - w[m,k])**2)\n"
            "e[n] = sqrt(sum[k](x[n,k]**2) + 1)\n"
            "y = sum[n,m](where(h[m], sigmoid(D[n,m])*e[n], 0))"
        )
    )

    def plain(x, w, h):
        e = (x.square().sum(1) + 1).sqrt()
        return (h * (x[:, None] - w).square().sum(2).sigmoid() * e[:, None]).sum()

    torch.manual_seed(0)
    x, w, a = (torch.randn(n, 4, dtype=torch.float64, requires_grad=True) for n in (3, 5, 5))
    h = torch.tensor([True, False, True, True, False])
    results = []
    for f in (ours, plain):
        grad_x, grad_w = torch.autograd.grad(f(x, w, h), (x, w), create_graph=True)
        # One gradient at a time: D keeps its value where x and w move alike.
        second = [(grad_w * a).sum(), (grad_x * a[:3]).sum()]
        results.append([torch.autograd.grad(s, (x, w), retain_graph=True) for s in second])
    torch.testing.assert_close(*results)


def test_a_mask_that_first_order_has_in_a_gradient_is_not_left_to_its_adjoints():
    text = (
        "op f(x[n,k], w[m,k], t[n]: int) -> y\nL[n,m] = sum[k](x[n,k]*w[m,k])\n"
        "s[n] = mean[k](x[n,k]**2)\n"
        "y[n] = sum[m | t[n] >= 0](2*log(1 + s[n]**2)*log(1 + L[n,m]**2))"
    )
    x, w = torch.randn(3, 4), torch.randn(5, 4)
    x[1] = torch.nan
    load(parse(text))(x.requires_grad_(), w, torch.tensor([0, -1, 2])).sum().backward()
    assert x.grad[1].tolist() == [0, 0, 0, 0] and x.grad[0].isfinite().all()


@pytest.mark.parametrize("name", OF_ONE_TEXT)
def test_a_gradient_of_one_input_and_one_taken_twice_are_the_same(name):
    text, plain = OF_ONE_TEXT[name]
    torch.manual_seed(0)
    x, w = (torch.randn(n, 4, dtype=torch.float64) for n in (3, 5))
    results = []
    for f in (load(parse(text)), plain):
        found = []
        for of in ([x], [w], [x, w]):
            a, b = (t.clone().requires_grad_(any(t is o for o in of)) for t in (x, w))
            leaves = [t for t in (a, b) if t.requires_grad]
            first = torch.autograd.grad(f(a, b), leaves, create_graph=True)
            total = sum(g.sin().sum() for g in first)
            for keep in (True, False):
                found += torch.autograd.grad(total, leaves, retain_graph=keep)
        results.append(found)
    torch.testing.assert_close(*results)


def test_a_missing_cotangent_is_zero_with_the_shape_of_its_own_output():
    """Positions are the first output, and have none."""
    text = LOSSES["smoothed"][0].replace("-> y", "-> places, y").replace("y = -mean[n]", "y[n] = -")
    op = parse(f"{text}\nplaces[k] = 5 - k")
    assert "rt.filled(" in source(op, standalone=False)
    x, t = _given("smoothed")
    results = []
    for f in (
        lambda *given: load(op)(*given)[1],
        partial(F.cross_entropy, label_smoothing=0.1, reduction="none"),
    ):
        (first,) = torch.autograd.grad(f(x, t).sum(), x, create_graph=True)
        results.append((first, *torch.autograd.grad(first.sin().sum(), x)))
    torch.testing.assert_close(*results)


def test_what_no_gradient_reads_has_no_cotangent():
    text = (
        "op f(x[n,c,i], t[n,i]: int, v[n,c,i]) -> y\np[n,c,i] = softmax[c](x[n,c,i])\n"
        "a[n,c,i] = v[n,c,i]*p[n,c,i]\nw[n,i] = sum[c](a[n,c,i])\n"
        "s[n] = sum[i](where(t[n,i] == 0, 0, 1)*w[n,i])\ne[n] = sum[i](w[n,i])\n"
        "y[n] = s[n]/(s[n] + e[n])"
    )

    def plain(x, t, v):
        w = (v * x.softmax(1)).sum(1)
        s = (w * (t != 0)).sum(1)
        return s / (s + w.sum(1))

    torch.manual_seed(0)
    x, v = (torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True) for _ in range(2))
    t = torch.tensor([[0, 1, 2, 0], [1, 0, 0, 0]])
    results = []
    for f in (load(parse(text)), plain):
        first = torch.autograd.grad(f(x, t, v).sum(), (x, v), create_graph=True)
        total = sum(g.sin().sum() for g in first)
        results.append((*first, *torch.autograd.grad(total, (x, v))))
    torch.testing.assert_close(*results)
