"""A comparison of the two last indices leaves a triangle."""

import pytest
from kit.lines import made
from kit.lowered import assert_right
from kit.recognised import functions
from kit.unwritten import source_without_reuse

FORMS = {
    "y[n,i,j] = [j <= i]*x[n,i,j]**2": "y = x.square().tril()",
    "y[n,i,j] = [j < i]*x[n,i,j]**2": "y = x.square().tril(-1)",
    "y[n,i,j] = [j >= i]*x[n,i,j]**2": "y = x.square().triu()",
    "y[n,i,j] = [j > i + 1]*x[n,i,j]**2": "y = x.square().triu(2)",
    "y[n,i,j] = [j <= i + size(n)]*x[n,i,j]**2": "y = x.square().tril(x.shape[0])",
    # What the condition guards is not read.
    "y[n,i,j] = where(i >= j, exp(x[n,i,j]), 0)": None,
    # Of other axes, of two bounds, and of what has one of the indices.
    "y[n,i,j] = [n <= i]*x[n,i,j]**2": None,
    "y[n,i,j] = [i <= j and j <= i + 1]*x[n,i,j]**2": None,
    "y[n,i,j] = [2*i <= j]*x[n,i,j]**2": None,
    "y[n,i] = sum[j | j <= i](x[n,i,j]**2)": None,
    "y[n,j] = sum[i | j <= i](x[n,i,j])*2": None,
}


@pytest.mark.parametrize("equation", FORMS)
def test_one_side_of_a_diagonal_is_a_call(equation):
    text = f"op f(x[n,i,j]) -> y\n{equation}"
    if FORMS[equation] is not None:
        assert functions(source_without_reuse(made(text)))[0] == [FORMS[equation]]
    assert_right(text)


def test_an_infinite_value_beyond_the_diagonal_is_not_read():
    assert_right("op f(x[n,i,j]) -> y\ny[n,i,j] = where(i > j, log(x[n,i,j] - 0.4*[i > j]), 0)")
