"""Groups and composites: axes of any number, kept as they are or taken as one."""

import pytest
import torch
from kit.shared import anew

from derive import catalog, load, parse, pipeline
from derive.algebra.expr import Index
from derive.api import source
from derive.calculus import adjoint
from derive.joint import value_and_grad_source
from derive.lowering.groups import group_shapes, groups_of, shape_name
from derive.notation.common_output import common_output
from derive.notation.operation import Operation, options

OP = parse("op f(x[*p,k,*q], w[*q]; dim=axis(k)) -> y\ny[*p,*q] = sum[k](x[*p,k,*q]*w[*q])")


def test_a_group_has_a_shape_by_its_name():
    p, q = Index("p", "p", True), Index("q", "q", True)
    assert groups_of(OP.inputs[0]) == [p, q]
    assert shape_name(p) == "p_shape"
    assert [line.name for line in group_shapes(OP)] == ["dim_axis", "p_shape", "q_shape"]


@pytest.mark.parametrize(("shape", "dim"), [((2, 3), 1), ((2, 3, 4, 5), 1), ((3, 4), 0)])
def test_any_number_of_axes_on_either_side(shape, dim):
    x = torch.rand(shape, dtype=torch.float64, requires_grad=True)
    w = torch.rand(shape[dim + 1 :], dtype=torch.float64, requires_grad=True)
    y = load(OP)(x, w, dim=dim)
    want = (x * w).sum(dim)
    torch.testing.assert_close(y, want)
    found = torch.autograd.grad(y.sum(), (x, w))
    torch.testing.assert_close(found, torch.autograd.grad(want.sum(), (x, w)))


def operation(name: str) -> Operation:
    found = catalog.find(name)
    assert found is not None
    return found


@pytest.mark.parametrize("name", ["softmax", "glu", "batch_norm", "cross_entropy", "pixel_shuffle"])
def test_an_option_is_derived_once(name, monkeypatch):
    """Once more where a graph of the gradient leads through what the forward keeps."""
    op = operation(name)
    differentiated = []

    def counted(*args):
        differentiated.append(args)
        return differentiate(*args)

    differentiate = adjoint.differentiate
    monkeypatch.setattr(adjoint, "differentiate", counted)
    with anew():
        source(op)
    found = len(differentiated)
    times = 2 if any(pipeline.program_of(op, option).pulled for option, _ in options(op)) else 1
    each = len(list(options(op)))
    # The code of reductions of one equation derives that one; the text has all.
    assert found == (times * each if common_output(op) is None else each + 1)


def test_the_formulas_of_a_joint_function_have_the_groups():
    text = value_and_grad_source(operation("linear"))
    assert "grad_weight[j,k] = Σ[*b] G[*b,j]·input[*b,k]" in text


def test_a_shape_that_is_kept_may_stand_behind_the_shape_of_a_saved_tensor():
    op = parse(
        "op f(x[*p,j,*q], a[*p], w[k]) -> y\ny[k,*q] = prod[*p](a[*p]*w[k]) + sum[*p,j](x[*p,j,*q])"
    )
    x, a, w = (
        torch.rand(shape, dtype=torch.float64, requires_grad=True)
        for shape in ((2, 3, 4, 5), (2,), (6,))
    )
    y = load(op)(x, a, w)
    torch.testing.assert_close(y, (a[0] * a[1] * w**2)[:, None, None] + x.sum((0, 1)))
    assert torch.autograd.gradcheck(load(op), (x, a, w))


def test_an_axis_that_a_flag_keeps_has_size_1():
    op = parse("op f(x[*p,k]; keepdim=keep(k)) -> y\ny[*p] = sum[k](x[*p,k])")
    x = torch.ones(2, 3, 4)
    assert load(op)(x).shape == (2, 3)
    assert load(op)(x, keepdim=True).shape == (2, 3, 1)


def test_a_composite_axis_is_one_axis_outside():
    f = load(parse("op f(x[n,t,d]) -> y\ny[n,(t d)] = 2*x[n,t,d]"))
    x = torch.rand(2, 3, 5, dtype=torch.float64, requires_grad=True)
    y = f(x)
    assert torch.equal(y, 2 * x.detach().reshape(2, 15))
    y.sum().backward()
    assert x.grad is not None and torch.equal(x.grad, torch.full((2, 3, 5), 2.0).double())
