"""``int(floor(x))``: a position computed from floats, which keep their gradients."""

import warnings

import pytest
import torch
from kit.each import each_row
from sympy import Eq, IndexedBase, floor, symbols

import derive
from derive import DeriveWarning, Operation, SpecError, parse, to_int

LERP = (
    "op lerp(a[k], x[n]) -> y; y[n] = (1 - (x[n] - floor(x[n])))*a[int(floor(x[n]))] "
    "+ (x[n] - floor(x[n]))*a[int(floor(x[n])) + 1]"
)
NAMED = (
    "op lerp(a[k], x[n]) -> y; i[n] = int(floor(x[n])); "
    "y[n] = (1 - (x[n] - i[n]))*a[i[n]] + (x[n] - i[n])*a[i[n] + 1]"
)
BILINEAR = """op bilinear(img[h,w], u[n], v[n]) -> y
i[n] = int(floor(u[n]))
j[n] = int(floor(v[n]))
p[n] = u[n] - i[n]
q[n] = v[n] - j[n]
y[n] = (1-p[n])*(1-q[n])*img[i[n],j[n]] + p[n]*(1-q[n])*img[i[n]+1,j[n]] \
     + (1-p[n])*q[n]*img[i[n],j[n]+1] + p[n]*q[n]*img[i[n]+1,j[n]+1]
""".replace("\\\n", "")
BINS = (
    "op bins(x[n]; m=size(k)) -> y; i[n] = int(floor(x[n])); "
    "y[k] = sum[n | i[n] == k](1 - (x[n] - i[n])) + sum[n | i[n] + 1 == k](x[n] - i[n])"
)


def in_sympy() -> Operation:
    k, n = symbols("k n", integer=True)
    a, x, y = map(IndexedBase, "axy")
    at, rest = to_int(floor(x[n])), x[n] - floor(x[n])
    return Operation("lerp", Eq(y[n], (1 - rest) * a[at] + rest * a[at + 1]), inputs=[a[k], x[n]])


def lerp(a: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    i = x.floor().long()
    return (1 - (x - i)) * a[i] + (x - i) * a[i + 1]


def bilinear(img: torch.Tensor, u: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    i, j = u.floor().long(), v.floor().long()
    p, q = u - i, v - j
    upper = (1 - q) * img[i, j] + q * img[i, j + 1]
    return (1 - p) * upper + p * ((1 - q) * img[i + 1, j] + q * img[i + 1, j + 1])


def bins(x: torch.Tensor, m: int) -> torch.Tensor:
    i = x.floor().long()
    made = x.new_zeros(m).index_add(0, i, 1 - (x - i))
    return made.index_add(0, i + 1, x - i)


def same(op: Operation, expected, tensors, **parameters) -> None:
    """Value and gradients are those of plain torch."""
    given = [t.double().requires_grad_() for t in tensors]
    found, right = derive.load(op)(*given, **parameters), expected(*given, *parameters.values())
    torch.testing.assert_close(found, right)
    G = torch.randn_like(right)
    for one, other in zip(
        torch.autograd.grad(found, given, G), torch.autograd.grad(right, given, G), strict=True
    ):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("op", [parse(LERP), parse(NAMED), in_sympy()], ids=["in", "by", "sympy"])
def test_linear_interpolation(op):
    assert [t.kind for t in op.inputs] == ["float", "float"]
    same(op, lerp, (torch.randn(7), torch.rand(5) * 5.9))


def test_bilinear_interpolation():
    u, v = torch.rand(6) * 2.9, torch.rand(6) * 3.9
    same(parse(BILINEAR), bilinear, (torch.randn(4, 5), u, v))


def test_soft_bins_are_scattered():
    same(parse(BINS), bins, (torch.rand(9) * 3.9,), m=5)


def test_the_formula_reads_as_it_is_written():
    found = derive.derivation(parse(LERP)).gradients["x"]
    assert str(found) == "grad_x[n] = G[n]·(a[1 + int(⌊x[n]⌋)] − a[int(⌊x[n]⌋)])"
    assert r"\operatorname{int}" in found.latex()
    assert "to_int(floor(x[n]))" in str(found.sympy())


def test_a_position_out_of_range_is_an_error_of_the_call():
    with pytest.raises((IndexError, RuntimeError)):
        derive.load(parse(LERP))(torch.randn(3), torch.tensor([2.5, 7.5]))


REFUSED = {
    "op f(a[k], x[n]) -> y; i[n] = floor(x[n]); y[n] = (x[n] - i[n])*a[i[n]]": (
        "line 1, column 24: i is used as an index and contains the floor of x: if x is a "
        "float, write int(floor(...)), an integer; otherwise declare x: int"
    ),
    "op f(a[k], x[n]) -> y; y[n] = a[floor(x[n])]": (
        "write the floor of a float as int(floor(...)), or "
    ),
    "op f(a[k], x[n]) -> y; y[n] = a[int(x[n])]": (
        "the argument of int(...) in y may not be an integer; write int(floor(...)), "
        "int(ceil(...)) or int(round(...))"
    ),
    "op f(a[k], x[n]) -> y; y[n] = a[int(floor(x[n])/2)]": "may not be an integer",
    "op f(a[k], x[n]) -> y; y[n] = a[int(floor(x[n]), 1)]": "int takes 1 argument, not 2",
}


@pytest.mark.parametrize("text", REFUSED)
def test_a_float_is_no_position_by_itself(text):
    with pytest.raises(SpecError) as caught:
        parse(text)
    assert REFUSED[text] in str(caught.value)


@each_row(
    "body",
    [
        *("int(-floor(-x[n]))", "int(clamp(floor(x[n]), 0, size(k) - 1))", "int(T[n])"),
        *("int(2*floor(x[n]/2))", "int(where(x[n] > 1, floor(x[n]), 0))", "int(sign(x[n])**2)"),
    ],
)
def test_what_is_whole_is_an_integer(body):
    op = parse(f"op f(a[k], x[n], T[n]: int) -> y; i[n] = {body}; y[n] = x[n]*T[n]*a[i[n]]")
    assert [e.kind for e in op.equations] == ["int", "float"]
    assert [t.kind for t in op.inputs] == ["float", "float", "int"]


def test_a_gradient_that_is_lost_without_a_word_is_told():
    with pytest.warns(DeriveWarning, match="x has no gradient: i, an index, is computed from it"):
        parse("op f(a[k], x[n]) -> y; i[n] = x[n] + 1; y[n] = (x[n] - i[n])*a[i[n]]")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parse("op f(a[k], x[n]: int) -> y; i[n] = x[n] + 1; y[n] = (x[n] - i[n])*a[i[n]]")
