"""Sums of squared differences by a matrix product, and ``stable``, which keeps the differences."""

from typing import Any

import pytest
import torch
from kit.each import each_row
from sympy import Eq, IndexedBase, Sum, symbols
from torch.autograd import gradcheck, gradgradcheck

import derive
from derive.algebra.factor import factor
from derive.algebra.squares import Nonnegative
from derive.calculus.centering import with_centres
from derive.pipeline import derive_option

n, m, d, e = 7, 5, 3, 4

PLAIN = "op f(X[i,d], Y[j,d]{}) -> y\ny[i,j] = sum[d]((X[i,d]-Y[j,d])**2)"
WEIGHTED = "op f(X[i,d], Y[j,d], w[d]{}) -> y\ny[i,j] = sum[d](w[d]*(X[i,d]-Y[j,d])**2)"
SCALED = "op f(X[i,d], Y[j,d], w[d]{}) -> y\ny[i,j] = mean[d](((X[i,d]-Y[j,d])/w[d])**2)"
ROOT = "op f(X[i,d], Y[j,d]{}) -> y\ny[i,j] = sqrt(sum[d]((X[i,d]-Y[j,d])**2))"
RADIAL = "op f(X[i,d], Y[j,d], g{}) -> y\ny[i,j] = exp(-g*sum[d]((X[i,d]-Y[j,d])**2))"
PROJECTED = (
    "op f(X[i,d], Y[j,d], L[e,d]{}) -> y\ny[i,j] = sum[e](sum[d](L[e,d]*(X[i,d]-Y[j,d]))**2)"
)
PRODUCT = (
    "op f(X[i,d], Y[j,d], M[d,e]{}) -> y\ny[i,j] = sum[d,e]((X[i,d]-Y[j,d])*M[d,e]*(X[i,e]-Y[j,e]))"
)
PAIRS = "op f(x[i], z[j]{}) -> y\ny = sum[i,j]((x[i]-z[j])**2)"
THREE = "op f(X[i,d], Y[j,d], b[d]{}) -> y\ny[i,j] = sum[d]((X[i,d]+Y[j,d]-b[d])**2)"


def differences(X: Any, Y: Any) -> Any:
    return X[:, None, :] - Y[None, :, :]


BY_HAND = {
    PLAIN: lambda X, Y: differences(X, Y).square().sum(2),
    WEIGHTED: lambda X, Y, w: (w * differences(X, Y).square()).sum(2),
    SCALED: lambda X, Y, w: (differences(X, Y) / w).square().mean(2),
    ROOT: lambda X, Y: differences(X, Y).square().sum(2).sqrt(),
    RADIAL: lambda X, Y, g: (-g * differences(X, Y).square().sum(2)).exp(),
    PROJECTED: lambda X, Y, L: (differences(X, Y) @ L.mT).square().sum(2),
    PRODUCT: lambda X, Y, M: ((differences(X, Y) @ M) * differences(X, Y)).sum(2),
    PAIRS: lambda x, z: (x[:, None] - z).square().sum(),
    THREE: lambda X, Y, b: (X[:, None, :] + Y - b).square().sum(2),
}
SHAPES = {
    PLAIN: ((n, d), (m, d)),
    WEIGHTED: ((n, d), (m, d), (d,)),
    SCALED: ((n, d), (m, d), (d,)),
    ROOT: ((n, d), (m, d)),
    RADIAL: ((n, d), (m, d), ()),
    PROJECTED: ((n, d), (m, d), (e, d)),
    PRODUCT: ((n, d), (m, d), (d, d)),
    PAIRS: ((n,), (m,)),
    THREE: ((n, d), (m, d), (d,)),
}
IDS = (*("plain", "weighted", "scaled", "root", "radial", "projected", "product", "pairs"), "three")
FORMS = pytest.mark.parametrize("said", ["", "; stable"], ids=["expanded", "stable"])
EVERY = pytest.mark.parametrize("text", BY_HAND, ids=IDS)


def made(text: str, said: str) -> derive.Operation:
    return derive.parse(text.format(said))


def inputs(text: str) -> list[Any]:
    generator = torch.Generator().manual_seed(3)
    return [
        (torch.rand(shape, generator=generator, dtype=torch.float64) + 0.5).requires_grad_()
        for shape in SHAPES[text]
    ]


@EVERY
@FORMS
def test_values_and_gradients(text, said):
    tensors = inputs(text)
    f = derive.load(made(text, said))
    y, wanted = f(*tensors), BY_HAND[text](*tensors)
    torch.testing.assert_close(y, wanted)
    G = torch.linspace(-1, 2, y.numel(), dtype=y.dtype).reshape(y.shape)
    ours = torch.autograd.grad(y, tensors, G)
    theirs = torch.autograd.grad(wanted, tensors, G)
    torch.testing.assert_close(ours, theirs)


@EVERY
@FORMS
def test_first_and_second_derivatives(text, said):
    tensors = inputs(text)
    f = derive.load(made(text, said))
    assert gradcheck(f, tensors)
    assert gradgradcheck(f, tensors)


@each_row("text", [t for t in BY_HAND if t is not PROJECTED])
def test_no_difference_is_formed_where_a_matrix_product_does(text):
    """Nor in the backward: nothing has the axes i, j and d."""
    cost = derive.derivation(made(text, "")).cost
    assert cost.wide == ()
    wide = {"i", "j", "d"} if text is not PAIRS else {"i", "j"}
    for work in (cost.forward, cost.backward):
        assert not any(wide <= a.needs() for a in work.largest)


@EVERY
def test_the_formula_stays_as_it_was_written(text):
    (equation,) = derive.derivation(made(text, "")).equations
    assert "²" in str(equation) or text is PRODUCT
    assert "−" in str(equation)


@EVERY
def test_stable_keeps_the_differences_and_is_not_warned_of(text):
    cost = derive.derivation(made(text, "; stable")).cost
    assert cost.wide == ()
    wide = {"i", "j"} if text is PAIRS else {"i", "j"} | ({"e"} if text is PROJECTED else {"d"})
    assert any(wide <= a.needs() for a in cost.forward.largest)


def test_values_are_never_negative():
    X = torch.randn(n, d, dtype=torch.float32, generator=torch.Generator().manual_seed(0)) + 1e3
    f = derive.load(made(PLAIN, ""))
    y = f(X, X.clone())
    assert (y >= 0).all()
    assert (y == 0).any()
    assert f(X, torch.full_like(X, float("nan"))[:m]).isnan().all()


def test_a_product_that_may_be_negative_is_not_clamped():
    X, Y, w = inputs(WEIGHTED)
    assert (derive.load(made(WEIGHTED, ""))(X, Y, -w) < 0).all()


@pytest.mark.parametrize("offset", [1e6, -3e7])
def test_stable_is_accurate_far_from_the_origin(offset):
    """float64, where the matrix product about the origin has no digit of distances around 1."""
    X, Y = inputs(PLAIN)
    exact = BY_HAND[PLAIN](X, Y)
    G = torch.linspace(-1, 2, exact.numel(), dtype=exact.dtype).reshape(exact.shape)
    moved = [(t.detach() + offset).requires_grad_() for t in (X, Y)]
    y = derive.load(made(PLAIN, "; stable"))(*moved)
    torch.testing.assert_close(y, exact, rtol=1e-7, atol=1e-7)
    theirs = torch.autograd.grad(exact, (X, Y), G)
    ours = torch.autograd.grad(y, moved, G)
    torch.testing.assert_close(ours, theirs, rtol=1e-7, atol=1e-7)


@FORMS
def test_clusters_far_apart_have_their_digits_where_stable_is_said(said):
    """Around one centre a distance rounds as the square of the largest one does."""
    X = inputs(PLAIN)[0].detach()
    X[n // 2 :] += 1e7
    y = derive.load(made(PLAIN, said))(X, X.clone())
    error = (y - BY_HAND[PLAIN](X, X))[: n // 2, : n // 2].abs().max()
    assert error == 0 if said else error > 1e-5


@FORMS
def test_the_gradient_where_points_are_equal(said):
    """0 for a pair of equal points: only the other pairs give something."""
    X = inputs(PLAIN)[0]
    Y = X.detach().clone().requires_grad_()
    f = derive.load(made(PLAIN, said))
    y = f(X, Y)
    assert (y.diagonal().abs() < 1e-14).all()
    G = torch.eye(n, dtype=y.dtype)
    for gradient in torch.autograd.grad(y, (X, Y), G):
        torch.testing.assert_close(gradient, torch.zeros_like(gradient), rtol=0, atol=1e-14)


def computed(text: str) -> str:
    """The last equation as it is computed."""
    derived = derive_option(derive.parse(text), None)
    op = derived.operation
    lets, _ = with_centres(op, derived.lets, derived.backward)
    return repr(factor(lets[op.outputs[0]].body))


def opens(text: str) -> bool:
    return "~centred" in computed(text)


@each_row(
    "text",
    [
        "y[i] = sum[d]((X[i,d]-b[d])**2)",  # X has all the axes
        "y[i,j] = sum[d](A[i,j,d]*(X[i,d]-Y[j,d])**2)",  # so has A
        "y[k,i,j] = sum[d](W[k,d]*(X[i,d]-Y[j,d])**2)",  # another tensor of three axes instead
        "y[i,j] = sum[d](abs(X[i,d]-Y[j,d])**3)",
        "y[i,j] = sum[d | d <= i]((X[i,d]-Y[j,d])**2)",
        "y[i,j,d] = (X[i,d]-Y[j,d])**2",
        "op f(x[j], z[i]) -> y\ny[i] = sum[j]((i-j)**2*x[j]) + z[i]",
        "y[i,j] = sum[d](exp(v[j,d])*(X[i,d]-Y[j,d])**2)",  # infinite where the square may be 0
        "y[i,j] = sum[d]((X[i,d]-Y[j,d])**2/v[j,d])",
        "y[i,j] = sum[d](log(v[i,d])*(X[i,d]-Y[j,d])**2)",
        "w[j,d] = exp(v[j,d])\ny[i,j] = sum[d](w[j,d]*(X[i,d]-Y[j,d])**2)",
        "y[i,j] = sum[d]((X[i,d]/u[i,d]-Y[j,d])**2)",
        "op f(X[i,d], Y[j,d]; stable) -> y\ny[i,j] = sum[d]((X[i,d]-Y[j,d])**2)",
    ],
)
def test_what_is_not_multiplied_out(text):
    assert not opens(text)


@each_row(
    "text",
    [
        "y[i,j] = sum[d]((X[i,d]-Y[j,d])**2)",
        "y[i,j] = sum[d](exp(w[d])*(X[i,d]-Y[j,d])**2)",
        "y[i,j] = log(1 + sum[d]((X[i,d]-Y[j,d])**2)/2)",
        "y = sum[i,j]((x[i]-z[j])**2)",
        "y[b,i,j] = sum[d]((X[b,i,d]-Y[b,j,d])**2)",
        "y[i,j] = sum[d](v[j,d]**2*(X[i,d]-Y[j,d])**2)",
        "y[i,j] = sum[d](abs(v[j,d])*(X[i,d]-Y[j,d])**2*sigmoid(u[i,d]))",
        "y[i,j] = sum[d](exp(-v[j,d]**2)*(X[i,d]-Y[j,d])**2)",
        "y[i,j] = sum[d]((X[i,d]-Y[j,d])**2/(1 + v[j,d]**2))",
        "y[i,j] = sum[d](softmax[d](v[j,d])*(X[i,d]-Y[j,d])**2)",
        "w[j,d] = tanh(v[j,d])\ny[i,j] = sum[d](w[j,d]*(X[i,d]-Y[j,d])**2)",
        "y[i,j] = sum[d]((X[i,d]/w[d]-Y[j,d]/w[d])**2)",  # scales all differences
        "u[i,d] = X[i,d]/v[i,d]\ny[i,j] = sum[d]((u[i,d]-Y[j,d])**2)",
    ],
)
def test_what_is_multiplied_out(text):
    assert opens(text)


@each_row(
    "factor, is_nonnegative",
    [
        ("w[j,d]**2", True),
        ("sigmoid(w[j,d])", True),
        ("exp(-w[j,d]**2)/(1 + w[j,d]**2)", True),
        ("r[j,d]", True),
        ("s[j,d]", False),
        ("w[j,d]", False),
        ("(w[j,d] - 1)", False),
    ],
)
def test_what_is_never_negative_is_not_so_by_rounding(factor, is_nonnegative):
    text = f"""op f(X[i,d], Y[j,d], w[j,d]) -> y
r[j,d] = abs(w[j,d])
s[j,d] = tanh(w[j,d])
y[i,j] = sum[d]({factor}*(X[i,d]-Y[j,d])**2) + 0*sum[d](r[j,d]*s[j,d])"""
    assert (Nonnegative.__name__ in computed(text)) is is_nonnegative


def test_stable_stands_beside_parameters():
    text = """op f(x[i,d], z[j,d]; eps=1e-5, stable, p) -> y
y[i,j] = p*sum[d]((x[i,d]-z[j,d])**2) + eps"""
    op = derive.parse(text)
    assert op.stable
    assert [p.name for p in op.parameters] == ["eps", "p"]
    assert not derive.parse(text.replace("stable, ", "")).stable


def test_stable_with_a_value_is_a_parameter():
    op = derive.parse("op f(x[n]; stable=2) -> y\ny[n] = stable*x[n]")
    assert not op.stable
    assert [p.name for p in op.parameters] == ["stable"]


def test_stable_is_no_number():
    with pytest.raises(derive.DeriveError, match="stable"):
        derive.parse("op f(x[n]; stable) -> y\ny[n] = stable*x[n]")


def test_stable_from_sympy():
    i, j, k = symbols("i j k", integer=True)
    X, Y, y = map(IndexedBase, "XYy")
    equation = Eq(y[i, j], Sum((X[i, k] - Y[j, k]) ** 2, k))
    kept = derive.Operation("f", equation, stable=True)
    assert kept.stable
    assert not derive.Operation("f", equation).stable
    text = "op f(X[i,k], Y[j,k]; stable) -> y\ny[i,j] = sum[k]((X[i,k]-Y[j,k])**2)"
    assert derive.source(kept) == derive.source(derive.parse(text))


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_stable_goes_with_a_choice_and_groups(reduction):
    text = """op f(X[*b,i,d], Y[*b,j,d]; stable, reduction=mean|none) -> mean: m | none: y
y[*b,i,j] = sum[d]((X[*b,i,d]-Y[*b,j,d])**2)
m = mean[*b,i,j](y[*b,i,j])"""
    f = derive.load(derive.parse(text))
    generator = torch.Generator().manual_seed(1)
    X = torch.randn((2, n, d), generator=generator, dtype=torch.float64) + 1e6
    Y = torch.randn((2, m, d), generator=generator, dtype=torch.float64) + 1e6
    wanted = (X[:, :, None] - Y[:, None]).square().sum(3)
    wanted = wanted.mean() if reduction == "mean" else wanted
    torch.testing.assert_close(f(X, Y, reduction=reduction), wanted, rtol=1e-12, atol=0)


def test_value_and_grad_forms_no_difference_either():
    op = derive.parse("L = sum[i,j](exp(-sum[d]((X[i,d]-Y[j,d])**2)))")
    text = derive.value_and_grad_source(op)
    assert "clamp_min(0)" in text
    X, Y = inputs(PLAIN)
    loss, gradients = derive.value_and_grad(op)(X.detach(), Y.detach())
    wanted = (-differences(X, Y).square().sum(2)).exp().sum()
    torch.testing.assert_close(loss, wanted.detach())
    for name, gradient in zip("XY", torch.autograd.grad(wanted, (X, Y)), strict=True):
        torch.testing.assert_close(gradients[name], gradient)
