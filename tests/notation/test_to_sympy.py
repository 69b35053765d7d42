"""The algebra as SymPy: numbers of it are those of the formula."""

import pytest
import sympy

import derive
from derive.algebra.expr import Access, Call, Index, Param, Pow, Reduce, num
from derive.notation.sympy_form import to_sympy

i, k = Index("i", "i"), Index("k", "k")
x = Access("x", (i,))


def test_nodes_are_those_of_sympy():
    found = to_sympy(Call("exp", (x,)) * num(2) + Pow(Param("a"), num(-1)))
    assert isinstance(found, sympy.Expr)
    value = found.subs({next(iter(found.atoms(sympy.Indexed))): 0, sympy.Symbol("a"): 4})
    assert float(value) == pytest.approx(2.25)


def test_a_sum_binds_its_index():
    found = to_sympy(Reduce("sum", (k,), Access("A", (i, k))))
    assert isinstance(found, sympy.Sum)
    assert {s.name for s in found.free_symbols if isinstance(s, sympy.Symbol)} >= {"i"}


def test_a_formula_gives_its_sympy_form():
    formula = derive.derivation(derive.parse("y[i] = x[i]**2")).gradients["x"]
    assert "2" in str(formula.sympy())


@pytest.mark.parametrize("condition", ["m", "not m"])
def test_a_value_under_a_condition_in_a_condition(condition):
    """SymPy folds the inner one into the outer, and asks where it holds."""
    text = f"op f(x[i], m: bool) -> y; y[i] = where(where({condition}, x[i], 1) > 2, 3, x[i])"
    (equation,) = derive.parse(text).equations
    found = to_sympy(equation.body)
    assert {sympy.Integer(n) for n in (2, 3)} <= found.atoms(sympy.Integer)
