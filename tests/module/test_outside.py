"""Options that torch differentiates, outside of the only Function."""

import ast

import pytest
import torch
from kit import texts
from kit.each import each_row

import derive
from derive.catalog import find
from derive.check.checks import checks_of
from derive.module.outside import is_rational
from derive.notation.common_output import common_output

HEAD = "op f(x[n,m], w[n]: int; reduction=mean|sum|none) -> mean: a | sum: s | none: e\n"
COUNTED = HEAD + (
    "e[n] = where(w[n] > 0, sum[m](exp(x[n,m])), 0)\ns = sum[n](e[n])\na = s/sum[n | w[n] > 0](1)"
)
WEIGHTED = (
    "op f(x[n,m], w[n]; reduction=mean|none) -> mean: a | none: e\n"
    "F[n,m] = x[n,m] - logsumexp[k](x[n,k])\ne[n] = -w[n]*F[n,0]\na = sum[n](e[n])/sum[n](w[n])"
)
MANY = (
    WEIGHTED.replace(
        "w[n]; ",
        "w[n], shift[m], gain[m]; scale=2, penalty_of_a_row=1, margin_of_a_row=1, "
        "weight_of_a_row=1, ",
    )
    .replace("= x[n,m] -", "= scale*x[n,m]*gain[m] + shift[m] -")
    .replace("*F[n,0]", "*(F[n,0]*weight_of_a_row + margin_of_a_row*penalty_of_a_row)")
)
INSIDE = {
    "a root": COUNTED.replace("s/sum", "sqrt(s)/sum"),
    "a maximum": COUNTED.replace("s = sum[n]", "s = amax[n]"),
    "a product under autocast": "op f(x[n,m], w[m]; reduction=rows|none) -> rows: a | none: e\n"
    "e[n,m] = x[n,m] - logsumexp[k](x[n,k])\na[n] = sum[m](e[n,m]*w[m])",
    "terms that torch would keep": WEIGHTED.replace("F[n,m] =", "H[n,m] =")
    .replace("x[n,m] - logsumexp[k](x[n,k])", "2*x[n,m]")
    .replace("F[n,0]", "H[n,0]"),
}


def functions(text: str, **more: str) -> list[str]:
    tree = ast.parse(derive.source(derive.parse(text), **more))
    found = (n for n in tree.body if isinstance(n, ast.ClassDef))
    return [n.name for n in found if n.name != "_InPlace"]


def test_a_quotient_by_a_count_stands_outside_of_one_function():
    assert functions(COUNTED) == ["_F"] and functions(WEIGHTED) == ["_F"]
    text = texts.source(derive.parse(COUNTED))
    assert "torch differentiates s and a." in text
    assert text.count("Gradients") == 1
    assert (
        "return e.to(dtype)" in text and "return (s / (w > 0).sum().to(e.dtype)).to(dtype)" in text
    )


@pytest.mark.parametrize("name", INSIDE)
def test_other_options_have_a_function_each(name):
    assert len(functions(INSIDE[name])) > 1


def test_a_module_that_saves_least_has_a_function_for_each_option():
    assert len(functions(COUNTED, save="least")) == 3


def test_only_sums_products_and_quotients_are_rational():
    splits = [common_output(derive.parse(text)) for text in (COUNTED, INSIDE["a root"])]
    assert [split is not None and is_rational(split) for split in splits] == [True, False]


def test_many_arguments_are_listed_once():
    text = texts.source(derive.parse(MANY))
    assert "rt.apply(_F, *arguments, weight_of_a_row)" in text


@each_row("text", [COUNTED, WEIGHTED, MANY])
def test_values_and_gradients_are_right(text):
    op = derive.parse(text)
    assert [check for check in checks_of(op, derive.load(op)) if not check.ok] == []


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_an_option_and_its_gradients_are_rounded_once(dtype):
    f = derive.load(find("cross_entropy"))
    torch.manual_seed(0)
    x, w, t = torch.randn(300, 5), torch.rand(5), torch.randint(5, (300,))
    given = [v.to(dtype).requires_grad_() for v in (x, w)]
    exact = [v.detach().double().requires_grad_() for v in given]
    for reduction in ("mean", "sum", "none"):
        ours, want = (f(x, t, w, reduction=reduction) for x, w in (given, exact))
        assert ours.dtype is dtype
        pairs = [(ours, want)]
        pairs += zip(
            torch.autograd.grad(ours.double().sum(), given),
            torch.autograd.grad(want.sum(), exact),
            strict=True,
        )
        for a, b in pairs:
            far = (a.double() - b).abs().max() / b.abs().max()
            assert far <= torch.finfo(dtype).eps


def test_a_float64_input_has_a_count_in_float64():
    f = derive.load(find("cross_entropy"))
    torch.manual_seed(0)
    x, w, t = torch.randn(300, 5).double(), torch.rand(5), torch.randint(5, (300,))
    torch.testing.assert_close(f(x, t, w), f(x, t, w.double()), rtol=1e-14, atol=0)


def test_results_may_be_modified_in_place():
    f = derive.load(find("cross_entropy"))
    x = torch.randn(3, 4, requires_grad=True)
    y = f(x, torch.tensor([0, 1, 2]), reduction="none")
    y += 1
    (grad,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(grad.sum(1), torch.zeros(3))
