"""Plain modules: what stands in them, and that the checks of any module hold of them."""

import ast

import pytest
from kit.each import each_operation

from derive import DeriveError, catalog, parse, source
from derive.check.checks import PLAIN
from derive.module.docstrings import module_style
from derive.notation.operation import options


def plain(text: str) -> str:
    return source(parse(text), style="plain")


def code_of(text: str) -> str:
    """The module without its docstring."""
    return text.split('"""', 2)[2]


def test_a_function_is_the_formula():
    text = plain("op f(x[n,c], w[c]; eps=1e-6) -> y\n"
                 "rstd[n] = (mean[c](x[n,c]**2) + eps)**(-1/2)\n"
                 "y[n,c] = w[c]*x[n,c]*rstd[n]")  # fmt: skip
    assert module_style(text) == "plain"
    assert (
        code_of(text)
        == """

import torch


class F(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, w, eps):
        rstd = (eps + x.square().mean(1, keepdim=True)).rsqrt()
        return w * rstd * x

    @staticmethod
    def setup_context(ctx, inputs, y):
        x, w, ctx.eps = inputs
        ctx.save_for_backward(x, w)

    @staticmethod
    def backward(ctx, G):
        x, w = ctx.saved_tensors
        rstd = (ctx.eps + x.square().mean(1, keepdim=True)).rsqrt()
        grad_x = rstd * (w * G - rstd.square() * (w * G * x).mean(1, keepdim=True) * x)
        grad_w = (G * x * rstd).sum(0)
        return grad_x, grad_w, None


def f(x: torch.Tensor, w: torch.Tensor, eps: float = 1e-06) -> torch.Tensor:
    return F.apply(x, w, eps)
"""
    )


def test_reductions_of_one_equation_stand_outside_of_its_function():
    text = plain("op f(x[*p], y[*p]; reduction=mean|sum|none) -> mean: m | sum: s | none: l\n"
                 "l[*p] = (x[*p] - y[*p])**2\nm = mean[*p](l[*p])\ns = sum[*p](l[*p])")  # fmt: skip
    assert text.count("class ") == 1
    assert text.endswith("""
    l = F.apply(x, y)
    if reduction == "sum":
        return l.sum()
    if reduction == "none":
        return l
    return l.mean()
""")


def test_other_options_have_a_function_each():
    text = plain("op f(x[n]; how=a|b) -> a: p | b: q\np[n] = sin(x[n])\nq[n] = cos(x[n])")
    assert "class FA(torch.autograd.Function)" in text
    assert "class FB(torch.autograd.Function)" in text
    assert text.endswith("""
    if how == "b":
        return FB.apply(x)
    return FA.apply(x)
""")


def test_none_is_replaced_by_the_default():
    text = plain("op f(x[n,c], w[c]=1, m[n,c]=0) -> y; y[n,c] = w[c]*x[n,c] + m[n,c]")
    assert "    if w is None:\n        w = x.new_ones((x.shape[1],))\n" in text
    assert "    if m is None:\n        m = torch.zeros_like(x)\n" in text


def test_a_name_of_the_user_is_no_class():
    assert "class _F(torch.autograd.Function)" in plain("op f(F[n]) -> y; y[n] = F[n]**2")


def test_an_einsum_has_the_letters_of_the_user():
    text = plain("op f(x[n,i,k], w[h,d,k]) -> y; y[n,h,i,d] = sum[k](x[n,i,k]*w[h,d,k])")
    assert 'torch.einsum("nik,hdk->nhid", x, w)' in text


def test_blocks_and_save_are_refused():
    op = parse("y[n] = sum[m](x[n,m])")
    with pytest.raises(DeriveError, match="neither blocks= nor save="):
        source(op, blocks="n", style="plain")
    with pytest.raises(DeriveError, match="one of 'production', 'plain'"):
        source(op, style="short")


LINES: list[int] = []


@each_operation(together=True)
def test_public_calls_alone(op):
    """No private name of torch, nothing in place, no test of what is needed; imports are known."""
    text = source(op, style="plain")
    LINES.append(text.count("\n"))
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            assert not node.attr.startswith("_"), node.attr
            assert not node.attr.endswith("_"), node.attr
            assert node.attr not in ("needs_input_grad", "promote_types"), node.attr
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = {node.module} if isinstance(node, ast.ImportFrom) else {node.names[0].name}
            assert names <= {"math", "torch", "torch.autograd", "typing"}, names
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    assert 1 <= len(classes) <= len(list(options(op)))


def test_one_side_of_a_bound_is_a_mask():
    text = source(catalog.find("cox_loss"), style="plain")
    assert "torch.where(time.unsqueeze(1) <= time, log_hazard, -math.inf)" in text
    assert text.count("\n") <= 60


QUICK = tuple("value gradient gradcheck gradgradcheck vmap batched subsets bfloat16".split())


def holds(op, names):
    from derive.check.checks import checks_of, load_source

    function = load_source(op, source(op, style="plain"))
    columns = [c for c in PLAIN if c.name in names]
    wrong = [c for c in checks_of(op, function, columns=columns) if not c.ok]
    assert not wrong, wrong[0]


@each_operation(share=15, turns=4)
def test_derivatives_are_right(op):
    holds(op, QUICK)


@each_operation(share=60)
def test_compilers_take_it(op):
    holds(op, ("compile", "export"))


@pytest.mark.slow
def test_half_of_the_modules_fit_a_page():
    lines = sorted(LINES or [source(op, style="plain").count("\n") for op in catalog.operations()])
    assert lines[len(lines) // 2] <= 50


def test_an_input_that_is_returned_and_saved_is_copied():
    op = parse("op f(x[n], w[n]) -> z, y\nz[n] = x[n]\ny[n] = x[n]*w[n]")
    assert "z = x.clone()" in source(op, style="plain")
    holds(op, QUICK)
