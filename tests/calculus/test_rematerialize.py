"""A name of the forward is not read where its parts make a sum that is there anyway."""

import pytest
import torch
from kit.equations import cost, flat
from kit.lowered import assert_right

import derive
from derive.algebra.expr import Access, Call, Index, Mul, Reduce
from derive.calculus.rematerialize import operation_costs
from derive.check.checks import checks_of

GAIN = (
    "op f(x[i,k], g{axes}) -> y\nn[i] = sqrt(sum[k](x[i,k]**2) + 1); y[i,k] = g{axes}*x[i,k]/n[i]"
)


def gradient(text: str, of: str = "x") -> str:
    return str(derive.derivation(derive.parse(text)).gradients[of])


def test_a_sum_that_the_gradient_of_a_gain_has_is_there():
    assert "Σₖ′ G[i,k′]·x[i,k′]" in gradient(GAIN.format(axes="[i]"))


@pytest.mark.parametrize("axes", ["[i]", "[k]", ""])
def test_an_output_is_not_kept_for_what_its_parts_give(axes):
    assert "y" not in gradient(GAIN.format(axes=axes))


OUTPUTS = {
    "x[i,k]*sigmoid(x[i,k])": "G[i,k]·sigmoid(x[i,k])·(1 + x[i,k]·(1 − sigmoid(x[i,k])))",
    "x[i,k]/(1 + abs(x[i,k]))": "G[i,k]/(1 + |x[i,k]|)²",
    "abs(x[i,k])/(1 + abs(x[i,k]))": "G[i,k]·sign(x[i,k])/(1 + |x[i,k]|)²",
    "x[i,k]*abs(x[i,k])": "2·G[i,k]·|x[i,k]|",
    "exp(-x[i,k]**2)": "−2·G[i,k]·x[i,k]·y[i,k]",
}


@pytest.mark.parametrize(("y", "expected"), OUTPUTS.items())
def test_an_output_is_not_kept_for_one_more_product(y, expected):
    """A function is not computed again."""
    assert gradient(f"op f(x[i,k]) -> y\ny[i,k] = {y}") == f"grad_x[i,k] = {expected}"


def test_what_is_not_read_anyway_is_not_read_in_place_of_a_name():
    normalised = "op f(x[i,k]) -> y\nn[i] = sqrt(sum[k](x[i,k]**2) + 1); y[i,k] = x[i,k]/n[i]"
    assert "x" not in gradient(normalised).partition("=")[2]


@pytest.mark.parametrize("axes", ["[i]", "[k]", "", "[i,k]"])
def test_gradients_are_right(axes):
    text = GAIN.format(axes=axes)
    assert_right(text)
    shape = {"": (), "[i]": (3,), "[k]": (4,), "[i,k]": (3, 4)}[axes]
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    g = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    f = derive.load(derive.parse(text))
    assert torch.autograd.gradcheck(f, (x, g)) and torch.autograd.gradgradcheck(f, (x, g))


def test_the_steps_say_so():
    steps = derive.derivation(derive.parse(GAIN.format(axes="[i]"))).gradients["x"].steps
    assert any("y is what it is made of" in str(step) for step in steps)


i, j, k = (Index(name, name) for name in "ijk")
A, B, x = Access("A", (i, j)), Access("B", (j, k)), Access("x", (i,))


def of(e):
    return flat(e)[0]


def test_a_contraction_costs_by_all_of_its_indices_and_a_function_by_its_rank():
    product = of(Reduce("sum", (j,), Mul((A, B))))
    assert cost([product]) >= 32.0**3
    assert cost([of(Call("exp", (A,)))]) == 32.0**2
    assert cost([of(A)]) == 0


def test_an_axis_of_a_constant_size_costs_that_size():
    product = of(Reduce("sum", (j,), Mul((A, B))))
    assert sum(operation_costs(product, {"j": 2}).values()) == cost([product]) / 16


def test_weights_of_neighbors_have_adjoints_that_share_a_read():
    """Bilinear interpolation: x is read at the four neighbors once for both weights."""
    text = (
        "op f(x[h,w,c], p[k], q[k], r[k]: int, s[k]: int; size(a)=2, size(b)=2) -> y\n"
        "u[k,a] = where(a == 1, p[k] - r[k], 1 - p[k] + r[k])\n"
        "v[k,b] = where(b == 1, q[k] - s[k], 1 - q[k] + s[k])\n"
        "y[c,k] = sum[a,b | 0 <= r[k] + a and r[k] + a < size(h) and 0 <= s[k] + b"
        " and s[k] + b < size(w)](x[r[k]+a,s[k]+b,c]*u[k,a]*v[k,b])"
    )
    op = derive.parse(text)
    d = derive.derivation(op)
    assert {a.name for a in d.adjoints} == {"grad_u", "grad_v"}
    assert str(d.gradients["p"]) == "grad_p[k] = grad_u[k,1] − grad_u[k,0]"
    assert not [c for c in checks_of(op, derive.load(op)) if not c.ok]


def test_what_two_formulas_have_in_common_is_paid_once():
    e = of(Call("exp", (A,)))
    twice = of(Call("exp", (A,)) * x)
    assert cost([e, twice]) == cost([twice])
    assert set(operation_costs(e)) < set(operation_costs(twice))


def test_the_names_of_bound_indices_do_not_matter():
    m = Index("m", "j")
    one = of(Reduce("sum", (j,), Call("exp", (A,))))
    renamed = of(Reduce("sum", (m,), Call("exp", (Access("A", (i, m)),))))
    assert cost([one, renamed]) == cost([one])
