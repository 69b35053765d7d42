"""Bodies: names get their meaning, and what is composed its definition."""

import warnings

from derive import parse
from derive.algebra.expr import Access, Index, Iverson, Mul, Reduce, Rel, Size, Where


def body(text):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return parse(f"op f(x[i], A[i,j]; s=2) -> y; {text}").equations[-1].body


i, j = Index("i", "i"), Index("j", "j")


def test_a_reduction_binds_its_letters_and_takes_its_condition():
    found = body("y[i] = sum[j | j != i](A[i,j])")
    assert found is Reduce("sum", (j,), Access("A", (i, j)), Rel("!=", j, i))


def test_a_letter_that_is_bound_again_is_another():
    found = body("y[i] = x[i]*sum[i](x[i])")
    assert isinstance(found, Mul)
    (reduced,) = (a for a in found.args if isinstance(a, Reduce))
    assert reduced.indices[0] is not i and reduced.indices[0].extent == "i"


def test_a_bracket_is_0_or_1_and_where_a_choice():
    assert body("y[i] = [x[i] > 0]") is Iverson(Rel(">", Access("x", (i,)), body("y[i] = 0")))
    assert isinstance(body("y[i] = where(x[i] > 0, x[i], s)"), Where)


def test_a_size_is_a_number_and_a_mean_stays_one():
    assert body("y[i] = size(j)") is Size("j")
    found = body("y[i] = mean[j](A[i,j])")
    assert isinstance(found, Reduce) and found.kind == "mean"
