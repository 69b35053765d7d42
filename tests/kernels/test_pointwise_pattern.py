"""Instances of equations without axes."""

from derive import parse
from derive.algebra.expr import walk
from derive.calculus.build_lets import flatten_operation
from derive.kernels.kernel_spec import Kernel, KernelSpec
from derive.kernels.pointwise_pattern import PointwisePattern, kinds_of

SILU = PointwisePattern(KernelSpec("s", "y = x*sigmoid(x)", "torch.s(x)"))
TANH = PointwisePattern(KernelSpec("t", "dx = g*(1 - y**2)", "torch.t(g, y)", "g"))


def flat(text):
    return flatten_operation(parse(text))["y"].body


def found(pattern, text):
    p = flat(text)
    if not pattern.may_be_in(frozenset(kinds_of(p))):
        return []
    return [i for i in pattern.instances(p) if i.whole is p]


def arguments(instance):
    kernel = next(e for e in walk(instance.made) if isinstance(e, Kernel))
    return kernel.args


def test_what_stands_beside_stays_outside_or_is_the_cotangent():
    (made,) = found(SILU, "y[i] = 3*a[i]*b[i]*sigmoid(b[i])")
    assert arguments(made) == (flat("y[i] = b[i]"),)
    (made, *_) = found(TANH, "y[i] = 3*a[i] - 3*a[i]*b[i]**2")
    assert arguments(made) == (flat("y[i] = 3*a[i]"), flat("y[i] = b[i]"))


def test_cotangents_of_one_argument_are_added():
    (made,) = found(TANH, "y[i] = a[i] + c[i] - a[i]*b[i]**2 - c[i]*b[i]**2")
    kernels = [e for e in walk(made.made) if isinstance(e, Kernel)]
    assert [k.args[1] for k in kernels] == [flat("y[i] = b[i]")] * len(kernels)


def test_a_sum_that_the_argument_lacks_is_taken_first():
    made, *_ = found(TANH, "y[i] = sum[j](a[i,j]) - sum[j](a[i,j]*b[i]**2)")
    assert arguments(made)[0] is flat("y[i] = sum[j](a[i,j])")


def test_all_terms_have_to_be_there():
    assert not found(TANH, "y[i] = a[i] - 2*a[i]*b[i]**2")
    assert not found(SILU, "y[i] = b[i]*sigmoid(a[i])")
    assert not found(TANH, "y[i] = 1 - b[i]**2")


def test_an_expression_without_the_relation_of_an_equation_has_no_instance():
    clamp = PointwisePattern(KernelSpec("c", "y = where(x >= 3, 3, x)", "torch.c(x)"))
    assert clamp.may_be_in(kinds_of(flat("y[i] = where(a[i] >= 3, 3, a[i])")))
    assert not clamp.may_be_in(kinds_of(flat("y[i] = where(a[i] > 3, 3, a[i])")))
