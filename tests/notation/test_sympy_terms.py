"""SymPy expressions are what the text of the same form is."""

from fractions import Fraction

import pytest
import sympy
from sympy import Eq, IndexedBase, KroneckerDelta, Piecewise, Rational, symbols

import derive
from derive import SpecError
from derive.notation.sympy_terms import number

i, j = symbols("i j", integer=True)
x, y, A = map(IndexedBase, ("x", "y", "A"))


@pytest.mark.parametrize(
    ("e", "text"),
    [
        (sympy.exp(x[i]) / 2, "y[i] = exp(x[i])/2"),
        (sympy.sqrt(x[i]), "y[i] = sqrt(x[i])"),
        (Piecewise((x[i], x[i] > 0), (0, True)), "y[i] = where(x[i] > 0, x[i], 0)"),
        (sympy.Sum(A[i, j] * KroneckerDelta(i, j), j), "y[i] = sum[j](A[i,j]*[i == j])"),
    ],
)
def test_each_form_has_its_text(e, text):
    op = derive.Operation("f", Eq(y[i], e))
    axes = {"x": "x[i]", "A": "A[i,j]"}
    again = derive.parse(f"op f({', '.join(axes[t.name] for t in op.inputs)}) -> y\n{text}")
    assert [type(q.body) for q in op.equations] == [type(q.body) for q in again.equations]


def test_numbers_are_exact_and_floats_their_shortest_decimal():
    assert number(Rational(1, 3)).value == Fraction(1, 3)
    assert number(0.1).value == Fraction(1, 10)
    with pytest.raises(SpecError, match="not a number"):
        number(True)


def test_what_has_no_text_is_an_error():
    with pytest.raises(SpecError):
        derive.Operation("f", Eq(y[i], sympy.zeta(x[i])))
