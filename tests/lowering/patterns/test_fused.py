"""A number times a matrix product, added to a tensor, is one call; a convolution adds a bias."""

import numpy as np
import pytest
import torch
from kit.each import each_row, some_now
from kit.lines import lines, made, named, run
from kit.unwritten import source_without_reuse

from derive import load
from derive.check.checks import QUICK, VALUES, checks_of

CODE = {
    "op f(x[i,d], y[j,d]) -> D\nD[i,j] = sum[d]((x[i,d] - y[j,d])**2)": (
        "D = torch.addmm(x_centred_sum, x_centred, y_centred.mT, alpha=-2).clamp_min(0)"
    ),
    "op f(A[i,k], B[k,j], c) -> y\ny[i,j] = 3*sum[k](A[i,k]*B[k,j]) + c": (
        "return torch.addmm(c, A, B, alpha=3)"
    ),
    "op f(A[i,k], B[j,k], C[j]) -> y\ny[i,j] = C[j] + 1 - 2.5*sum[k](sin(A[i,k])*B[j,k])": None,
    "op f(A[b,i,k], B[b,k,j], C[b,i,j]) -> y\ny[b,i,j] = C[b,i,j] - sum[k](A[b,i,k]*B[b,k,j])/2": (
        "return torch.baddbmm(C, A, B, alpha=-0.5)"
    ),
    "op f(A[b,i,k], B[b,k,j], C[i,j], D[j]) -> y\n"
    "y[b,i,j] = 2*sum[k](A[b,i,k]*B[b,k,j]) + C[i,j] + D[j]": None,
    "op f(A[i,k], B[k,j], C[i,j], D[k,j]) -> y\n"
    "y[i,j] = C[i,j] + 2*sum[k](A[i,k]*B[k,j]) - 3*sum[k](A[i,k]*D[k,j])": None,
}
PLAIN = {
    # No number; a parameter, which may be 0; other axes.
    "op f(A[i,k], B[k,j], C[j]) -> y\ny[i,j] = sum[k](A[i,k]*B[k,j]) + C[j]": "y = A @ B + C",
    "op f(A[i,k], B[k,j], C[i,j]; alpha=2) -> y\ny[i,j] = C[i,j] + alpha*sum[k](A[i,k]*B[k,j])": (
        "y = C + alpha * (A @ B)"
    ),
    "op f(A[b,i,k], B[k,j], C[j]) -> y\ny[b,i,j] = C[j] - 2*sum[k](A[b,i,k]*B[k,j])": None,
    "op f(A[b,i,k], B[k], C[i]) -> y\ny[b,i] = C[i] - 2*sum[k](A[b,i,k]*B[k])": None,
    "op f(A[b,i,k], B[b,k], C[i]) -> y\ny[b,i] = C[i] - 2*sum[k](A[b,i,k]*B[b,k])": None,
    "op f(A[*p,i,k], B[*p,k,j], C[j]) -> y\ny[*p,i,j] = C[j] - 2*sum[k](A[*p,i,k]*B[*p,k,j])": None,
    "op f(A[i,k], B[k,j]) -> y\ny[i,j] = 1 - 2*sum[k](A[i,k]*B[k,j])": "y = 1 - 2 * (A @ B)",
}


@pytest.mark.parametrize("text", [t for t, line in {**CODE, **PLAIN}.items() if line], ids=named)
def test_the_code(text):
    expected = {**CODE, **PLAIN}[text]
    found = lines(source_without_reuse(made(text)), "forward")
    assert expected in [line.strip() for block in found for line in block.splitlines()]


@pytest.mark.parametrize("text", [*CODE, *PLAIN], ids=named)
def test_what_is_fused(text):
    body = "".join(lines(source_without_reuse(made(text)), "forward"))
    assert ("addmm(" in body or "baddbmm(" in body) == (text in CODE)


@pytest.mark.parametrize("columns", some_now([VALUES, QUICK], 1), ids=len)
@each_row("text", [*CODE, *PLAIN])
def test_the_family_of_checks(text, columns):
    """Values and gradients now; all checks, on sizes of every kind, in the long campaign."""
    op = made(text)
    assert not [c for c in checks_of(op, load(op), columns=columns) if not c.ok]


@each_row("k", [0, 1, 4])
@each_row("i", [0, 1, 3])
@each_row("text", CODE)
def test_axes_of_any_size(text, i, k):
    op = made(text)
    sizes = {"i": i, "j": 2, "k": k, "d": k, "b": 2}
    rng = np.random.default_rng(0)
    run(text, {t.name: rng.normal(size=[sizes[a.extent] for a in t.axes]) for t in op.inputs})


def test_a_nan_is_kept_where_a_parameter_is_zero():
    f = load(made(next(t for t in PLAIN if "alpha" in t)))
    A, B = torch.full((2, 3), torch.nan), torch.ones(3, 2)
    assert f(A, B, torch.ones(2, 2), alpha=0).isnan().all()
