"""Powers by the name of an equation have the value of the gradient, and others no name."""

from itertools import product

import numpy as np
import pytest
import torch
from kit.each import each_row
from torch.nn import functional

import derive
from derive import catalog
from derive.algebra.expr import Param, accesses, walk
from derive.algebra.interpret import evaluate

ZERO = "op f(x[n,k]; p=3) -> y\nt[n] = sum[k](abs(x[n,k])**p)\n"
NORM = ZERO + "y[n] = where(t[n] == 0, 0, t[n]**(1/p))"
WINDOW = (
    "op f(x[n,t]; p=3, size(k)=2, size(u)=size(t)-1) -> y\ny[n,u] = sum[k](x[n,u + k]**p)**(1/p)"
)
DIVIDED = "op f(x[n,k]; p=3) -> y\nd[n] = sum[k](x[n,k]**2)\ny[n] = 5*(1 + d[n])**(-p)"
SHOWN = {
    NORM: {"x": "[t[n] ≠ 0]·G[n]·(|x[n,k]|/y[n])^(p − 1)·sign(x[n,k])"},
    WINDOW: {"x": "Σₖᵤ δ[t,k + u]·G[n,u]·(x[n,t]/y[n,u])^(p − 1)"},
    DIVIDED: {"x": "−2·p·G[n]·x[n,k]·y[n]/(1 + d[n])"},
}


def values_of(text):
    """The inputs, a row of zeros among them, and what the equations make of them."""
    torch.manual_seed(3)
    x = torch.rand(3, 4, dtype=torch.float64)
    values = {"x": x.requires_grad_()}
    if text is NORM:
        with torch.no_grad():
            x[1] = 0
            x[2] = -x[2]
        values["t"] = x.abs().pow(3).sum(1)
        rest = values["t"][[0, 2]].pow(1 / 3)
        values["y"] = torch.stack([rest[0], 0 * x[1, 0], rest[1]])
    elif text is WINDOW:
        values["y"] = (x[:, :-1] ** 3 + x[:, 1:] ** 3).pow(1 / 3)
    else:
        values["d"] = (x**2).sum(1)
        values["y"] = 5 * (1 + values["d"]) ** -3
    values["G"] = torch.rand_like(values["y"])
    return values


@pytest.mark.parametrize("text", SHOWN, ids=["norm", "window", "divided"])
def test_a_power_has_the_name_of_the_equation(text):
    d = derive.derivation(derive.parse(text))
    told = {f.name.removeprefix("grad_"): str(f).partition(" = ")[2] for f in d.shown}
    assert told == SHOWN[text]
    values = values_of(text)
    (expected,) = torch.autograd.grad((values["G"] * values["y"]).sum(), values["x"])
    arrays = {name: v.detach().numpy() for name, v in values.items()}
    sizes = {"n": 3, "k": 2 if text is WINDOW else 4, "t": 4, "u": 3}
    for f in d.shown:
        found = torch.empty(3, 4, dtype=torch.float64)
        for at in torch.cartesian_prod(torch.arange(3), torch.arange(4)).tolist():
            here = dict(zip(f.axes, at, strict=True))
            found[tuple(at)] = evaluate(f.body, arrays, sizes, here, {"p": 3})
        arrays[f.name] = found.numpy()
    assert torch.allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize(
    "equations",
    [
        # At 0 the left side has a value and the right side has none.
        "y[n] = x[n]**p",
        "y[n] = abs(x[n])**(p/2)",
        # An exponent that may be below 1, and a root beside no power of its exponent.
        "z[n] = (1 + x[n]**2)**p\ny[n] = x[n]*exp(z[n])",
        "y[n] = (1 + abs(x[n])**3)**(1/p)",
    ],
)
def test_other_powers_stay(equations):
    d = derive.derivation(derive.parse(f"op f(x[n]; p=2) -> y\n{equations}"))
    assert [str(f) for f in d.shown if "y[n]/" in str(f) or "/z[n]" in str(f)] == []


SHOWN_BOUNDS = {
    "normalize": {
        "input": "(G[*p,k,*q] − [norm[*p,*q] ≥ eps]·output[*p,k,*q]"
        "·Σₖ′ G[*p,k′,*q]·output[*p,k′,*q])/max(norm[*p,*q], eps)"
    },
    "cosine_similarity": {
        "x1": "G[*p,*q]·(x2[*p,k,*q]/max(norm2[*p,*q], eps)"
        " − [norm1[*p,*q] ≥ eps]·x1[*p,k,*q]·output[*p,*q]/max(norm1[*p,*q], eps))"
        "/max(norm1[*p,*q], eps)"
    },
}


@pytest.mark.parametrize("name", SHOWN_BOUNDS)
def test_a_quotient_by_what_is_bounded_is_one(name):
    d = derive.derivation(catalog.find(name))
    told = {f.name.removeprefix("grad_"): str(f).partition(" = ")[2] for f in d.shown}
    assert {given: told[given] for given in SHOWN_BOUNDS[name]} == SHOWN_BOUNDS[name]


BOUNDED = (
    "op f(x[n,k]; eps=0.5) -> y\nr[n] = sqrt(sum[k](x[n,k]**2))\n"
    "y[n,k] = x[n,k]/clamp(r[n], eps, inf)"
)


def test_a_quotient_by_what_is_bounded_has_the_value_of_autograd():
    (f,) = derive.derivation(derive.parse(BOUNDED)).shown
    shown = "(G[n,k] − [r[n] ≥ eps]·y[n,k]·Σₖ′ G[n,k′]·y[n,k′])/max(r[n], eps)"
    assert str(f).partition(" = ")[2] == shown
    torch.manual_seed(5)
    x = torch.randn(3, 4, dtype=torch.float64)
    x[1] *= 0.1
    x.requires_grad_()
    y, G = functional.normalize(x, dim=1, eps=0.5), torch.randn(3, 4, dtype=torch.float64)
    (expected,) = torch.autograd.grad(y, x, G)
    values = {"r": x.norm(dim=1), "y": y, "G": G, "x": x}
    arrays = {name: v.detach().numpy() for name, v in values.items()}
    for at in torch.cartesian_prod(torch.arange(3), torch.arange(4)).tolist():
        here = dict(zip(f.axes, at, strict=True))
        found = evaluate(f.body, arrays, {"n": 3, "k": 4}, here, {"eps": 0.5})
        assert found == pytest.approx(expected[tuple(at)].item(), rel=1e-12)


KERNEL = "op f(x[i,k], z[j,k], w[i,j]) -> y\ny = sum[i,j](w[i,j]*sum[k]((x[i,k] - z[j,k])**2))"
GATHER = "op f(x[n,q], s[n]: int; size(g)=5) -> y\n"
SHOWN_SUMS = {
    KERNEL: {
        "x": "2·G·Σⱼ w[i,j]·(x[i,k] − z[j,k])",
        "z": "2·G·Σᵢ w[i,j]·(z[j,k] − x[i,k])",
        "w": "G·Σₖ (x[i,k] − z[j,k])²",
    },
    "op f(F[n,c], t[n]: int, a, w[c]; s=0.1) -> y\n"
    "y = sum[n](w[t[n]]*(a + s*F[n,t[n]])) + s*sum[n,c](w[c]*F[n,c])": {
        "w": "G·(s·Σₙ F[n,c] + Σₙ δ[c,t[n]]·(s·F[n,c] + a))"
    },
    # A tensor of outside is not multiplied with one inside.
    "op f(x[n,k]) -> y\nmu[n] = mean[k](x[n,k])\nv[n] = mean[k]((x[n,k] - mu[n])**2)\n"
    "h[n,k] = (x[n,k] - mu[n])/sqrt(v[n] + 1)\ny[n,k] = 2*h[n,k]": {
        "x": "2·(G[n,k] − meanₖ′(G[n,k′]) − h[n,k]·meanₖ′(G[n,k′]·h[n,k′]))/√(1 + v[n])"
    },
    GATHER + "y[g,q] = sum[n | s[n] == g](x[n,q]**2)": {"x": "2·G[s[n],q]·x[n,q]"},
    GATHER + "y[g,q] = mean[n | s[n] == g](x[n,q])": {"x": "G[s[n],q]/(Σₙ′ [s[n′] = s[n]])"},
    # How often it is, which is at no position.
    GATHER + "y[n,q] = x[n,q]*sum[g]([s[n] == g])": {"x": "G[n,q]·Σ[g] [s[n] = g]"},
}


@each_row("text", SHOWN_SUMS)
def test_sums_are_written_as_they_are_read(text):
    d = derive.derivation(derive.parse(text))
    found = dict(zip(d.gradients, d.shown, strict=True))
    told = {name: str(found[name]).partition(" = ")[2] for name in SHOWN_SUMS[text]}
    assert told == SHOWN_SUMS[text]


SIZES = {"n": 3, "k": 2, "c": 5, "i": 3, "j": 4, "q": 2, "g": 5}
WHOLE = {"s": 5, "t": 5}
"""So many positions there are for the values of a tensor."""


@pytest.mark.parametrize("text", SHOWN_SUMS)
def test_sums_that_are_rewritten_have_the_value_that_they_had(text):
    """Whatever the tensors are, by loops."""
    d = derive.derivation(derive.parse(text))
    made = np.random.default_rng(3)
    values = {}
    every = [*d.gradients.values(), *d.shown]
    for a in (a for f in every for a in accesses(f.body)):
        if a.tensor in WHOLE:
            values[a.tensor] = made.integers(0, WHOLE[a.tensor], SIZES["n"])
        elif a.tensor not in values:
            # Along an axis that is read at a tensor there are as many as along any.
            extents = (getattr(p, "extent", "c") for p in a.positions)
            values[a.tensor] = made.random([SIZES[extent] for extent in extents])
    given = {p.name: 0.1 for f in every for p in walk(f.body) if isinstance(p, Param)}
    for before, after in zip(d.gradients.values(), d.shown, strict=True):
        for at in product(*(range(SIZES[i.extent]) for i in before.axes)):
            here = dict(zip(before.axes, at, strict=True))
            found = [evaluate(f.body, values, SIZES, here, given) for f in (before, after)]
            assert found[1] == pytest.approx(found[0], rel=1e-12)
