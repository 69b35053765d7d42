"""The docstrings of generated functions and modules, to exact text."""

from __future__ import annotations

import ast

import pytest
import torch

from derive import load, parse
from derive.api import source
from derive.joint import value_and_grad_source


def docs(text: str) -> tuple[str, str]:
    """The docstrings of a module and of its public function."""
    tree = ast.parse(text)
    *_, function = (node for node in tree.body if isinstance(node, ast.FunctionDef))
    module, own = ast.get_docstring(tree), ast.get_docstring(function)
    assert module is not None and own is not None
    return module, own


SCALED = """\
op scaled(x[n,(g c),*q], w[g], t[n]: int, b[g]=0; groups=size(g), eps=1e-5, \
reduction=mean|none) -> mean: m | none: y
y[n,(g c),*q] = (x[n,(g c),*q]*w[g] + b[g])/(t[n] + eps)
m[g] = mean[n,c,*q](y[n,(g c),*q])
"""

FUNCTION = """\
Returns the tensor m[g] (reduction="mean") or y[n,(g c),*q] ("none"):

    y[n,(g c),*q] = (x[n,(g c),*q]·w[g] + b[g])/(t[n] + eps)
    m[g] = mean[n,c,*q](y[n,(g c),*q])

Args:
    x[n, (g c), *q]: float
    w[g]: float
    t[n]: int64
    b[g]: float; None means zeros
    groups: size of index g
    eps: float
    reduction: "mean" or "none"

Raises:
    TypeError: x, w or b is not a floating-point tensor; t is not an int64 tensor;
        groups is not an integer; eps is not a number
    ValueError: x, w, t or b has the wrong number of axes; groups is not positive;
        the tensors are on different devices; the size of axis (g c) of x is not
        divisible by groups; the sizes of index n differ; w or b has an axis of the
        wrong size; reduction is not one of its options; eps is too large for
        float64"""


def test_the_docstring_of_a_function():
    module, function = docs(source(parse(SCALED)))
    assert function == FUNCTION
    assert 'Gradients for reduction="mean", where G is the cotangent of m:\n\n' in module
    assert 'Gradients for reduction="none", where G is the cotangent of y:\n\n' in module


AXES = """\
Returns the tensors y[*p,*q] and z[*p,*q]:

    y[*p,*q] = Σₖ x[*p,k,*q]·s
    z[*p,*q] = Σₖ x[*p,k,*q]²

Args:
    x[*p, k, *q]: float
    s: float; None means 2
    dim: position of axis k
    keepdim: True keeps axis k, with size 1

Raises:
    TypeError: x or s is not a floating-point tensor; keepdim is not a bool; dim is
        not an integer
    ValueError: x or s has the wrong number of axes; dim is not the position of axis
        k; the tensors are on different devices"""


def test_axes_flags_and_several_outputs():
    op = parse(
        "op f(x[*p,k,*q], s=2; dim=axis(k), keepdim=keep(k)) -> y, z\n"
        "y[*p,*q] = sum[k](x[*p,k,*q]*s)\nz[*p,*q] = sum[k](x[*p,k,*q]**2)"
    )
    module, function = docs(source(op))
    assert function == AXES
    assert "Gradients, where G_y is the cotangent of y and G_z is the cotangent of z:" in module


def test_only_errors_that_are_raised_are_listed():
    _, function = docs(source(parse("y[*p] = exp(x[*p])")))
    assert function.endswith("Raises:\n    TypeError: x is not a floating-point tensor")


def test_names_that_the_code_has_too():
    """The function and its docstring keep the names of the specification."""
    op = parse(
        "op f(size[n], all[n]; stride=1, padding=0) -> y\ny[n] = size[n]*all[n]*stride**padding"
    )
    _, function = docs(source(op))
    assert "size or all is not a floating-point tensor" in function
    with pytest.raises(TypeError, match="f: all must be a tensor, not int"):
        load(op)(torch.ones(2), 2)


JOINT = """\
Returns the tensor y[n] and a dict of the gradients by name:

    y[n] = x[n]²·w[n]

Args:
    x[n]: float
    w[n]: float; None means 0.5 everywhere
    G: cotangent of y[n]

Raises:
    TypeError: x or w is not a floating-point tensor; the dtype of w differs from
        that of x; G is not a tensor
    ValueError: x or w has the wrong number of axes; the tensors are on different
        devices; the sizes of index n differ; G does not have the shape of y"""


def test_the_docstring_of_a_joint_function():
    op = parse("op f(x[n], w[n]=0.5) -> y\ny[n] = x[n]**2*w[n]")
    module, function = docs(value_and_grad_source(op))
    assert function == JOINT
    assert "\n\nGradients, where G is the cotangent of y:\n\n    grad_x[n] = " in module
    module, function = docs(value_and_grad_source(parse("L = sum[n](x[n]**2)")))
    assert "\n\nGradients:\n\n    grad_x[n] = " in module
    assert "G:" not in function and "ValueError: x has the wrong number of axes" in function


def test_a_block_is_an_argument():
    op = parse("op f(x[n,d], w[d]) -> y\ny[n] = sum[d](x[n,d]*w[d])**2")
    module, function = docs(source(op, blocks="n"))
    assert "\n\nComputed in blocks of index n.\n\n" in module
    assert (
        "    block: number of positions of n computed at a time; None means as many as fit\n"
        "        2**21 elements per tensor of a block, or all of them in compiled code\n\n"
    ) in function
    assert "; block is not an integer" in function and "; block is not positive" in function
    with pytest.raises(ValueError, match="f: block must be positive, not 0"):
        load(op, blocks="n")(torch.ones(2, 3), torch.ones(3), block=0)


@pytest.mark.parametrize(
    ("declared", "line"),
    [
        ("m[n]=1", "m[n]: float; None means ones"),
        ("m[n]=-inf", "m[n]: float; None means -inf everywhere"),
        ("m[n]=1/3", "m[n]: float; None means 0.333333333333 everywhere"),
        ("m=0", "m: float; None means 0"),
        ("m[n]: int = 2", "m[n]: int64; None means 2 everywhere"),
        ("m[n]: bool = 1", "m[n]: bool; None means True everywhere"),
    ],
)
def test_the_meaning_of_none(declared, line):
    read = (
        "where(m[n], x[n], 0)"
        if "bool" in declared
        else "exp(x[n])*m" + "[n]" * ("[n]" in declared)
    )
    _, function = docs(source(parse(f"op f(x[n], {declared}) -> y\ny[n] = {read}")))
    assert f"\n    {line}\n\nRaises:" in function
