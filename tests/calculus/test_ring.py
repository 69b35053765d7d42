"""Gradients of positions on a ring read at a position on the ring, as an expert writes them."""

import torch
from kit.each import each_row, told
from kit.lines import defined

import derive


def at(x, dim, shift):
    return x.roll(-shift, dim)


CASES = told(
    """\
op f(x[i], w) -> y; y[i] = w*(x[(i + 1) % size(i)] - 2*x[i] + x[(i - 1) % size(i)])
    G[(i − 1) mod size(i)] + G[(1 + i) mod size(i)] − 2·G[i]
op f(u[n,c], v[n,c]; size(c)=3) -> w; \
  w[n,c] = u[n,(c + 1) % 3]*v[n,(c + 2) % 3] - u[n,(c + 2) % 3]*v[n,(c + 1) % 3]
    grad_u[n,c] = G[n,(c − 1) mod 3]·v[n,(1 + c) mod 3] − G[n,(c − 2) mod 3]·v[n,(c − 1) mod 3]
op f(x[i], w[k]) -> y; y[i] = sum[k](w[k]*x[(i + k) % size(i)])
    grad_x[i] = Σₖ G[(i − k) mod size(i)]·w[k]
op f(x[i,j]; s=2) -> y; y[i,j] = exp(x[(i + s) % size(i),(j - s) % size(j)])*x[i,j]
    G[(i − s) mod size(i),(j + s) mod size(j)]
op f(x[i]) -> y; y[i] = x[(size(i) - i) % size(i)]*sin(x[i])
    G[(size(i) − i) mod size(i)]
# 2*i is no bijection: its delta stays
op f(x[i,j]) -> y; y[i] = sum[j](x[(2*i + j) % size(i),j]**2)
    δ[i,(2·i′ + j) mod size(i)]
"""
)
SIZES = {"i": 7, "j": 4, "k": 3, "n": 4, "c": 3}


@each_row("text, said", CASES)
def test_the_delta_of_a_ring_is_solved(text, said):
    op = derive.parse(text)
    assert said in str(derive.derivation(op))
    shapes = [[SIZES[i.extent] for i in t.axes] for t in op.inputs]
    own = [torch.randn(s, dtype=torch.float64).requires_grad_() for s in shapes]
    have, want = derive.load(op)(*own), defined(op)(*own)
    torch.testing.assert_close(have, want)
    for _ in range(2):
        first, other = (
            torch.autograd.grad(y.sin().sum(), own, create_graph=True) for y in (have, want)
        )
        torch.testing.assert_close(first, other)
        have, want = (torch.cat([g.flatten() for g in grads]) for grads in (first, other))
