"""Gradients of positions on a ring read at a position on the ring, as an expert writes them."""

import pytest
from kit.each import each_row

torch = pytest.importorskip("torch")

import derive  # noqa: E402


def at(x, dim, shift):
    return x.roll(-shift, dim)


CASES = {
    "x[i], w -> y; y[i] = w*(x[(i + 1) % size(i)] - 2*x[i] + x[(i - 1) % size(i)])": (
        lambda x, w: w * (at(x, 0, 1) - 2 * x + at(x, 0, -1)),
        [(7,), ()],
        "G[(i − 1) mod size(i)] + G[(1 + i) mod size(i)] − 2·G[i]",
    ),
    "u[n,c], v[n,c]; size(c)=3 -> w; "
    "w[n,c] = u[n,(c + 1) % 3]*v[n,(c + 2) % 3] - u[n,(c + 2) % 3]*v[n,(c + 1) % 3]": (
        torch.linalg.cross,
        [(4, 3), (4, 3)],
        "grad_u[n,c] = G[n,(c − 1) mod 3]·v[n,(1 + c) mod 3] − "
        "G[n,(c − 2) mod 3]·v[n,(c − 1) mod 3]",
    ),
    "x[i], w[k] -> y; y[i] = sum[k](w[k]*x[(i + k) % size(i)])": (
        lambda x, w: sum(w[k] * at(x, 0, k) for k in range(len(w))),
        [(5,), (3,)],
        "grad_x[i] = Σₖ G[(i − k) mod size(i)]·w[k]",
    ),
    "x[i,j]; s=2 -> y; y[i,j] = exp(x[(i + s) % size(i),(j - s) % size(j)])*x[i,j]": (
        lambda x: x.roll((-2, 2), (0, 1)).exp() * x,
        [(5, 4)],
        "G[(i − s) mod size(i),(j + s) mod size(j)]",
    ),
    "x[i] -> y; y[i] = x[(size(i) - i) % size(i)]*sin(x[i])": (
        lambda x: at(x.flip(0), 0, -1) * x.sin(),
        [(6,)],
        "G[(size(i) − i) mod size(i)]",
    ),
    # 2*i is no bijection: its delta stays
    "x[i,j] -> y; y[i] = sum[j](x[(2*i + j) % size(i),j]**2)": (
        lambda x: torch.stack(
            [sum(x[(2 * i + j) % len(x), j] ** 2 for j in range(x.shape[1])) for i in range(len(x))]
        ),
        [(5, 3)],
        "δ[i,(2·i′ + j) mod size(i)]",
    ),
}


@each_row("text", CASES)
def test_the_delta_of_a_ring_is_solved(text):
    plain, shapes, said = CASES[text]
    inputs, _, body = text.partition(" -> ")
    result, _, body = body.partition("; ")
    op = derive.parse(f"op f({inputs}) -> {result}\n{body}")
    assert said in str(derive.derivation(op))
    own = [torch.randn(s, dtype=torch.float64).requires_grad_() for s in shapes]
    have, want = derive.load(op)(*own), plain(*own)
    torch.testing.assert_close(have, want)
    for _ in range(2):
        first, other = (
            torch.autograd.grad(y.sin().sum(), own, create_graph=True) for y in (have, want)
        )
        torch.testing.assert_close(first, other)
        have, want = (torch.cat([g.flatten() for g in grads]) for grads in (first, other))
