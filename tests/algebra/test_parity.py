"""Pairwise terms f(x[i] - x[j]) of one tensor: their gradient computes each f' once."""

import torch
from kit.each import each_row

import derive

X = torch.tensor([0.3, -1.2, 0.3, 2.0, 0.9], dtype=torch.float64)
W = torch.randn(5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(3))


def of_pairs(f):
    return lambda x, w: (w * f(x[:, None] - x)).sum()


PAIRS = {
    "sin(x[i] - x[j])": (torch.sin, "cos(", 1),
    "cos(x[j] - x[i])": (lambda u: torch.cos(-u), "sin(", 1),
    "abs(x[i] - x[j])": (torch.abs, "sign(", 1),
    "exp(-(x[i] - x[j])**2)": (lambda u: torch.exp(-u.square()), "exp(", 1),
    "sqrt(1 + (x[i] - x[j])**2)": (lambda u: (1 + u.square()).sqrt(), "√", 1),
    "erf(x[i] - x[j])": (torch.erf, "exp(", 1),
    "(x[i] - x[j])**3": (lambda u: u**3, "²", 1),
    "exp(x[i] - x[j])": (torch.exp, "exp(", 2),
    "where(abs(x[i] - x[j]) < 1, (x[i] - x[j])**2/2, abs(x[i] - x[j]) - 1/2)": (
        lambda u: torch.nn.functional.huber_loss(u, 0 * u, reduction="none"),
        "where(",
        1,
    ),
}


def test_roots_of_both_directions_stay():
    op = derive.parse("op f(x[n], w[n]) -> y\ny[n] = sqrt(x[n] - w[n])*w[n] + sqrt(w[n] - x[n])")
    formulas = str(derive.derivation(op))
    assert "√(x[n] − w[n])" in formulas and "√(w[n] − x[n])" in formulas


@each_row("text", PAIRS)
def test_the_gradient_of_pairs_has_one_direction(text):
    f, slope, times = PAIRS[text]
    op = derive.parse(f"op f(x[i], w[i,j]) -> y\ny = sum[i,j](w[i,j]*{text})")
    (formula,) = (s for s in str(derive.derivation(op)).splitlines() if "grad_x[i] =" in s)
    assert formula.count(slope) == times, formula
    own = [t.clone().requires_grad_() for t in (X, W)]
    have, want = derive.load(op)(*own), of_pairs(f)(*own)
    torch.testing.assert_close(have, want)
    for order in range(2):
        first, other = (torch.autograd.grad(y, own, create_graph=True) for y in (have, want))
        torch.testing.assert_close(first, other)
        have, want = (sum(g.sin().sum() for g in grads) for grads in (first, other))
        assert order or have.requires_grad
