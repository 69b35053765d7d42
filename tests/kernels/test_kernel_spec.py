"""A row: what its equation is of, and the code of its call."""

import numpy as np
import pytest
from kit.lines import made, named, run

from derive import parse, source
from derive.algebra.expr import Access
from derive.algebra.poly import add, atom, constant
from derive.calculus.build_lets import flatten_operation
from derive.kernels.kernel_spec import KernelSpec, as_poly, expand_names, instantiate_atoms
from derive.program.torch_ir import Literal, Name, text

SHRINK = KernelSpec(
    "shrunk", "op f(g, x; t=0.5) -> dx\nu = exp(t*x)\ndx = g*u", "torch.f(g, x, t, mode='a')", "g"
)
SUMMED = KernelSpec("summed", "y[i] = x[i]/sum[j](exp(x[j]))", "torch.g(x, i, x.dtype)")


def test_arguments_are_told_in_the_order_of_the_equation():
    assert SHRINK.arguments == ("g", "x", "t")
    assert SHRINK.functions == {"exp"}
    assert SHRINK.along == ()
    assert [i.name for i in SUMMED.along] == ["i"]


def test_the_call_is_of_any_code():
    code = SHRINK.code({"g": Name("G"), "x": Name("X"), "t": Literal("3")})
    assert text(code) == 'torch.f(G, X, 3, mode="a")'
    assert text(SUMMED.code({"x": Name("X"), "i": Literal("-1")})) == "torch.g(X, -1, X.dtype)"


def test_an_equation_is_told_in_one_line():
    assert SHRINK.states == "u = exp(t*x); dx = g*u"


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


SHRUNK = "op f(x[i]; w=0.5) -> y\ny[i] = where(abs(x[i]) <= w, 0, x[i] - w*sign(x[i]))"
HUBER = (
    "op f(x[i,j], t[j]; d=1.0) -> y\ne[i,j] = x[i,j] - t[j]\n"
    "y[i,j] = where(abs(e[i,j]) <= d, e[i,j]**2/2, d*(abs(e[i,j]) - d/2))"
)
BOUNDED = "op f(x[i]; a=-1.0, b=1.0) -> y\ny[i] = where(x[i] <= a, a, where(x[i] >= b, b, x[i]))"
NUMBERS = {
    SHRUNK: ("softshrink", ({"w": 0.3}, {"w": 0.0}, {"w": -0.3})),
    HUBER: ("huber_loss", ({"d": 0.7}, {"d": 0.0}, {"d": -0.7})),
    BOUNDED: ("hardtanh", ({"a": -0.5, "b": 0.25}, {"a": 0.5, "b": -0.25})),
}


@pytest.mark.parametrize("text", NUMBERS, ids=named)
def test_any_number(text):
    name, given = NUMBERS[text]
    op = made(text)
    assert name in source(op)
    shapes = {"i": 5, "j": 3}
    for parameters in given:
        random = np.random.default_rng(1)
        tensors = {t.name: random.normal(size=[shapes[i.name] for i in t.axes]) for t in op.inputs}
        run(text, tensors, **parameters)


def test_a_known_number_is_in_it_or_not():
    plain = "op f(x[i]) -> y\ny[i] = where(abs(x[i]) <= {0}, 0, x[i] - {0}*sign(x[i]))"
    code = source(made(plain.format("0.25")))
    assert "softshrink(x, 0.25)" in code
    assert " else " not in code.partition("def forward(")[2].partition("def setup_context")[0]
    assert "softshrink" not in source(made(plain.format("(-0.25)")))


def test_what_stands_in_for_a_kernel_is_computed_there_alone():
    code = source(made(HUBER)).partition("def forward(")[2].partition("def setup_context")[0]
    assert all("if" in line for line in code.splitlines() if ".abs()" in line)
