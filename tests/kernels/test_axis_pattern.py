"""Instances of equations that sum along an axis."""

import torch

from derive import load, parse
from derive.algebra.expr import walk
from derive.calculus.build_lets import flatten_operation
from derive.kernels.axis_patterns import AxisPattern
from derive.kernels.kernel_spec import Kernel
from derive.kernels.pointwise_pattern import kinds_of
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
