"""The docstrings of generated functions and modules, to exact text."""

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
Returns m[g] (reduction="mean") or y[n,(g c),*q] ("none") of x[n,(g c),*q], w[g],
t[n] (int64) and b[g] (None means zeros).

groups is the size of index g."""


def test_the_docstring_of_a_function():
    module, function = docs(source(parse(SCALED)))
    assert function == FUNCTION
    assert 'Gradients for reduction="mean", where G is the cotangent of m:\n\n' in module
    assert 'Gradients for reduction="none", where G is the cotangent of y:\n\n' in module


REDUCED = """
Gradients, where G is the cotangent of y:

    grad_x[n,*q] = 3·G[n,*q]·x[n,*q]²

For by="a" G is the cotangent of s divided by size(n), for "b" that of t, for "d"
that of m divided by the number of elements.
"""


def test_gradients_of_reductions_are_those_of_what_is_reduced():
    op = parse(
        "op f(x[n,*q]; by=a|b|c|d) -> a: s | b: t | c: y | d: m\ny[n,*q] = x[n,*q]**3\n"
        "s = sum[n,*q](y[n,*q])/size(n)\nt = sum[n,*q](y[n,*q])\nm = mean[n,*q](y[n,*q])"
    )
    assert docs(source(op))[0].endswith(REDUCED.rstrip())


AXES = """\
Returns y[*p,*q] and z[*p,*q] of x[*p,k,*q] and s (None means 2).

dim is the position of axis k and keepdim keeps axis k with size 1."""


def test_axes_flags_and_several_outputs():
    op = parse(
        "op f(x[*p,k,*q], s=2; dim=axis(k), keepdim=keep(k)) -> y, z\n"
        "y[*p,*q] = sum[k](x[*p,k,*q]*s)\nz[*p,*q] = sum[k](x[*p,k,*q]**2)"
    )
    module, function = docs(source(op))
    assert function == AXES
    assert "Gradients, where G_y is the cotangent of y and G_z is the cotangent of z:" in module


def test_a_function_without_parameters_needs_little():
    _, function = docs(source(parse("y[*p] = exp(x[*p])")))
    assert function == "Returns y[*p] of x[*p]."


def test_a_composite_axis_stays_on_its_line():
    names = [f"a_tensor_of_a_long_name_{n}" for n in range(5)]
    heads = ", ".join(f"{name}[(g c)]" for name in names)
    products = "*".join(f"{name}[(g c)]" for name in names)
    _, function = docs(source(parse(f"op f({heads}; groups=size(g)) -> y\ny[g,c] = {products}")))
    assert function.count("[(g c)]") == 5


def test_the_bounds_of_numbers():
    _, function = docs(source(parse("op f(x[n]; a=1, a > 0, a <= 2) -> y\ny[n] = x[n]*a")))
    assert "\n\na is greater than 0 and at most 2." in function


def test_names_that_the_code_has_too():
    """The function and its docstring keep the names of the specification."""
    op = parse(
        "op f(size[n], all[n]; stride=1, padding=0) -> y\ny[n] = size[n]*all[n]*stride**padding"
    )
    _, function = docs(source(op))
    assert function == "Returns y[n] of size[n] and all[n]."
    with pytest.raises(TypeError, match="f: all must be a tensor, not int"):
        load(op)(torch.ones(2), 2)


JOINT = """\
Returns y[n] and a dict of the gradients by name, of x[n], w[n] (None means 0.5
everywhere) and the cotangent G of y[n]."""


def test_the_docstring_of_a_joint_function():
    op = parse("op f(x[n], w[n]=0.5) -> y\ny[n] = x[n]**2*w[n]")
    module, function = docs(value_and_grad_source(op))
    assert function == JOINT
    assert "\n\nGradients, where G is the cotangent of y:\n\n    grad_x[n] = " in module
    module, function = docs(value_and_grad_source(parse("L = sum[n](x[n]**2)")))
    assert "\n\nGradients:\n\n    grad_x[n] = " in module
    assert function == "Returns L and a dict of the gradients by name, of x[n]."


def test_a_block_is_an_argument():
    op = parse("op f(x[n,d], w[d]) -> y\ny[n] = sum[d](x[n,d]*w[d])**2")
    module, function = docs(source(op, blocks="n"))
    assert "\n\nComputed in blocks of index n.\n\n" in module
    assert (
        "\n\nblock is the number of positions of n computed at a time; None means as many as fit\n"
        "2**21 elements per tensor of a block, or all of them in compiled code."
    ) in function
    with pytest.raises(ValueError, match="f: block must be positive, not 0"):
        load(op, blocks="n")(torch.ones(2, 3), torch.ones(3), block=0)


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ("m[n]=1", "m[n] (None means ones)"),
        ("m[n]=-inf", "m[n] (None means -inf everywhere)"),
        ("m[n]=1/3", "m[n] (None means 0.333333333333 everywhere)"),
        ("m=0", "m (None means 0)"),
        ("m[n]: int = 2", "m[n] (int64, None means 2 everywhere)"),
        ("m[n]: bool = 1", "m[n] (bool, None means True everywhere)"),
    ],
)
def test_the_meaning_of_none(declared, words):
    read = (
        "where(m[n], x[n], 0)"
        if "bool" in declared
        else "exp(x[n])*m" + "[n]" * ("[n]" in declared)
    )
    _, function = docs(source(parse(f"op f(x[n], {declared}) -> y\ny[n] = {read}")))
    assert function == f"Returns y[n] of x[n] and {words}."
