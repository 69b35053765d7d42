"""Powers by the name of an equation have the value of the gradient, and others no name."""

from __future__ import annotations

import pytest
import torch

import derive
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
