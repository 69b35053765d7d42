"""Instances of equations that sum along an axis."""

import pytest
import torch
from kit.unwritten import first_order

import derive
from derive import load, parse
from derive.algebra.expr import walk
from derive.calculus.build_lets import flatten_operation
from derive.kernels.axis_patterns import AxisPattern
from derive.kernels.kernel_spec import Kernel
from derive.kernels.pointwise_pattern import kinds_of
from derive.kernels.recognise import summed_rows
from derive.kernels.table import KERNELS

SOFTMAX = AxisPattern(KERNELS["softmax backward"])


def flat(text):
    return flatten_operation(parse(text))["y"].body


def kernels(text):
    p = flat(text)
    wholes = [i for i in SOFTMAX.instances(p) if i.whole is p]
    return [e for i in wholes for e in walk(i.made) if isinstance(e, Kernel)]


def test_the_cotangent_is_all_that_is_beside():
    (kernel, *_) = kernels("y[n,i] = 2*s[n]*p[n,i]*g[n,i] - 2*s[n]*p[n,i]*sum[j](p[n,j]*g[n,j])")
    assert [i.name for i in kernel.along] == ["i"]
    given = {flat("y[n,i] = p[n,i]"), flat("y[n,i] = 2*s[n]*g[n,i]")}
    assert given <= set(kernel.args) or flat("y[n,i] = 2*s[n]*p[n,i]") in kernel.args


def test_a_cotangent_may_be_a_sum():
    (kernel, *_) = kernels("y[i] = p[i]*sum[d](g[d]*v[i,d]) - p[i]*sum[j,d](p[j]*g[d]*v[j,d])")
    assert flat("y[i] = sum[d](g[d]*v[i,d])") in kernel.args


def test_no_other_sum_is_taken_for_it():
    assert not kernels("y[n,i] = p[n,i]*g[n,i] - p[n,i]*sum[j](q[n,j]*g[n,j])")
    assert not kernels("y[n,i] = p[n,i]*g[n,i] - 2*p[n,i]*sum[j](p[n,j]*g[n,j])")


def test_a_row_that_a_condition_leaves_out_is_masked_after_the_kernel():
    """exp(x - lse) is infinite there, and infinity times 0 is no number."""
    op = parse(
        "op f(q[i,d], k[j,d], v[j,e], m[i]: bool) -> y\n"
        "y[i,e] = sum[j](softmax[j | m[i]](sum[d](q[i,d]*k[j,d]))*v[j,e])"
    )
    tensors = [
        torch.randn(s, dtype=torch.float64, requires_grad=True) for s in ((3, 4), (5, 4), (5, 2))
    ]
    y = load(op)(*tensors, torch.tensor([True, False, True]))
    grads = torch.autograd.grad(y.sum(), tensors)
    assert all(g.isfinite().all() for g in grads) and (grads[0][1] == 0).all()


def test_an_expression_whose_summed_indices_are_all_bound_has_no_instance():
    assert SOFTMAX.may_be_in(kinds_of(flat("y[i] = p[i]*g[i] - p[i]*sum[j](p[j]*g[j])")))
    assert not SOFTMAX.may_be_in(kinds_of(flat("y[n] = a[n] - sum[j](p[j]*g[j])")))


HEAD = "op f(x[n,k], t[n]: int, a[n], v[k], m[n]: bool) -> y\nl[n,k] = log_softmax[k](x[n,k])\n"
FOUND = (
    "y[] = -sum[n](where(m[n], a[n], v[0])*l[n,t[n]]*(1 + l[n,t[n]]))",
    "y[n] = where(m[n], a[n]**2, 3)*l[n,t[n]]*sum[k](v[k]*l[n,k])",
    "y[] = sum[n](where(m[n], a[n]*exp(l[n,t[n]]) + mean[k](v[k]*l[n,k]), 0))",
)
OTHER = "y[] = sum[n](l[n,t[n]] + sum[k](v[k]*where(m[n], a[n], 2)*exp(x[n,k])*l[n,k]))"


@pytest.mark.parametrize("text", FOUND)
def test_the_backward_of_log_softmax_is_called(text):
    op = derive.parse(HEAD + text)
    assert first_order(derive.source(op)).count("_log_softmax_backward_data(") == 1
    right(op)


def test_what_is_beside_the_softmax_may_have_another_sum():
    right(derive.parse(HEAD + OTHER))


def test_a_row_that_is_masked_has_no_gradient_whatever_stands_in_it():
    f = derive.load(derive.parse(HEAD + FOUND[2]))
    x, t, a, v, m = given()
    x = x.detach().clone()
    x[1, 0] = float("nan")
    x.requires_grad_()
    f(x, t, a, v, m).backward()
    assert not m[1] and x.grad[1].tolist() == [0, 0, 0, 0] and x.grad[0].isfinite().all()


def given():
    torch.manual_seed(1)
    x, a, v = (torch.rand(s, dtype=torch.float64, requires_grad=True) for s in ((3, 4), (3,), (4,)))
    return x, torch.tensor([2, 0, 3]), a, v, torch.tensor([True, False, True])


def right(op):
    f = derive.load(op)
    x, t, a, v, m = given()
    grads = []
    for graph in (False, True):
        y = f(x, t, a, v, m).sum()
        grads.append(torch.autograd.grad(y, (x,), create_graph=graph)[0].detach())
    torch.testing.assert_close(*grads, rtol=1e-12, atol=1e-13)
    assert torch.autograd.gradcheck(lambda *xs: f(xs[0], t, *xs[1:], m), (x, a, v))
    assert torch.autograd.gradgradcheck(lambda *xs: f(xs[0], t, *xs[1:], m), (x, a, v))


def test_only_an_equation_that_subtracts_a_multiple_of_the_sum_has_a_row():
    assert [row.row.name for row in summed_rows({"y"})] == ["log_softmax backward"]
    assert summed_rows(()) == ()
