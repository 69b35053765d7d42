"""A backward saves the tensors whose elements it reads, each for the gradients that read them."""

import pytest
import torch
from kit.each import each_row

from derive import load, parse
from derive.pipeline import program_of

SAVED = {
    "op f(x[n,k], y[n,k]) -> z\nz = mean[n,k](y[n,k]*log(y[n,k]) - y[n,k]*x[n,k])": {
        "x": ("y",),
        "y": ("x", "y"),
    },
    "op f(x[i,k], w[k,j], b[j]) -> z\nz[i,j] = sum[k](x[i,k]*w[k,j]) + b[j]": {
        "x": ("w",),
        "w": ("x",),
    },
    "op f(x[n,u], w[k]) -> z\nz[n,t] = sum[k](x[n,t+k]*w[k])": {"x": ("w",), "w": ("x",)},
    "op f(x[n,k], t[n]: int) -> z\nz[n] = x[n,t[n]]": {"x": ("t",)},
    # The position of an extremum is read in every order, and what it is of in none.
    "op f(x[n,k]) -> z\nz[n] = max[k](sin(x[n,k]) + x[n,k])": {"x": ("x", "winner")},
    "op f(x[n,k], v[k,m]) -> z\nz[n,m] = max[k](x[n,k]*v[k,m])": {
        "x": ("v", "winner"),
        "v": ("x", "winner"),
    },
}


@each_row("text", SAVED)
def test_a_tensor_is_saved_for_the_gradients_that_read_its_elements(text):
    found: dict[str, list[str]] = {}
    for s in program_of(parse(text), None).saved:
        for gradient in s.needs:
            found.setdefault(gradient, []).append(s.name)
    assert {g: tuple(names) for g, names in found.items()} == SAVED[text]


def test_positions_are_constants_of_derivatives_of_all_orders():
    f = load(parse("op f(x[n,k]) -> z\nz[n] = max[k](x[n,k]**3)"))
    torch.manual_seed(0)
    x = torch.randn(5, 7, dtype=torch.float64, requires_grad=True)
    shift = torch.randn_like(x)
    results = []
    for g in (f, lambda x: (x**3).max(1)[0]):
        (first,) = torch.autograd.grad(g(x).square().sum(), x, create_graph=True)
        (second,) = torch.autograd.grad((first * shift).sum(), x)
        results.append((first, second))
    torch.testing.assert_close(*results)


GUARDED = (
    "y[n] = where(m[n,0], max[k](sqrt(x[n,0] - 1)*x[n,k]), 0)",
    "y[n] = where(m[n,0], max[k](x[n,k])*rsqrt(x[n,0] - 1), 0)",
    "h[n] = max[k](x[n,k]**2)\ny[n] = where(m[n,0], h[n]*log(x[n,0] - 1), 0)",
)


@pytest.mark.parametrize("equations", GUARDED)
def test_guards_stay_where_a_graph_is_wanted(equations):
    """What is kept for both bodies makes none of first order alone."""
    f = load(parse(f"op f(x[n,k], m[n,k]: bool) -> y\n{equations}"))
    torch.manual_seed(0)
    x = (torch.rand(4, 5, dtype=torch.float64) + 1.5).requires_grad_()
    m = torch.tensor([[True] * 5, [False] * 5, [True] * 5, [False] * 5])
    with torch.no_grad():
        x[1, 0], x[3, 0] = 0.5, 1.0
    (first,) = torch.autograd.grad(f(x, m).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), x)
    assert first.isfinite().all() and second.isfinite().all()
    assert not first[1].any() and not second[3].any()
