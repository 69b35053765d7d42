"""Instances of equations that read at the place which an integer tensor says."""

import re

import pytest
from kit.each import each_row
from kit.texts import source

from derive import parse
from derive.algebra.expr import Index, walk
from derive.calculus.build_lets import flatten_operation
from derive.kernels.axis_patterns import GatherPattern
from derive.kernels.kernel_spec import Kernel
from derive.kernels.table import KERNELS

FLOATS = {"x": "nc", "a": "n", "w": "c", "v": "c", "z": "nkc", "g": "n", "q": ""}


def floats(name):
    if name == "real":
        return ()
    return tuple(Index(i, i) for i in FLOATS[name]) if name in FLOATS else None


INPUTS = (
    *("x[n,c]", "a[n]", "w[c]", "v[c]", "t[n]: int", "z[n,k,c]", "s[k,n]: int", "u[n,c]: int"),
    *("g[n]", "q"),
)
NUMBERS = ("none=-1", "real=0.5")


def operation(equation):
    """An operation of what the equation names."""
    names = set(re.findall(r"\w+", equation.partition("]")[2] or equation))
    read = ", ".join(x for x in INPUTS if x[0] in names)
    numbers = ", ".join(x for x in NUMBERS if x.partition("=")[0] in names)
    return parse(f"op f({read}; {numbers}) -> y\n{equation}")


def kernels(row, equation):
    """The kernels that are all of the equation but for what stands beside them."""
    p = flatten_operation(operation(equation))["y"].body
    pattern = GatherPattern(KERNELS[row], floats)
    return [e for i in pattern.instances(p) for e in walk(i.made) if isinstance(e, Kernel)]


@pytest.mark.parametrize(
    "body",
    (
        "where(t[n] != none, -w[t[n]]*x[n,t[n]], 0)",
        "where(t[n] != 3, 2*x[n,t[n]], 0)",
        "none*where(t[n] != none, x[n,t[n]]*w[t[n]]/3, 0)",
    ),
)
def test_what_is_read_where_the_place_is_not_ignored(body):
    (found,) = kernels("nll_loss, unreduced", f"y[n] = {body}")
    assert found.along == found.binders


def test_the_axes_of_a_place_may_stand_in_any_order():
    (found,) = kernels("nll_loss, unreduced", "y[k,n] = where(s[k,n] != none, z[n,k,s[k,n]], 0)")
    assert found.along[0].extent == "c"


def test_a_sum_of_all_is_a_sum_of_the_kernel():
    assert kernels("nll_loss, unreduced", "y = sum[n](where(t[n] != none, x[n,t[n]], 0))")


@each_row(
    "body",
    (
        "x[n,t[n]]",  # a read that nothing guards
        "where(t[n] == none, x[n,t[n]], 0)",
        "where(t[n] != real, x[n,t[n]], 0)",
        "where(t[n] != 0.5, x[n,t[n]], 0)",
        "where(t[n] != none and t[n] != 7, x[n,t[n]], 0)",
        "where(t[n] != none, a[n]*x[n,t[n]], 0)",  # a may be nan where nothing is read
        "where(t[n] != none, q*x[n,t[n]], 0)",
        "where(t[n] != none, x[n,t[n]] + a[n], 0)",
        "where(t[n] != none, z[n,0,t[n]], 0)",
        "where(t[n] != none, z[n,n,t[n]], 0)",
        "where(t[n] != none, w[t[n]], 0)",
        "where(t[n] != none, u[n,t[n]], 0)",
    ),
)
def test_what_is_no_instance(body):
    assert not kernels("nll_loss, unreduced", f"y[n] = {body}")


@pytest.mark.parametrize("own", ("g[n]", "2*g[n]*a[n]*w[t[n]]", "q", "g[n]*w[t[n]]*v[t[n]]"))
def test_the_cotangent_is_all_that_stands_beside(own):
    op = operation(f"y[n] = where(t[n] != none, {own}*x[n,t[n]], 0)")
    assert "grad_x = rt.nll_loss_backward(" in source(op)


def test_a_sum_over_the_places_is_no_instance():
    op = operation("y[n] = where(t[n] != none, g[n]*w[t[n]], 0)")
    assert "rt.nll_loss_backward" not in source(op)
