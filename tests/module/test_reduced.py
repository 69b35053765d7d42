"""Options that are reductions of one equation: one Function computes and reduces it."""

import ast

import pytest
import torch
from kit import texts
from kit.each import each_row

import derive
from derive.check.checks import checks_of
from derive.module.reduced import Reduction, Reductions, reductions
from derive.notation.common_output import common_output

HEAD = "op f(x[n,m], w[n,m]; reduction=mean|sum|none) -> mean: a | sum: s | none: e\n"
LOSS = HEAD + "e[n,m] = exp(x[n,m])*w[n,m]\na = mean[n,m](e[n,m])\ns = sum[n,m](e[n,m])"
ROWS = (
    "op f(x[n,m], w[m]; reduction=none|total) -> none: e | total: t\n"
    "e[n] = sum[m](x[n,m]*w[m])\nt = sum[n](e[n])/size(n)"
)
OTHER = {
    "over a part": HEAD + "e[n,m] = x[n,m]*w[n,m]\na = mean[n,m](e[n,m])\ns = sum[n](e[n,0])",
    "under a condition": HEAD + "e[n,m] = x[n,m]*w[n,m]\na = mean[n,m](e[n,m])\n"
    "s = sum[n,m | n <= m](e[n,m])",
    "of something else": HEAD
    + "e[n,m] = x[n,m]*w[n,m]\na = mean[n,m](e[n,m])\ns = sum[n,m](x[n,m])",
    "over a tensor": HEAD + "e[n,m] = x[n,m]*w[n,m]\na = sum[n,m](e[n,m])/w[0,0]\n"
    "s = sum[n,m](e[n,m])",
}


def classes(text: str) -> list[str]:
    tree = ast.parse(texts.source(derive.parse(text)))
    return [n.name for n in tree.body if isinstance(n, ast.ClassDef)]


def reductions_of(text: str) -> Reductions | None:
    split = common_output(derive.parse(text))
    return None if split is None else reductions(split)


def test_reductions_are_found_in_the_equations():
    found = reductions_of(LOSS)
    assert found is not None and (found.option, found.equation) == ("none", "e")
    assert found.others == {"mean": Reduction(mean=True), "sum": Reduction()}
    rows = reductions_of(ROWS)
    assert rows is not None and rows.others == {"total": Reduction(divisor=0)}
    assert classes(LOSS) == classes(ROWS) == ["_F"]


@pytest.mark.parametrize("name", OTHER)
def test_what_is_no_reduction_of_all_elements_is_not_computed_inside(name):
    assert reductions_of(OTHER[name]) is None
    forward = texts.source(derive.parse(OTHER[name])).split("class _F")[0]
    assert "_f_reduced(" not in forward


@each_row("text", [LOSS, ROWS])
def test_values_and_gradients_are_right(text):
    op = derive.parse(text)
    assert [check for check in checks_of(op, derive.load(op)) if not check.ok] == []


def test_a_cotangent_is_expanded_only_where_its_elements_are_read():
    assert ".expand(" not in texts.source(derive.parse(LOSS)).split("def backward(")[1]
    assert "G.expand(ctx.e_shape)" in texts.source(derive.parse(ROWS)).split("def backward(")[1]


def test_a_mean_is_computed_before_it_is_rounded():
    f = derive.load(derive.parse(LOSS))
    x = torch.full((64, 64), 0.3, dtype=torch.float16, requires_grad=True)
    w = torch.ones_like(x)
    y = f(x, w, reduction="sum")
    torch.testing.assert_close(y, (x.float().exp() * w).sum().half(), rtol=0, atol=0)
    (grad,) = torch.autograd.grad(f(x, w), x)
    torch.testing.assert_close(grad, (x.float().exp() / 4096).half(), rtol=0, atol=0)


def test_each_option_keeps_the_axis_of_a_flag():
    f = derive.load(
        derive.parse(
            "op f(x[n,c]; keepdim=keep(c), reduction=mean|none) -> mean: a | none: l\n"
            "l[n] = logsumexp[c](x[n,c])\na = mean[n](l[n])"
        )
    )
    x = torch.randn(3, 4, dtype=torch.float64)
    for keepdim in (False, True):
        rows = x.logsumexp(1, keepdim=keepdim)
        torch.testing.assert_close(f(x, keepdim=keepdim, reduction="none"), rows)
        torch.testing.assert_close(f(x, keepdim=keepdim), rows.mean(0))


def test_nothing_is_saved_but_what_the_equation_needs():
    x, w = (torch.randn(5, 3, requires_grad=True) for _ in range(2))
    f = derive.load(derive.parse(LOSS))
    for option in ("mean", "sum", "none"):
        saved = f(x, w, reduction=option).grad_fn.saved_tensors
        assert {t.data_ptr() for t in saved} == {x.data_ptr(), w.data_ptr()}
