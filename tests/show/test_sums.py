"""Sums that are read at a position, that share factors, or that stay as they are."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import derive
from derive.algebra.expr import Param, accesses, walk
from derive.algebra.interpret import evaluate

KERNEL = "op f(x[i,k], z[j,k], w[i,j]) -> y\ny = sum[i,j](w[i,j]*sum[k]((x[i,k] - z[j,k])**2))"
GATHER = "op f(x[n,q], s[n]: int; size(g)=5) -> y\n"
SHOWN = {
    KERNEL: {
        "x": "2·G·Σⱼ w[i,j]·(x[i,k] − z[j,k])",
        "z": "2·G·Σᵢ w[i,j]·(z[j,k] − x[i,k])",
        "w": "G·Σₖ (x[i,k] − z[j,k])²",
    },
    "op f(F[n,c], t[n]: int, a, w[c]; s=0.1) -> y\n"
    "y = sum[n](w[t[n]]*(a + s*F[n,t[n]])) + s*sum[n,c](w[c]*F[n,c])": {
        "w": "G·(s·Σₙ F[n,c] + Σₙ δ[c,t[n]]·(s·F[n,c] + a))",
    },
    # A tensor of outside is not multiplied with one inside.
    "op f(x[n,k]) -> y\nmu[n] = mean[k](x[n,k])\nv[n] = mean[k]((x[n,k] - mu[n])**2)\n"
    "h[n,k] = (x[n,k] - mu[n])/sqrt(v[n] + 1)\ny[n,k] = 2*h[n,k]": {
        "x": "2·(G[n,k] − h[n,k]·meanₖ′(G[n,k′]·h[n,k′]) − meanₖ′(G[n,k′]))/√(1 + v[n])",
    },
    GATHER + "y[g,q] = sum[n | s[n] == g](x[n,q]**2)": {"x": "2·G[s[n],q]·x[n,q]"},
    GATHER + "y[g,q] = mean[n | s[n] == g](x[n,q])": {
        "x": "G[s[n],q]/(Σₙ′ [s[n′] = s[n]])",
    },
    # How often it is, which is at no position.
    GATHER + "y[n,q] = x[n,q]*sum[g]([s[n] == g])": {"x": "G[n,q]·Σ[g] [s[n] = g]"},
}


@pytest.mark.parametrize("text", SHOWN)
def test_sums_are_written_as_they_are_read(text):
    d = derive.derivation(derive.parse(text))
    found = dict(zip(d.gradients, d.shown, strict=True))
    told = {name: str(found[name]).partition(" = ")[2] for name in SHOWN[text]}
    assert told == SHOWN[text]


SIZES = {"n": 3, "k": 2, "c": 5, "i": 3, "j": 4, "q": 2, "g": 5}
WHOLE = {"s": 5, "t": 5}
"""So many positions there are for the values of a tensor."""


@pytest.mark.parametrize("text", SHOWN)
def test_and_have_the_value_that_they_had(text):
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
