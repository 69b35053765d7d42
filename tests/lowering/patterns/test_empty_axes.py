"""Axes of size 0: what is reduced over them, and what is read on them."""

import math

import numpy as np
import pytest
import torch
from kit.each import each_row
from kit.plain import plain
from kit.texts import source

from derive.api import load
from derive.check import oracle
from derive.notation.specification import parse

EXTREMA = ("max", "min", "amax", "amin", "argmax", "argmin")
TEXTS = {
    "an axis of the body": "op f(x[i,k], v[i]) -> y\ny[i] = {kind}[k](x[i,k]*v[i])",
    "beside others": "op f(x[i,k], v[i]) -> y\ny[i] = exp(-v[i])*exp(-{kind}[k](x[i,k])**2)",
    "one of two": "op f(x[i,k], v[l]) -> y\ny[i] = {kind}[k,l](x[i,k]*v[l])",
    "read at positions": "op f(x[v,d], T[n,k]: int) -> y\ny[n,d] = {kind}[k](x[T[n,k],d])",
    "all": "op f(x[k]) -> y\ny = {kind}[k](x[k]**2)",
    "a group": "op f(x[n,*q]) -> y\ny[n] = {kind}[*q](x[n,*q])",
    "under a condition": "op f(x[k], T[k]: int, v[i]) -> y\n"
    "y[i] = {kind}[k | T[k] == i](x[k]*v[i])",
    "over windows": "op f(x[s], v[c]; width=size(k)) -> y\ny[t] = {kind}[c,k](x[t+k]*v[c])",
}
SHAPES = {
    "an axis of the body": ((3, 0), (3,)),
    "beside others": ((3, 0), (3,)),
    "one of two": ((2, 3), (0,)),
    "read at positions": ((4, 2), (3, 0)),
    "all": ((0,),),
    "a group": ((2, 3, 0),),
    "under a condition": ((0,), (0,), (3,)),
    "over windows": ((5,), (0,)),
}


def _tensors(op, shapes):
    made = {}
    for t, shape in zip(op.inputs, shapes, strict=True):
        whole = torch.zeros(shape, dtype=torch.int64)
        made[t.name] = whole if t.kind == "int" else torch.rand(shape).double() + 0.5
    return made


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", TEXTS)
def test_a_logsumexp_of_nothing_has_a_value_and_no_gradient(case):
    op = parse(TEXTS[case].format(kind="logsumexp"))
    f, tensors = load(op), _tensors(op, SHAPES[case])
    given = {"width": 2} if "width" in TEXTS[case] else {}
    arrays = {name: t.numpy() for name, t in tensors.items()}
    expected = torch.from_numpy(oracle.outputs(op, arrays, given)["y"])
    leaves = [t.requires_grad_() if t.is_floating_point() else t for t in tensors.values()]
    y = f(*leaves, **given)
    torch.testing.assert_close(y.detach(), expected)
    y.sum().backward()
    for t in leaves:
        if t.is_floating_point():
            assert torch.equal(t.grad, torch.zeros_like(t))


@pytest.mark.filterwarnings("ignore")
@each_row("case", sorted(TEXTS.keys() - {"under a condition"}))
@each_row("kind", EXTREMA)
def test_an_extremum_over_an_axis_of_size_0_is_an_error(case, kind):
    op = parse(TEXTS[case].format(kind=kind))
    given = {"width": 2} if "width" in TEXTS[case] else {}
    with pytest.raises((IndexError, RuntimeError)):
        load(op)(*_tensors(op, SHAPES[case]).values(), **given)


@pytest.mark.parametrize("kind", EXTREMA)
def test_other_axes_of_an_extremum_may_be_empty(kind):
    f = load(parse(f"op f(x[i,*p,k]) -> y\ny[i,*p] = {kind}[k](x[i,*p,k])"))
    for shape in ((0, 3), (2, 0, 3), (0, 0, 1)):
        x = torch.ones((1, *shape), requires_grad=True)
        y = f(x)
        assert y.shape == (1, *shape[:-1])
        if y.is_floating_point():
            assert torch.autograd.grad(y.sum(), x)[0].shape == x.shape


def test_a_maximum_of_what_no_condition_takes_is_infinite():
    f = load(parse("op f(x[k], m[k]: bool) -> y\ny = max[k | m[k]](x[k])"))
    assert f(torch.ones(3), torch.zeros(3, dtype=torch.bool)) == -math.inf


INTEGERS = (
    "op f(x[i], T[i]: int) -> y\ny = {kind}[i](1)",
    "op f(x[i], T[i]: int) -> y\ny = {kind}[i](T[i])",
    "op f(x[i], T[i]: int) -> y\ny[i] = {kind}[k | k >= i](T[k])",
    "op f(x[i], T[i]: int) -> y\ne[i] = {kind}[k | k >= i](k)\ny[i] = T[e[i]]",
)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("kind", "text"),
    [(kind, text) for kind in ("max", "amin") for text in INTEGERS]
    + [("prod", text) for text in INTEGERS[:3]],
)
def test_a_reduction_of_integers_is_one(text, kind):
    op = parse(text.format(kind=kind))
    x, T = torch.rand(4), torch.tensor([3, 0, 2, 1])
    expected = oracle.outputs(op, {"x": x.numpy(), "T": T.numpy()}, {})["y"]
    y = load(op)(x, T)
    assert y.dtype is torch.int64
    assert torch.equal(y, torch.as_tensor(expected))


@pytest.mark.parametrize("shapes", [(0, 3), (3, 0), (2, 3)])
def test_a_winner_among_joined_axes_of_which_one_is_empty(shapes):
    op = parse("op f(v[l], w[k]) -> y\ny = max[a](concat[a](v[a], w[a]))")
    v, w = (torch.rand(n, dtype=torch.float64, requires_grad=True) for n in shapes)
    made = torch.autograd.grad(load(op)(v, w), (v, w))
    wanted = torch.autograd.grad(torch.cat((v, w)).max(0).values, (v, w))
    torch.testing.assert_close(made, wanted)


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("y[k] = mean[n](2*x[k,n])", (3, 0)),
        ("y[k] = sum[n](x[k,n])*2/size(n)", (3, 0)),
        ("op f(x[k,n]; s=3) -> y\ny[k] = s/sqrt(size(n))*sum[n](x[k,n])", (3, 0)),
        ("y[k,n] = 2/(size(n) - 1)*(x[k,n] - mean[n](x[k,n]))", (3, 1)),
    ],
)
def test_a_number_over_the_size_of_nothing_is_nan(text, shape):
    x = torch.ones(shape, requires_grad=True)
    y = load(parse(text))(x)
    (found,) = torch.autograd.grad(y.sum(), x)
    assert y.isnan().all() and found.shape == x.shape and found.isnan().all()


def test_a_divisor_that_is_never_0_is_plain():
    code = source(parse("op f(x[k,n]; size(n)=4) -> y\ny[k] = 2/size(n)*sum[n](x[k,n])"))
    assert "nan" not in code


def test_a_softmax_over_nothing_sums_to_0():
    f = load(parse("op f(v[i], x) -> y\ny = x*sum[i](softmax[i](v[i]))"))
    for n, expected in ((0, 0.0), (3, 1.0)):
        x = torch.tensor(2.0, requires_grad=True)
        y = f(torch.ones(n), x)
        (found,) = torch.autograd.grad(y, x)
        assert y.item() == pytest.approx(2 * expected)
        assert found.item() == pytest.approx(expected)


def test_a_winner_is_among_what_is_taken_even_where_that_is_infinite():
    op = parse("op f(x[h]) -> y\ny[l] = argmax[h | h != l](log_softmax[h | h <= l](x[h]))")
    assert load(op)(torch.tensor([1.0, 2.0, 0.5])).tolist() == [1, 0, 1]


def test_nothing_is_read_under_a_guard_that_an_empty_axis_never_meets():
    op = parse(
        "op f(v[i], X[l,l], U[l]: int) -> y\ny[a] = concat[a](v[a], where(U[a] > 0, X[a,a], 0))"
    )
    v, X = torch.ones(2, requires_grad=True), torch.ones(0, 0, requires_grad=True)
    y = load(op)(v, X, torch.ones(0, dtype=torch.int64))
    assert y.tolist() == [1.0, 1.0]
    assert torch.autograd.grad(y.sum(), v)[0].tolist() == [1.0, 1.0]


@pytest.mark.parametrize("shape", [(0, 2), (3, 2)])
@pytest.mark.parametrize(
    "text",
    [
        "y[n] = where(0 <= s[n] and s[n] < size(k), x[s[n],0]**2*m[n], m[n])",
        "y[n,l] = where(m[n] > 0 and 0 <= s[n] and s[n] < size(k), x[s[n],l]**2, 0)",
        "y[n] = where(sum[n](m[n]) > 0 and 1 < size(k), x[1,0]**2*m[n], 0) + sum[k](x[k,1]) + s[n]",
        "y[n] = where(1 < size(k), x[1,0]**2*m[n], m[n]*s[n])",
        "e[a] = concat[a](x[a,1]*sum[n](m[n]), m[a])\ny[l] = e[1]*sum[k](x[k,l])*s[1]",
        "y[k] = x[k,0]*where(sum[n](m[n] + s[n]) > 0 and 1 < size(k), x[1,0], 0)",
    ],
)
def test_a_guarded_position_on_an_axis_that_may_be_empty(text, shape):
    """Reads, and what is placed in the backward, twice."""
    op = parse(f"op f(m[n], s[n]: int, x[k,l]) -> y\n{text}")
    m = torch.tensor([1.0, 2.0, 0.5, 3.0], dtype=torch.float64, requires_grad=True)
    s = torch.tensor([2, -1, 7, 2])
    x = torch.rand(shape, dtype=torch.float64, requires_grad=True)
    f = load(op)
    given = {"m": m.detach().numpy(), "s": s.numpy(), "x": x.detach().numpy()}
    expected = oracle.outputs(op, given, {})["y"]
    np.testing.assert_allclose(f(m, s, x).detach().numpy(), expected)
    assert torch.autograd.gradcheck(lambda m, x: f(m, s, x), (m, x))
    assert torch.autograd.gradgradcheck(lambda m, x: f(m, s, x), (m, x))


def test_what_sizes_decide_is_plain_where_it_is_taken():
    code = plain(source(parse("op f(x[k], m[n]) -> y\ny[n] = where(1 < size(k), x[1]*m[n], 0)")))
    assert "x[1] * m if 1 < x.shape[0] else " in code
    placed = "rt.window((G * m).sum().unsqueeze(0), 0, -1, x_shape[0])"
    assert f"if 1 < x_shape[0]: grad_x = {placed} else:" in " ".join(code.split())


def test_windows_as_far_apart_as_an_empty_axis_is_long():
    op = parse(
        "op f(v[j], x[j]; groups=size(k)) -> y\n"
        "e[(k j)] = v[j]\ny[n,j] = sin(where(j != n, 1, x[j]) - e[n])"
    )
    for size in (0, 2):
        v, x = (torch.rand(size, dtype=torch.float64, requires_grad=True) for _ in range(2))
        assert torch.autograd.gradcheck(lambda v, x: load(op)(v, x, groups=3), (v, x))


def test_a_mean_over_one_row_turned_is_one_product():
    f = load(parse("op f(v[i], e[j,i]) -> y\ny = sum[a](mean[b](e[0,size(b)-1-b]*v[b])*v[a])"))
    v, e = torch.rand(3), torch.rand(2, 3)
    torch.testing.assert_close(f(v, e), (e[0].flip(0) * v).mean() * v.sum())


@pytest.mark.parametrize("shape", [(3, 0), (0, 4), (0, 0), (2, 4)])
def test_the_second_derivative_of_a_mean_of_nothing_is_that_of_torch(shape):
    f = load(parse("op f(x[n,k]) -> y ; y[n] = 2*mean[k](x[n,k])"))
    found = []
    for g in (f, lambda x: 2 * x.mean(1)):
        x = torch.ones(shape, dtype=torch.float64, requires_grad=True)
        cotangent = torch.ones(shape[0], dtype=torch.float64, requires_grad=True)
        (gradient,) = torch.autograd.grad(g(x), x, cotangent, create_graph=True)
        found.append(torch.autograd.grad(gradient.sum(), cotangent)[0])
    assert torch.equal(*found)


def test_rows_are_pooled_where_there_are_none():
    f = load(parse("op f(x[n,s]; size(u)=3) -> y\ny[n,t] = mean[u](x[n,t+u])"))
    for n in (0, 2):
        x = torch.randn(n, 5, requires_grad=True)
        y = f(x)
        (grad,) = torch.autograd.grad(y.sum(), x)
        assert y.shape == (n, 3) and grad.shape == (n, 5)
        torch.testing.assert_close(y, torch.nn.functional.avg_pool1d(x.unsqueeze(1), 3, 1)[:, 0])
