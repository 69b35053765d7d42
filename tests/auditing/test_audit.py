"""Right Functions are right, seeded mistakes are found and named, and nothing is named wrongly."""

import re
from functools import partial

import pytest
import torch
from kit.audited import audited
from kit.each import each_row, in_turns
from kit.functions import (
    EXAMPLES,
    OPERATIONS,
    Attention,
    Bilinear,
    CrossEntropy,
    Distance,
    LayerNorm,
    Linear,
    MeanSquares,
    Normalize,
    Polynomial,
    RMSNorm,
    Scale,
    Softmax,
    SquaredRelu,
    SumAndProduct,
    SwiGLU,
    Whiten,
)
from kit.seeded import seeded

import derive

# Mistakes seeded in the right Functions: a text of the source, what stands there instead, the
# input whose gradient is wrong, and what the report says of it, or None.

MISTAKES = [
    (Linear, "grad_output @ weight", "-grad_output @ weight", "x", r"^the sign is wrong"),
    (Linear, "grad_output @ weight", "2 * grad_output @ weight", "x", r"factor 2 is too many"),
    (Linear, "grad_output.t() @ x", "x.t() @ grad_output", "weight", r"transposed"),
    (Linear, "grad_output.sum", "grad_output.mean", "bias", r"factor 1/size\(n\) is too many"),
    (Linear, "grad_output.sum(0)", "grad_output.sum(1)", "bias", r"sum is over o; .* over n"),
    (Linear, "grad_output.sum(0)", "None", "bias", r"backward returns None"),
    (Linear, "grad_output.t() @ x", "grad_output.t() @ x / x.shape[0]", "weight", r"1/size\(n\)"),
    (Linear, "grad_output.sum(0)", "grad_output[0]", "bias", None),
    (LayerNorm, " - c2", "", "x", r"term −rstd\[n\]/size\(c\)·Σ\[c′\] dy\[n,c′\]·weight.* missing"),
    (LayerNorm, " - xhat * c1", "", "x", r"term −rstd.*xhat.* is missing"),
    (LayerNorm, "- xhat * c1", "+ xhat * c1", "x", r"sign of the term .*xhat.* is wrong"),
    (LayerNorm, "- c2", "+ c2", "x", r"sign of the term .* is wrong"),
    (LayerNorm, "c1 = (d * xhat).mean", "c1 = (d * xhat).sum", "x", r"1/size\(c\) is missing in"),
    (LayerNorm, "c2 = d.mean", "c2 = d.sum", "x", r"factor 1/size\(c\) is missing in the term"),
    (LayerNorm, "c2 = d.mean", "c2 = dy.mean", "x", r"factor weight\[.*\] is missing in the term"),
    (LayerNorm, "c1 = (d * xhat)", "c1 = (dy * xhat)", "x", r"factor weight\[.*\] is missing"),
    (LayerNorm, "xhat * c1 - c2) * rstd", "xhat * c1 - c2)", "x", r"factor rstd\[n\] is missing"),
    (LayerNorm, "- c2) * rstd", "- c2) * rstd * rstd", "x", r"factor rstd\[n\] is too many"),
    (LayerNorm, "d = dy * weight", "d = dy", "x", None),
    (LayerNorm, "dw = (dy * xhat)", "dw = (d * xhat)", "weight", r"d stands where dy should"),
    (LayerNorm, "dw = (dy * xhat).sum(0)", "dw = dy.sum(0)", "weight", r"xhat\[.*\] is missing"),
    (LayerNorm, "- xhat * c1", "* weight - xhat * c1", "x", r"factor weight\[c\] is too many in"),
    (LayerNorm, "return dx, dw, db,", "return dx, db, dw,", "weight", r"gradient of bias"),
    (RMSNorm, "rstd**3", "rstd**2", "x", r"rstd\[n\] is missing in the term −"),
    (RMSNorm, "* dot / n", "* dot", "x", r"factor 1/size\(c\) is missing in the term"),
    (RMSNorm, "- rstd**3", "+ rstd**3", "x", r"sign of the term .* is wrong"),
    (RMSNorm, " - rstd**3 * x * dot / n", "", "x", r"term −.* is missing"),
    (RMSNorm, "dw = (dy * x * rstd)", "dw = (dy * x)", "weight", r"factor rstd\[.*\] is missing"),
    (RMSNorm, "= (dy * x * rstd)", "= (wdy * x * rstd)", "weight", r"wdy stands where dy should"),
    (RMSNorm, "= (wdy * x)", "= (dy * x)", "x", r"factor weight\[.*\] is missing in the term"),
    (Softmax, "s * (g - inner)", "s * g", "x", r"term −.* is missing"),
    (Softmax, "s * (g - inner)", "g - inner", "x", r"factor s\[n,c\] is missing"),
    (Softmax, "(g * s).sum", "g.sum", "x", r"factor s\[n,.*\] is missing in the term|missing"),
    (Softmax, "(g * s).sum(-1", "(g * s).sum(0", "x", None),
    (Softmax, "s * (g - inner)", "s * (g + inner)", "x", r"sign of .* is wrong"),
    (Softmax, "s * (g - inner)", "s * (1 - s) * g", "x", r"sum is missing: only one term"),
    (CrossEntropy, "p /= len(target)", "p", "logits", r"factor 1/size\(n\) is missing"),
    (CrossEntropy, "grad_output * p", "p", "logits", r"factor grad_output is missing"),
    (CrossEntropy, "p[torch.arange(len(target)), target] -= 1", "p", "logits", r"δ.* is missing"),
    (CrossEntropy, "-= 1", "+= 1", "logits", r"sign of .*δ.* is wrong"),
    (CrossEntropy, "p /= len(target)", "p /= p.shape[1]", "logits", r"size\(n\)/size\(c\)"),
    (MeanSquares, "2 * (pred", "(pred", "pred", r"factor 2 is missing"),
    (MeanSquares, "pred.numel()", "pred.shape[0]", "pred", r"factor 1/size\(c\) is missing"),
    (MeanSquares, "-grad_out * d", "grad_out * d", "target", r"sign is wrong"),
    (MeanSquares, "return grad_out * d,", "return d,", "pred", r"factor grad_out is missing"),
    (MeanSquares, "-grad_out * d", "None", "target", r"returns None"),
    (SwiGLU, "(1 - sig) + sig) * b", "(1 - sig) + sig)", "a", r"factor b\[n,c\] is missing"),
    (SwiGLU, "silu * (1 - sig)", "silu * sig", "a", None),
    (SwiGLU, "(silu * (1 - sig) + sig)", "(silu * (1 - sig))", "a", r"term .*sigmoid.* is missing"),
    (SwiGLU, "db = dc * silu", "db = dc * sig", "b", r"factor a\[n,c\] is missing"),
    (SwiGLU, "(1 - sig)", "(1 + sig)", "a", r"sign of .*sigmoid.* is wrong"),
    (SwiGLU, "return da, db", "return db, da", "a", r"gradient of b"),
    (Scale, "(1 - t**2)", "(1 - t)", "x", r"stands where tanh\(x\[n,c\]\)² should|factor tanh"),
    (Scale, "g * alpha * (1", "g * (1", "x", r"factor alpha is missing"),
    (Scale, "dalpha = (g * t)", "dalpha = (g * x)", "alpha", r"x\[.*\] stands where tanh"),
    (Scale, "(g * t).sum()", "(g * t).mean()", "alpha", r"1/\(size\(n\)·size\(c\)\) is too many"),
    (Bilinear, "= x.t() @ (g[:, None] * y)", "= x.t() @ y", "m", r"factor g\[.*\] is missing"),
    (Bilinear, "dy = g[:, None] * (x @ m)", "dy = x @ m", "y", r"factor g\[n\] is missing"),
    (Attention, "dq = ds @ k * ctx.scale", "dq = ds @ k", "q", r"size\(d\)"),
    (Attention, "ds.t() @ q * ctx.scale", "ds.t() @ q", "k", r"size\(d\)"),
    (Attention, " - (dp * p).sum(-1, keepdim=True)", "", "q", r"term .* is missing"),
    (Attention, "dv = p.t() @ do", "dv = -p.t() @ do", "v", r"sign is wrong"),
    (Normalize, ") / norm", ")", "x", r"factor 1/norm\[n\] is missing|norm"),
    (Normalize, " - y * (grad * y).sum(-1, keepdim=True)", "", "x", r"term −.* is missing"),
    (Normalize, "grad - y", "grad + y", "x", r"sign of the term .* is wrong"),
    (SquaredRelu, "* 2 *", "*", "input", r"factor 2 is missing"),
    (SquaredRelu, "input < 0", "input > 0", "input", None),
    (Polynomial, "1.5", "0.5", "x", r"factor 3 is missing"),
    (Polynomial, "5 * x**2 - 1", "5 * x**2 + 1", "x", r"sign of .* is wrong"),
    (Polynomial, "* x**2 - 1", "* x - 1", "x", r"x\[n\] stands where x\[n\]²|1/x\[n\] is too many"),
    (Polynomial, " - 1", "", "x", r"term .* is missing"),
    (SumAndProduct, "gs + gp * b", "gp * b", "a", r"term gs\[n,c\] is missing"),
    (SumAndProduct, "+ gp * b", "+ gp * a", "a", r"a\[n,c\] stands where b\[n,c\]|gradient of b"),
    (SumAndProduct, "gs + gp * a", "gs - gp * a", "b", r"sign of the term .*gp.* is wrong"),
    (Whiten, "n * dout - dbeta", "n * dout", "x", r"term −.* is missing"),
    (Whiten, "inv / n *", "inv *", "x", r"factor 1/size\(n\) is missing"),
    (Whiten, "gamma * inv / n", "inv / n", "x", r"factor gamma\[c\] is missing"),
    (Whiten, "xhat * dgamma", "xc * dgamma", "x", r"inv\[c\] is missing|1/inv\[c\] is too many"),
    (Distance, "-whole.sum(0)", "whole.sum(0)", "y", r"sign is wrong"),
    (Distance, "2 * g", "g", "x", r"factor 2 is missing"),
    (Distance, "whole.sum(1)", "whole.mean(1)", "x", r"factor 1/size\(m\) is too many"),
]

CONDITIONS = [
    (Softmax, "inner ", "g.mul_(1)\n        g += 0.5\n        inner ", "x", r"cotangent", "wrong"),
    (Linear, "grad[1]:", "grad[0]:", "weight", r"gradient of weight", "wrong"),
    (
        Softmax,
        "inner = (g * s)",
        "g = g.view(-1).view(s.shape)\n        inner = (g * s)",
        "x",
        r"contiguous",
        "fragile",
    ),
    (RMSNorm, "ctx.eps)", "1e-6)", "x", r"where eps=", "wrong"),
    (Polynomial, "return", "x.mul_(2)\n        return", "x", r"changed in place|fails", "wrong"),
]


FUNCTIONS = pytest.mark.parametrize("function", EXAMPLES, ids=lambda f: f.__name__)


each_mistake = partial(pytest.mark.parametrize, ("function", "old", "new", "name", "said"))


def wanting(args):
    """The arguments, each float tensor of them with a gradient: None is none for any."""
    return [a.clone().requires_grad_() if is_float(a) else a for a in args]


def is_float(value):
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def report_of(function, old, new, known=True):
    reference = OPERATIONS[function] if known else None
    args = wanting(EXAMPLES[function])
    return derive.audit(seeded(function, old, new), *args, reference=reference)


def row_of(report, name):
    return next(row for row in report.rows if row.input == name)


@FUNCTIONS
def test_a_right_function_is_right(function):
    report = derive.audit(function, *EXAMPLES[function])
    assert report.right, str(report)
    assert all(row.right and not row.wrong for row in report.rows)


@FUNCTIONS
def test_a_right_function_is_right_beside_its_operation(function):
    report = derive.audit(function, *EXAMPLES[function], reference=OPERATIONS[function])
    assert report.right, str(report)


@each_mistake(in_turns(MISTAKES, 30))
def test_a_mistake_is_named(function, old, new, name, said):
    report = report_of(function, old, new)
    row = row_of(report, name)
    assert not report.right and not row.right
    assert said is None or re.search(said, row.wrong), row.wrong
    assert row.wrong in str(report) and name in str(report)


@each_mistake(in_turns(MISTAKES, 40))
def test_a_mistake_is_found_where_no_operation_is_known(function, old, new, name, said):
    report = report_of(function, old, new, known=False)
    assert not row_of(report, name).right


@pytest.mark.parametrize(("function", "old", "new", "name", "said", "level"), CONDITIONS)
def test_a_mistake_that_shows_under_one_condition_is_found(function, old, new, name, said, level):
    report = report_of(function, old, new, known=False)
    row = row_of(report, name)
    assert report.verdict == level
    told = row.wrong if level == "wrong" else f"{row.fragile} {report.fragile}"
    assert re.search(said, told), told


def test_other_inputs_of_a_wrong_function_are_right():
    report = report_of(Linear, "grad_output @ weight", "-grad_output @ weight")
    assert [row.right for row in report.rows] == [False, True, True]


def test_a_factor_of_an_inner_term_is_named_with_its_term():
    def forward(ctx, x, w):
        centered = x - x.mean(1, keepdim=True)
        scale = (centered**2).mean(1, keepdim=True).add(1e-6).rsqrt()
        ctx.save_for_backward(centered * scale, scale, w)
        return centered * scale * w

    def backward(ctx, g):
        y, scale, w = ctx.saved_tensors
        own, along = g * w, (g * w * y).sum(1, keepdim=True)
        return scale * (own - own.mean(1, keepdim=True) - y * along), (g * y).sum(0)

    (x, w) = audited(forward, backward, torch.randn(4, 6), torch.randn(6)).rows
    assert w.right and re.search(r"1/size\(c\) is missing in .*Σ", x.wrong), x.wrong


def test_the_counterexample_is_small_and_true():
    report = report_of(MeanSquares, "2 * (pred", "(pred")
    wrong = seeded(MeanSquares, "2 * (pred", "(pred")
    *lines, asked, said = report.counterexample.splitlines()
    names = {"torch": torch, "MeanSquares": wrong}
    exec("\n".join(lines), names)
    (given,) = eval(asked, names)
    pred, target, cotangent = (float(names[n].detach()) for n in ("pred", "target", "grad_out"))
    assert names["pred"].shape == (1, 1)
    assert float(given) == cotangent * (pred - target)
    assert said == f"# gives [[{float(given):.4g}]]; it should be [[{2 * float(given):.4g}]]"


def test_the_derived_formula_is_in_the_person_s_names():
    report = report_of(Softmax, "s * (g - inner)", "s * g")
    assert "grad_x[n,c] = s[n,c]·(g[n,c] − Σ[c′] g[n,c′]·s[n,c′])" in report.formulas
    assert report.formulas[0] in str(report)


def test_names_of_inputs_are_those_of_forward():
    reference = "op f(X[n,k], A[o,k], B[o]) -> y\ny[n,o] = sum[k](X[n,k]*A[o,k]) + B[o]"
    wrong = seeded(Linear, "grad_output @ weight", "2 * grad_output @ weight")
    report = derive.audit(wrong, *EXAMPLES[Linear], reference=reference)
    assert [row.input for row in report.rows] == ["x", "weight", "bias"]
    assert any("weight[o,k]" in text for text in report.formulas)


def test_a_reference_function_stands_for_a_forward_that_autograd_does_not_see():
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return torch.from_numpy(x.detach().numpy() * w.detach().numpy())

    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return g * w, -g * x

    args = torch.randn(3), torch.randn(3)
    for reference in (None, lambda x, w: x * w, "y[n] = x[n]*w[n]"):
        report = audited(forward, backward, *args, reference=reference)
        assert [(row.right, row.wrong) for row in report.rows] == [
            (True, ""),
            (False, "the sign is wrong"),
        ]


def test_a_forward_that_is_not_its_reference_cannot_be_judged():
    with pytest.raises(derive.DeriveError, match="differs from that of reference="):
        derive.audit(Softmax, *EXAMPLES[Softmax], reference=lambda x: x.exp())


def test_a_forward_that_detaches_is_judged_by_differences_or_its_reference():
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x.detach()

    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * x

    assert "which detaches a part" in audited(forward, backward, torch.randn(3)).rows[0].wrong
    report = audited(forward, backward, torch.randn(3), reference=lambda x: x * x.detach())
    assert report.right


def test_what_is_no_function_is_refused():
    with pytest.raises(derive.DeriveError, match=r"not a torch\.autograd\.Function"):
        derive.audit(torch.nn.Linear, torch.randn(3))
    with pytest.raises(derive.DeriveError, match="example inputs"):
        derive.audit(Softmax)


def test_a_backward_of_too_few_gradients_is_wrong():
    report = report_of(SumAndProduct, "return gs + gp * b, gs + gp * a", "return gs + gp * b")
    assert not report.right
    assert "backward returns 1 gradient where forward takes 2 arguments" in str(report)


def test_a_backward_that_fails_is_wrong():
    report = report_of(Softmax, "return s * (g - inner)", "return s * missing")
    assert "backward fails: NameError" in report.rows[0].wrong


def test_a_cotangent_that_is_none_is_asked_for():
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    def backward(ctx, first, second):
        return first * 2 + second * 3

    report = audited(forward, backward, torch.randn(3))
    assert report.verdict == "fragile"
    assert "backward fails where only output 0 is used" in report.fragile[0]


def test_overflow_of_the_backward_alone_is_fragile():
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.nn.functional.softplus(x)

    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * x.exp() / (1 + x.exp())

    report = audited(forward, backward, torch.tensor([1.0, -2.0, 0.5]))
    assert report.verdict == "fragile"
    assert "times as large: it has nan" in report.rows[0].fragile


def test_another_slope_at_a_kink_is_a_remark():
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(min=0)

    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return torch.where(x > 0, g, 0)

    report = audited(forward, backward, torch.tensor([0.3, -1.2, 0.8, -0.4, 2.1, -0.7]))
    assert report.right
    assert any("slope jumps" in text for text in report.remarks)


TIES = [
    (lambda x, top: x == top, "takes none between: where all of x grows alike, it is"),
    (lambda x, _: torch.nn.functional.one_hot(x.argmax(1), 4), "takes another one than torch"),
    (lambda x, top: (x == top) / (x == top).sum(1, keepdim=True), ""),
]


@each_row("share, said", TIES)
def test_the_slopes_of_ties_are_told_apart(share, said):
    """The whole gradient for each tie is no slope, for the first one it is; shares are torch's."""

    def forward(ctx, x):
        ctx.save_for_backward(x, x.amax(1))
        return x.amax(1)

    def backward(ctx, g):
        x, m = ctx.saved_tensors
        return share(x, m.unsqueeze(1)) * g.unsqueeze(1)

    x = torch.tensor([[1.0, 2.0, 2.0, 0.0], [3.0, 3.0, 3.0, 1.0], [0.0, 1.0, 2.0, 3.0]])
    report = audited(forward, backward, x)
    assert report.right
    kinks = [text for text in report.remarks if "the slope jumps" in text]
    assert len(kinks) == bool(said) and said in "".join(kinks)


def second_of(function, old="ctx", new="ctx"):
    return derive.audit(seeded(function, old, new), *EXAMPLES[function]).second_order


def test_the_second_backward():
    from kit.functions import LayerNorm, Normalize

    assert second_of(Linear) == "right"
    assert second_of(LayerNorm) == "refused"
    assert second_of(LayerNorm, "    @once_differentiable\n", "") in ("wrong", "constant")
    assert second_of(Normalize) == "wrong"


def test_the_second_backward_of_what_has_constants():
    def forward(ctx, x, cos, sin):
        ctx.save_for_backward(cos, sin)
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    def backward(ctx, g):
        cos, sin = ctx.saved_tensors
        a, b = g.chunk(2, -1)
        return torch.cat([a * cos + b * sin, b * cos - a * sin], -1), None, None

    report = audited(forward, backward, torch.randn(2, 3, 8), torch.randn(3, 4), torch.randn(3, 4))
    assert report.right and report.second_order == "right" and not report.remarks


def test_a_forward_in_place_is_judged():
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    def backward(ctx, g):
        return g * 3

    report = audited(forward, backward, torch.randn(4))
    assert report.rows[0].wrong.startswith("the factor 3/2 is too many")


def test_a_forward_in_place_is_judged_in_float64():
    def forward(ctx, x):
        ctx.save_for_backward(x.clone())
        ctx.mark_dirty(x)
        return x.square_()

    def backward(ctx, g):
        return 2 * g * ctx.saved_tensors[0]

    report = audited(forward, backward, torch.randn(3, 4))
    assert report.right and not any("float64" in text for text in report.remarks)


@pytest.mark.parametrize("factor", [1, 2])
def test_a_sparse_gradient_is_judged_by_its_elements(factor):
    def forward(ctx, weight, index):
        ctx.save_for_backward(index)
        ctx.shape = weight.shape
        return weight[index]

    def backward(ctx, g):
        (index,) = ctx.saved_tensors
        return torch.sparse_coo_tensor(index[None], factor * g, ctx.shape), None

    report = audited(forward, backward, torch.randn(5, 3), torch.tensor([0, 2, 2, 4]))
    assert report.right == (factor == 1)


def test_the_fixed_module_has_the_right_gradient(tmp_path):
    report = report_of(Softmax, "s * (g - inner)", "s * g")
    path = tmp_path / "fixed.py"
    path.write_text(report.fixed)
    names = {}
    exec(compile(report.fixed, str(path), "exec"), names)
    x = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(names["softmax"], (x,))


def test_the_fixed_module_takes_a_number_that_the_example_leaves_out(tmp_path):
    class Tempered(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, T=2.0):
            s = (x / T).softmax(-1)
            ctx.save_for_backward(s)
            return s

        @staticmethod
        def backward(ctx, g):
            (s,) = ctx.saved_tensors
            return s * (g - (g * s).sum(-1, keepdim=True)), None

    report = derive.audit(Tempered, torch.randn(3, 5))
    assert report.verdict == "wrong"
    path = tmp_path / "fixed.py"
    path.write_text(report.fixed)
    names = {}
    exec(compile(report.fixed, str(path), "exec"), names)
    x = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    assert torch.allclose(names["Tempered"](x, T=3.0), (x / 3).softmax(-1))
    assert torch.autograd.gradcheck(lambda x: names["Tempered"](x, T=3.0), (x,))


def test_a_forward_that_is_not_read_says_why():
    def forward(ctx, x):
        y = torch.linalg.inv(x)
        ctx.save_for_backward(y)
        return y

    def backward(ctx, G):
        (y,) = ctx.saved_tensors
        return -y.mT @ G @ y

    report = audited(forward, backward, torch.randn(4, 4))
    assert not report.right
    (unread,) = (r for r in report.remarks if "no term is named" in r)
    assert "the function cannot be read" in unread and "linalg_inv_ex is not supported" in unread


@torch.library.custom_op("derive_tests::scaled_tanh", mutates_args=())
def scaled_tanh(x: torch.Tensor, scale: torch.Tensor, factor: float = 2.0) -> torch.Tensor:
    return torch.tanh(x) * scale * factor


def keep_inputs(ctx, inputs, output):
    x, scale, ctx.factor = inputs
    ctx.save_for_backward(x, scale)


@pytest.mark.parametrize(("power", "verdict"), [(2, "right"), (1, "wrong")])
def test_a_custom_operator_is_audited_with_its_registered_backward(power, verdict):
    def backward(ctx, G):
        x, scale = ctx.saved_tensors
        y, G = torch.tanh(x), G * ctx.factor
        return G * scale * (1 - y**power), (G * y).sum(0), None

    scaled_tanh.register_autograd(backward, setup_context=keep_inputs)
    report = derive.audit(scaled_tanh, torch.randn(3, 5), torch.randn(5))
    assert report.verdict == verdict and [row.right for row in report.rows][1:] == [True]
    if verdict == "wrong":
        assert "autograd.grad(scaled_tanh(x, scale), x, G)" in str(report)


@torch.library.custom_op("derive_tests::raised_by", mutates_args=())
def raised_by(x: torch.Tensor, shift: float = 0.5) -> torch.Tensor:
    return x.exp() + shift


def _keep(ctx, inputs, output):
    ctx.save_for_backward(inputs[0])


raised_by.register_autograd(lambda ctx, g: g * ctx.saved_tensors[0].exp(), setup_context=_keep)


def test_a_custom_operator_needs_no_gradient_of_a_default():
    """Torch passes no last argument on that has its default."""
    x = torch.randn(3)
    assert derive.audit(raised_by, x).verdict == "right"
    row = derive.audit(raised_by, x, 0.25).rows[0]
    assert row.wrong == "backward returns 1 gradient where forward takes 2 arguments"
    with pytest.raises(RuntimeError, match="incorrect number of gradients"):
        raised_by(x.requires_grad_(), 0.25).sum().backward()


def test_a_custom_operator_needs_a_backward_and_positional_arguments():
    @torch.library.custom_op("derive_tests::sine", mutates_args=())
    def sine(x: torch.Tensor) -> torch.Tensor:
        return x.sin()

    @torch.library.custom_op("derive_tests::raised", mutates_args=())
    def raised(x: torch.Tensor, *, by: float) -> torch.Tensor:
        return x + by

    with pytest.raises(derive.DeriveError, match="sine defines no backward"):
        derive.audit(sine, torch.randn(3))
    with pytest.raises(derive.DeriveError, match=r"raised .* keyword-only"):
        derive.audit(raised, torch.randn(3))


def with_jvp(forward, backward, jvp, keep):
    """A Function that keeps its arguments, and what ``keep`` makes of them, for both modes."""

    class Own(torch.autograd.Function):
        @staticmethod
        def setup_context(ctx, inputs, output):
            tensors = [a for a in (*inputs, *keep(output)) if isinstance(a, torch.Tensor)]
            ctx.numbers = [a for a in inputs if not isinstance(a, torch.Tensor)]
            ctx.save_for_backward(*tensors)
            ctx.save_for_forward(*tensors)

    Own.forward, Own.backward, Own.jvp = map(staticmethod, (forward, backward, jvp))
    return Own


def tanh_jvp(factor):
    return with_jvp(
        lambda x: x.tanh(),
        lambda ctx, g: g * (1 - ctx.saved_tensors[1] ** 2),
        lambda ctx, dx: factor * dx * (1 - ctx.saved_tensors[1] ** 2),
        lambda y: [y],
    )


def kept_for_backward_alone():
    own = tanh_jvp(1)
    own.setup_context = staticmethod(lambda ctx, inputs, y: ctx.save_for_backward(*inputs, y))
    return own


def product_jvp(jvp):
    return with_jvp(
        lambda a, b: a @ b,
        lambda ctx, g: (g @ ctx.saved_tensors[1].mT, ctx.saved_tensors[0].mT @ g),
        lambda ctx, da, db: jvp(*ctx.saved_tensors, da, db),
        lambda y: [],
    )


def power_jvp(jvp):
    return with_jvp(
        lambda x, n: x**n,
        lambda ctx, g: (g * ctx.numbers[0] * ctx.saved_tensors[0] ** (ctx.numbers[0] - 1), None),
        lambda ctx, dx, _: jvp(ctx.saved_tensors[0], ctx.numbers[0], dx),
        lambda y: [],
    )


def halves_jvp(jvp):
    """Two outputs; relu has a kink at 0, where examples lie."""
    return with_jvp(
        lambda x: (x.relu(), x.sin()),
        lambda ctx, g, h: g * (ctx.saved_tensors[0] > 0) + h * ctx.saved_tensors[0].cos(),
        lambda ctx, dx: jvp(ctx.saved_tensors[0], dx),
        lambda y: [],
    )


def untold(ctx, *tangents):
    raise NotImplementedError("later")


MATRICES = [torch.linspace(-1, 1, 6).reshape(2, 3), torch.linspace(0.5, 2, 12).reshape(3, 4)]
SQUARES = [torch.linspace(-1, 1, 9).reshape(3, 3), torch.linspace(0.5, 2, 9).reshape(3, 3).cos()]
X = torch.linspace(-1.5, 1.1, 6).reshape(2, 3)
ZEROS = torch.tensor([[0.0, 1.5], [-2.0, 0.0], [0.5, 0.0]])
JVPS = {
    "tanh": (tanh_jvp(1), [X], "right"),
    "a product": (product_jvp(lambda a, b, da, db: da @ b + a @ db), MATRICES, "right"),
    "a number": (power_jvp(lambda x, n, dx: n * x ** (n - 1) * dx), [X, 3], "right"),
    "zeros": (halves_jvp(lambda x, dx: (dx * (x >= 0), dx * x.cos())), [ZEROS], "right"),
    "a factor": (tanh_jvp(2), [X], r"wrong: along x, the output\[0, 0\] is "),
    "transposed": (
        product_jvp(lambda a, b, da, db: da @ b.mT + a @ db),
        SQUARES,
        r"wrong: along a, the output\[0, 0\] is ",
    ),
    "a forgotten input": (
        product_jvp(lambda a, b, da, db: da @ b),
        MATRICES,
        r"wrong: along b, the output\[0, 0\] is 0, not ",
    ),
    "a product of tangents": (
        product_jvp(lambda a, b, da, db: da @ b + a @ db + da @ db),
        MATRICES,
        r"wrong: along a, b, the output\[0, 0\] is ",
    ),
    "one of two outputs": (
        halves_jvp(lambda x, dx: (dx * (x >= 0), dx * x.sin())),
        [ZEROS],
        r"wrong: along x, output 1\[0, 1\] is ",
    ),
    "right for a cube": (
        power_jvp(lambda x, n, dx: n * x**2 * dx),
        [X, 2],
        r"wrong: along x, the output\[0, 0\] is ",
    ),
    "a size": (
        halves_jvp(lambda x, dx: (dx * (x >= 0), dx * x.cos() * len(x) / 3)),
        [ZEROS],
        r"fragile: at other proportions .*: along x, output 1\[0, 1\] is ",
    ),
    "an error": (
        product_jvp(lambda a, b, da, db: da @ db.mT),
        MATRICES,
        "fragile: it fails: RuntimeError: ",
    ),
    "not kept": (
        kept_for_backward_alone(),
        [X],
        "fragile: it fails: .*is saved by save_for_forward, which is not called",
    ),
    "none": (
        product_jvp(lambda *_: untold(*_)),
        MATRICES,
        "not judged: NotImplementedError: later",
    ),
}


@pytest.mark.parametrize("name", JVPS)
def test_a_jvp_is_judged_by_the_forward(name):
    function, args, said = JVPS[name]
    report = derive.audit(function, *args)
    *rows, jvp = report.rows
    assert jvp.input == "jvp"
    assert [row.verdict for row in rows] == ["right"] * len(rows)
    assert re.search(rf"^  jvp +{said}", str(report), re.MULTILINE), report
    assert report.right is not said.startswith("wrong")


@pytest.mark.parametrize("cast", [True, False])
def test_what_a_cast_hides_is_said(cast):
    def forward(ctx, p, t):
        p, t = (p.float(), t.float()) if cast else (p, t)
        ctx.save_for_backward(p, t)
        return 1 - 2 * (p * t).sum() / (p + t).sum()

    def backward(ctx, g):
        p, t = ctx.saved_tensors
        whole = (p + t).sum()
        return -2 * g * (t * whole - (p * t).sum()) / (whole**2 + 1e-4), None

    report = audited(forward, backward, torch.rand(3, 4), torch.arange(12).reshape(3, 4) % 2 * 1.0)
    said = "judged in 32 bits, as forward or backward computes in no more: errors below 0.0002"
    assert report.right is cast
    assert any(said in remark for remark in report.remarks) is cast
