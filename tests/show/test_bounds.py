"""One quotient for two, above and below the bound."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

import derive
from derive import catalog
from derive.algebra.interpret import evaluate

SHOWN = {
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


@pytest.mark.parametrize("name", SHOWN)
def test_a_quotient_by_what_is_bounded_is_one(name):
    d = derive.derivation(catalog.find(name))
    told = {f.name.removeprefix("grad_"): str(f).partition(" = ")[2] for f in d.shown}
    assert {given: told[given] for given in SHOWN[name]} == SHOWN[name]


BOUNDED = (
    "op f(x[n,k]; eps=0.5) -> y\nr[n] = sqrt(sum[k](x[n,k]**2))\n"
    "y[n,k] = x[n,k]/clamp(r[n], eps, inf)"
)


def test_it_has_the_value_of_autograd():
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
