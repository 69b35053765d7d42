"""Which name is what: each stands for one thing, found by its use or declared."""

import warnings

import pytest

from derive import SpecError, parse


def kinds(op):
    return {t.name: t.kind for t in op.inputs}


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


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("op f(x[i], x[j]) -> y; y[i] = x[i]", "x"),
        ("op f(x[i]) -> y; y[i] = x[i]; y[i] = 2*x[i]", "y"),
        ("op f(i[i]) -> y; y[i] = i[i]", "i"),
        ("op f(x[i]; x=3) -> y; y[i] = x[i]", "x"),
        ("op f(x[i]) -> y; x[i] = x[i]**2; y[i] = x[i]", "x"),
    ],
)
def test_one_name_is_one_thing(text, says):
    with pytest.raises(SpecError, match=rf"\b{says}\b"):
        parse(text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("y[i] = max(x[i], z[i])", "maximum"),
        ("y[i] = softplsu(x[i])", "softplus"),
        ("y[i] = exp[k](x[k])", "exp takes no indices"),
        ("y[i] = smu[k](x[k])", "sum"),
    ],
)
def test_the_nearest_thing_is_named(text, says):
    with pytest.raises(SpecError, match=says):
        parse(text)
