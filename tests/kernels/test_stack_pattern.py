"""Instances of equations of which each position of a short axis is an argument."""

import pytest
import torch

from derive import load, parse, source
from derive.algebra.expr import Index, free_indices, walk
from derive.calculus.build_lets import flatten_operation
from derive.kernels.axis_patterns import StackPattern
from derive.kernels.kernel_spec import Kernel
from derive.kernels.table import KERNELS

T = Index("t", "t")
INPUTS = ("x[n,t,k]", "v[k]", "w[n,t]", "g[n,k]")


def flat(text):
    read = ", ".join(x for x in INPUTS if x[:2] in text)
    return flatten_operation(parse(f"op f({read}; size(t)=2) -> y\n{text}"))["y"].body


def kernels(name, text, size=2):
    """The kernels that are all of the equation but for what stands beside them."""
    pattern = StackPattern(KERNELS[name], lambda x: {1: (T, size)} if x in ("x", "w") else {})
    p = flat(text)
    wholes = [i for i in pattern.instances(p) if i.whole is p]
    assert all(free_indices(i.made) == free_indices(p) for i in wholes)
    return [e for i in wholes for e in walk(i.made) if isinstance(e, Kernel)]


@pytest.mark.parametrize(
    "body",
    (
        "x[n,0,k]*sigmoid(x[n,1,k])",
        "2*v[k]*x[n,0,k]*sigmoid(x[n,1,k])",
        "v[k]*x[n,0,k]*sigmoid(x[n,1,k]) + g[n,k]*x[n,0,k]*sigmoid(x[n,1,k])",
    ),
)
def test_the_result_lacks_the_axis(body):
    found = kernels("glu", f"y[n,k] = {body}")
    assert found and all(e.along == e.binders and e.along[0].extent == "t" for e in found)


@pytest.mark.parametrize(
    "body",
    (
        "x[n,1,k]*sigmoid(x[n,0,k])",
        "x[n,0,k]*sigmoid(2*x[n,1,k])",
        "x[n,0,k]*sigmoid(w[n,1])",
        "x[n,0,0]*sigmoid(x[n,1,1])",
    ),
)
def test_what_is_read_elsewhere_is_no_argument(body):
    assert not kernels("glu", f"y[n,k] = {body} + g[n,k]")


def test_the_axis_is_as_long_as_that_of_the_equation():
    body = "y[n,k] = x[n,0,k]*sigmoid(x[n,1,k])"
    assert kernels("glu", body) and not kernels("glu", body, 3)


SLOPE = (
    "y[n,t,k] = where(t == 0, {g}*sigmoid(x[n,1,k]), "
    "{g}*x[n,0,k]*sigmoid(x[n,1,k]) - {g}*x[n,0,k]*sigmoid(x[n,1,k])**2)"
)


@pytest.mark.parametrize("g", ("g[n,k]", "v[k]", "3*v[k]*g[n,k]", "(g[n,k] + v[k])"))
def test_the_cotangent_is_all_that_is_beside(g):
    found = kernels("glu backward", SLOPE.format(g=g))
    assert found and all(e.along == (T,) and not e.binders for e in found)


@pytest.mark.parametrize("g", ("w[n,t]", "x[n,t,k]"))
def test_a_cotangent_has_no_such_axis(g):
    assert not kernels("glu backward", SLOPE.format(g=g))


def test_a_gradient_that_is_summed_reads_what_the_sum_runs_over():
    """The kernel stands under the sum: its tensor has the summed indices too."""
    op = parse(
        "op f(x[n,k,t], b[c], m[n,t]: bool; size(d)=2) -> y\n"
        "p[n,d,k,t] = b[(d k)] + x[n,k,t]\n"
        "y[n,k,t] = where(m[n,t], 0, p[n,0,k,t]*sigmoid(p[n,1,k,t]))"
    )
    f, m = load(op), torch.tensor([[True, False, False, True], [False, True, False, False]])
    x, b = (torch.randn(s, dtype=torch.float64, requires_grad=True) for s in ((2, 3, 4), (6,)))
    p = torch.cat([x, x], 1) + b[:, None]
    want = torch.nn.functional.glu(p, 1).masked_fill(m[:, None], 0)
    G = torch.randn_like(want)
    assert "glu_backward" in source(op)
    torch.testing.assert_close(
        torch.autograd.grad(f(x, b, m), (x, b), G), torch.autograd.grad(want, (x, b), G)
    )
