"""Atoms replaced by sums: what comes out is flat."""

from derive import parse
from derive.algebra.expr import Access
from derive.algebra.poly import add, atom, constant
from derive.calculus.build_lets import flatten_operation
from derive.kernels.kernel_spec import as_poly, expand_names, instantiate_atoms


def body(text):
    lets = flatten_operation(parse(text))
    return expand_names(lets["y"].body, lets.definition)


def test_names_are_opened_all_the_way_down():
    lets = flatten_operation(parse("a[i] = x[i] + 1\nb[i] = 2*a[i]\ny[i] = b[i]*exp(b[i])"))
    found = expand_names(lets["y"].body, lets.definition)
    assert found is body("y[i] = (2*x[i] + 2)*exp(2*x[i] + 2)")


def test_products_are_distributed_and_powers_merged():
    x, one = Access("x", ()), constant(1)
    poly = body("y = z*x**2*(1 + x)**(-1/2)")
    made = instantiate_atoms(poly, lambda e: add(atom(x), one) if e is Access("z", ()) else None)
    assert made is body("y = (x + 1)*x**2*(1 + x)**(-1/2)")


def test_what_is_replaced_may_stand_in_a_sum():
    found = instantiate_atoms(body("y = sum[k](z*x[k])"), lambda e: _product(e))
    assert found is body("op f(x[k], a, b) -> y\ny = sum[k](a*x[k]) + sum[k](b*x[k])")


def _product(e):
    if e is Access("z", ()):
        return add(as_poly(Access("a", ())), as_poly(Access("b", ())))
    return None
