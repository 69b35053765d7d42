"""Normalised exponentials are found by their structure, whatever they are called."""

from __future__ import annotations

from derive import parse
from derive.algebra.expr import walk
from derive.calculus.build_lets import flatten_operation
from derive.calculus.softmax_recognition import NormalizedExp, recognise


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


def test_the_condition_of_a_softmax_is_that_of_its_sum():
    (normal,) = found("y[i,j] = softmax[j | m[i,j]](x[i,j])")
    assert normal.condition is not None


def test_what_is_summed_over_another_axis_is_none():
    assert found("y[i,j] = exp(x[i,j])/sum[k](exp(2*x[i,k]))", "x[i,j]") == []
