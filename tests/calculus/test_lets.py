"""Let-definitions: in order, equal reductions once, read at any positions."""

import pytest
import torch
from kit.each import each_row
from kit.equations import flat, index

from derive import load, parse
from derive.algebra.expr import Access, Index, Reduce, num
from derive.algebra.poly import Poly, atom, make_term, poly
from derive.calculus.build_lets import flatten_operation
from derive.calculus.lets import Let, Lets, inline, is_named_sum, layout, scaled_call, tensors_of

i, j = index("i"), index("j")
A, x = Access("A", (i, j)), Access("x", (i,))


def test_the_body_of_a_let_is_read_at_any_positions():
    let = Let("h", (i, j), poly([make_term(2, (), (A,))]))
    assert let.body_at((i, num(0))) is poly([make_term(2, (), (Access("A", (i, num(0))),))])
    assert let.access is Access("h", (i, j))


def test_a_name_is_replaced_by_what_it_is_short_for():
    let = Let("h", (i,), atom(x))
    p = poly([make_term(3, (), (Access("h", (i,)), x))])
    found = inline(p, let)
    assert isinstance(found, Poly) and "h" not in repr(found)
    assert inline(atom(x), let) is atom(x)


def test_equal_reductions_have_one_name():
    k = Index("k'", "j")
    lets = Lets({}, {"A", "x"})
    one = lets.reduction("max", (j,), atom(A))
    other = lets.reduction("max", (k,), atom(Access("A", (i, k))))
    assert one is other
    assert len(list(lets)) == 1


def test_axes_are_in_the_order_of_the_largest_access():
    assert layout(flat(Reduce("sum", (), A))[0]) == (i, j)
    assert layout(atom(A), (j,)) == (i,)
    assert tensors_of((x, A)) == tensors_of((A, x)) == ("A", "x")


@pytest.mark.parametrize(
    ("kind", "internal", "named"),
    [("sum", True, True), ("max", True, False), ("sum", False, False)],
)
def test_a_named_sum_is_one_of_the_engine(kind, internal, named):
    assert is_named_sum(Let("u", (i,), atom(x), kind, internal=internal)) == named


BODIES = {
    "tanh(x[n])": "tanh",
    "3*tanh(x[n])": "tanh",
    "pi*size(n)*exp(x[n])": "exp",
    "c*tanh(x[n]/c)": "tanh",
    "tanh(x[n]/c)/c": "tanh",
    "tanh(x[n])/size(m)": "tanh",
    # c and the size of another axis may be 0, z is a tensor, the others are no such product.
    "c*tanh(x[n])": None,
    "size(m)*tanh(x[n])": None,
    "z[n]*tanh(x[n])": None,
    "tanh(x[n]) + 1": None,
    "tanh(x[n])*sin(x[n])": None,
    "sum[n](tanh(x[n]))*z[n]": None,
}


@each_row("body", BODIES)
def test_the_function_of_a_multiple(body):
    parameters = "; c=2.0" if "c" in body.replace("exp", "") else ""
    op = parse(f"op f(x[n], z[n], w[m]{parameters}) -> y\ny[n] = {body} + 0*z[n]*x[n]*sum[m](w[m])")
    found = scaled_call(flatten_operation(op)["y"].body)
    assert (None if found is None else found[0].function) == BODIES[body]


def test_a_multiple_of_no_elements_has_a_gradient_of_zeros():
    f = load(parse("op f(x[n], w[m]) -> y, z\ny[n] = size(m)*tanh(x[n]); z = sum[m](w[m])"))
    for count in (0, 2):
        x = torch.tensor([0.3, -1.2, 2.0], requires_grad=True)
        w = torch.ones(count, requires_grad=True)
        y, _ = f(x, w)
        (ours,) = torch.autograd.grad(y.sum(), x)
        torch.testing.assert_close(ours, count * (1 - x.detach().tanh().square()))
