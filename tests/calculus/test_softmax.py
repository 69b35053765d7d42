"""Shares and their logarithms are found by structure, and what is compared with its mean."""

import pytest
from kit.equations import index

from derive import derivation, load, parse
from derive.algebra.expr import Access, walk
from derive.algebra.poly import Term, make_term
from derive.calculus.build_lets import flatten_operation
from derive.calculus.softmax import NormalizedExp, recognise, sums_apart
from derive.check.checks import checks_of


def found(line, head="x[i,j], m[i,j]: bool"):
    op = parse(f"op f({head}) -> y\n{line}")
    lets = flatten_operation(op)
    body = recognise(lets["y"].body, lets.get, lets.get)
    return [e for e in walk(body) if isinstance(e, NormalizedExp)]


def test_a_softmax_is_exp_of_what_its_logsumexp_is_taken_off():
    (normal,) = found("y[i,j] = exp(x[i,j])/sum[k](exp(x[i,k]))", "x[i,j]")
    assert normal.kind == "softmax" and normal.index.extent == "j"
    assert normal.condition is None


def test_a_log_softmax_is_the_difference():
    (normal,) = found("y[i,j] = x[i,j] - log(sum[k](exp(x[i,k])))", "x[i,j]")
    assert normal.kind == "log_softmax"


@pytest.mark.parametrize(
    "equations",
    [
        "b[i,j] = x[i,j] - max[k](x[i,k])\ny[i,j] = softmax[j](b[i,j])",
        "y[i,j] = softmax[j](x[i,j] - mean[k](x[i,k]))",
        "m[i] = max[k](x[i,k])\ny[i,j] = exp(x[i,j] - m[i])/sum[k](exp(x[i,k] - m[i]))",
        "b[i,j] = x[i,j] - max[k](x[i,k])\ny[i,j] = log_softmax[j](b[i,j])",
    ],
)
def test_a_shift_of_a_row_leaves_its_softmax(equations):
    (normal,) = found(equations, "x[i,j]")
    assert [e.tensor for e in walk(normal.body) if isinstance(e, Access)] == ["x"]
    gradient = derivation(parse(f"op f(x[i,j]) -> y\n{equations}")).gradients["x"]
    assert "max" not in str(gradient) and "m[i]" not in str(gradient)


def test_the_condition_of_a_softmax_is_that_of_its_sum():
    (normal,) = found("y[i,j] = softmax[j | m[i,j]](x[i,j])")
    assert normal.condition is not None


def test_a_softmax_under_a_condition_is_read_where_others_imply_it():
    read = "y[i,j] = where({}, exp(x[i,j] - logsumexp[k | k <= i](x[i,k])), 0)"
    assert all(found(read.format(c), "x[i,j]") for c in ("j < i", "j == i"))
    assert not found(read.format("j <= i + 1"), "x[i,j]")


def test_what_is_summed_over_another_axis_is_none():
    assert found("y[i,j] = exp(x[i,j])/sum[k](exp(2*x[i,k]))", "x[i,j]") == []


i, j, k = index("i"), index("j"), index("k")


def test_sums_that_share_no_index_are_apart():
    A, y, z = Access("A", (i, j)), Access("y", (j,)), Access("z", (k,))
    t = make_term(1, (i, j, k), (A, y, z))
    assert isinstance(t, Term)
    found = [len(factors) for _, factors in sums_apart(t)]
    assert sorted(found) == [1, 2]


def test_the_gradient_of_a_softmax_is_a_difference_from_a_mean():
    op = parse("op f(a[n], v[n]) -> y\np[n] = exp(a[n])/sum[m](exp(a[m]))\ny = sum[n](p[n]*v[n])")
    found = str(derivation(op).gradients["a"])
    assert found == "grad_a[n] = G·p[n]·(v[n] − Σₙ′ v[n′]·p[n′])"


def test_a_sum_that_has_the_position_itself_is_no_value_of_a_mean():
    """Sum_k G[l',k]*y[l,k] in the mean over l' is not Sum_k G[l',k]*y[l',k]."""
    op = parse("op f(v[l], g[k], m[k]: bool) -> y\ny[l,k] = [m[k]]*(softmax[l](v[l])*g[k])")
    assert "value" not in str(derivation(op).gradients["v"])
    assert not [c for c in checks_of(op, load(op)) if not c.ok]
