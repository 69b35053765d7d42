"""An axis read as several, or several as one, is a view in both directions."""

import numpy as np
import pytest
import torch
from kit.lines import made, run
from kit.recognised import functions
from kit.unwritten import source_without_reuse

from derive import load

VIEWS = {
    "op f(x[n,k]; size(m)=2, size(d)=3) -> y\ny[n,m,d] = sin(x[n,3*m + d])": {"x": (4, 6)},
    "op f(x[n,k]; size(m)=2, size(d)=3) -> y\ny[n,m,d] = sin(x[n,3*m + d + 2])": {"x": (4, 9)},
    "op f(x[k,n]; size(d)=3) -> y\ny[m,n,d] = sin(x[size(d)*m + d,n])": {"x": (6, 4)},
    "op f(x[n,k]; p=1, size(m)=2, size(d)=3) -> y\ny[n,m,d] = exp(x[n,3*m + d + p])": {"x": (4, 8)},
    "op f(x[n,k]; p=1, size(j)=3) -> y\ny[n,j] = exp(x[n,j + p])": {"x": (4, 8)},
    # A composite axis that is read by one index, and what is joined from it.
    "op f(x[n,(m d)], w[k]; size(m)=2) -> y\n"
    "h[n,(m d)] = exp(x[n,(m d)])*m\ny[n,k] = h[n,k]*w[k]": {"x": (4, 6), "w": (6,)},
    "op f(x[n,(m d)], z[n,i]; size(m)=2) -> y\nh[n,(m d)] = exp(x[n,(m d)])*(m + 1)\n"
    "part[n,k] = h[n,k]\ny[n,j] = concat[j](part[n,j], z[n,j])": {"x": (4, 6), "z": (4, 3)},
    "op f(x[n,(m d e)]; size(m)=2, size(d)=3) -> y\n"
    "h[n,(m d e)] = exp(x[n,(m d e)])*(m + 1)*(d + 2)\ny[k,n] = sin(h[n,k])": {"x": (5, 24)},
    "op f(x[(m d),n]; size(m)=2) -> y\nh[(m d),n] = exp(x[(m d),n])*(d + 1)\ny[n,k] = h[k,n]": {
        "x": (6, 4)
    },
}


@pytest.mark.parametrize("text", VIEWS)
def test_views_stay_views_in_both_directions(text):
    rng = np.random.default_rng(0)
    run(text, {name: rng.uniform(0.5, 1.5, shape) for name, shape in VIEWS[text].items()})
    lines = "\n".join(
        line for body in functions(source_without_reuse(made(text))) for line in body or ()
    )
    assert not any(call in lines for call in ("index_select", "gather", "index_add", "index_put"))


def test_a_run_that_leaves_the_axis_is_an_error():
    f = load(made("op f(x[n,k]; p=1, size(j)=3) -> y\ny[n,j] = exp(x[n,j + p])"))
    x = torch.rand(2, 5)
    torch.testing.assert_close(f(x, p=2), x[:, 2:].exp())
    for p in (-1, 3):
        with pytest.raises(IndexError):
            f(x, p=p)


def test_a_run_of_no_positions_is_anywhere():
    f = load(made("op f(x[n,k], z[j]; p=1) -> y\ny[n,j] = exp(x[n,j + p])*z[j]"))
    x = torch.rand(2, 5, requires_grad=True)
    y = f(x, torch.rand(0), p=7)
    assert y.shape == (2, 0)
    (found,) = torch.autograd.grad(y.sum(), x)
    assert found.tolist() == torch.zeros(2, 5).tolist()


def test_what_is_placed_at_the_same_positions_is_added_first():
    text = "op f(x[n,k], w[k], t[n]: int) -> y\ny[n] = exp(x[n,t[n]])*w[t[n]] + x[n,t[n]]**2"
    backward = functions(source_without_reuse(made(text)))[1]
    assert sum("scatter_add" in line for line in backward) == 1
    rng = np.random.default_rng(0)
    x, w = (rng.uniform(0.5, 1.5, s) for s in ((4, 6), (6,)))
    run(text, {"x": x, "w": w, "t": np.array([0, 5, 3, 3])})
