"""Nested equations to sums of products, of the same value; reductions become lets."""

import warnings

import numpy as np
from kit.each import each_row
from kit.equations import SIZES, evaluated, flat, index, samples

from derive.algebra.expr import Access, Add, Call, Iverson, Mul, Pow, Reduce, Rel, Where, num
from derive.algebra.interpret import array
from derive.calculus.build_lets import flatten_operation
from derive.notation.specification import parse

i, j = index("i"), index("j")
x, y, A = Access("x", (i,)), Access("y", (j,)), Access("A", (i, j))
FORMS = {
    "a product of sums": Mul((Add((x, num(1))), Add((x, num(2))))),
    "a square": Pow(Add((x, num(-1))), num(2)),
    "a sum of a product": Reduce("sum", (j,), Mul((A, y))),
    "a mean": Reduce("mean", (j,), A),
    "a maximum": Mul((x, Reduce("max", (j,), A))),
    "a branch": Where(Rel(">", x, num(1)), Call("log", (x,)), x),
    "a bracket": Mul((Iverson(Rel("<", x, num(1))), x)),
    "a quotient": Mul((x, Pow(Add((num(1), x)), num(-1)))),
}


@each_row("name", FORMS)
def test_the_flat_form_has_the_same_value(name):
    e = FORMS[name]
    tensors = samples()
    want = array((i,), e, tensors, SIZES, {})
    p, lets = flat(e)
    np.testing.assert_allclose(evaluated((i,), p, tensors, lets), want, rtol=1e-12)


def test_a_sum_of_outer_products_is_contracted_term_by_term():
    """No tensor has all three axes, unless a factor has them too."""
    text = "op f(x[p,t], y[p,t], c[k,p], s[k,p], w[p], z[k,p,t]) -> o\no[k,t] = sum[p]({})"
    for body, whole in (
        ("w[p]*(x[p,t]*c[k,p] - y[p,t]*s[k,p])", False),
        ("w[p]*(x[p,t] - 1)*(x[p,t]*c[k,p] + s[k,p]/2)", False),
        ("z[k,p,t]*(x[p,t]*c[k,p] - y[p,t]*s[k,p])", True),
        ("(x[p,t]*c[k,p] - y[p,t]*s[k,p])**2", True),
        ("exp(w[p]*(x[p,t]*c[k,p] - y[p,t]*s[k,p]))", True),
        ("where(w[p]*(x[p,t]*c[k,p] - y[p,t]*s[k,p]) > 0, w[p], 0)", True),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            lets = flatten_operation(parse(text.format(body)))
        assert any(len(let.formals) == 3 for let in lets) is whole, body


def test_terms_that_are_alike_are_one():
    terms = flat(Add((Mul((num(2), x)), Mul((num(3), x)), num(1))))[0].terms
    assert [t.coef for t in terms] == [1, 5] or [t.coef for t in terms] == [5, 1]


def test_a_reduction_is_a_let_and_equal_ones_are_one():
    top = Reduce("max", (j,), A)
    p, lets = flat(Add((Mul((x, top)), Call("exp", (top,)))))
    assert [let.kind for let in lets] == ["max"]
    assert len(p.terms) == 2


def test_a_comparison_of_positions_is_expanded_and_names_nothing():
    op = parse("op f(x[n,h], at[n]: int) -> y\ny[n,h] = [at[n] == 3*(h%2) + 2*(h - n)]*x[n,h]")
    (let,) = flatten_operation(op)
    (term,) = let.body.terms
    (bracket,) = (f for f in term.factors if isinstance(f, Iverson))
    assert len(bracket.condition.right.terms) == 3  # 5*h - 6*int(h/2) - 2*n
