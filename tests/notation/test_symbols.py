"""Which name is what: each stands for one thing, found by its use or declared."""

import warnings

from derive import parse


def test_inputs_come_in_order_of_first_use_where_none_are_declared():
    op = parse("y[i] = sum[k](B[k,i]*A[i,k]) + c[i]")
    assert [t.name for t in op.inputs] == ["B", "A", "c"]
    op = parse("op f(c[i], A[i,k], B[k,i]) -> y\ny[i] = sum[k](B[k,i]*A[i,k]) + c[i]")
    assert [t.name for t in op.inputs] == ["c", "A", "B"]


def test_an_equation_is_no_input():
    op = parse("h[i] = exp(x[i])\ny[i] = h[i]*x[i]")
    assert [t.name for t in op.inputs] == ["x"]
    assert [e.name for e in op.equations] == ["h", "y"]


def test_an_input_that_nothing_reads_is_warned_of():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        parse("op f(x[i], z[i]) -> y; y[i] = x[i]")
    assert any("z" in str(w.message) for w in caught)
