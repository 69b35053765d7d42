"""The hand-written backward as equations beside the derived ones."""

import pytest
import torch
from kit.audited import audited
from kit.functions import EXAMPLES, OPERATIONS, CrossEntropy, Linear, Softmax
from kit.seeded import seeded
from torch.autograd import Function
from torch.autograd.function import once_differentiable

import derive


class _MeanAndVariance(Function):
    @staticmethod
    def forward(ctx, x):
        m = x.mean(-1)
        v = ((x - m[..., None]) ** 2).mean(-1)
        ctx.save_for_backward(x, m)
        return m, v

    @staticmethod
    @once_differentiable
    def backward(ctx, gm, gv):
        x, m = ctx.saved_tensors
        n = x.shape[-1]
        return gm[..., None] / n + gv[..., None] * (x - m[..., None]) / n


class RootMeanSquare(Function):
    @staticmethod
    def forward(x, w, eps):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * w

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, w, ctx.eps = inputs
        ctx.save_for_backward(x, w)

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        rstd = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + ctx.eps)
        dot = (g * w * x).mean(-1, keepdim=True)
        dx = rstd * (g * w) - rstd**2 * x * dot
        return dx, (g * x * rstd).sum(0), None


class Scaled(Function):
    @staticmethod
    def forward(x, w, scale=2.0):
        return x * w * scale

    @staticmethod
    def setup_context(ctx, inputs, output):
        *both, ctx.scale = inputs
        ctx.save_for_backward(*both)

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return g * w * ctx.scale, g * x, None


class Several(Function):
    @staticmethod
    def forward(ctx, *args):
        a, b = args
        ctx.save_for_backward(a, b)
        return a * b

    @staticmethod
    def backward(ctx, *grads):
        _, b = ctx.saved_tensors
        return grads[0] * b, grads[0] * b


def test_the_gradients_that_are_wrong_stand_beside_the_derived_ones():
    report = derive.audit(RootMeanSquare, torch.randn(3, 5), torch.randn(5), 1e-6)
    assert report.written == (
        "rstd[n] = 1/√(mean[c](x[n,c]²) + eps)",
        "dot[n] = mean[c](g[n,c]·w[c]·x[n,c])",
        "grad_x[n,c] = rstd[n]·g[n,c]·w[c] − rstd[n]²·x[n,c]·dot[n]",
    )
    assert "\nwritten\n  rstd[n] = " in str(report)


def test_of_an_argument_that_has_its_default():
    report = derive.audit(Scaled, torch.randn(3), torch.randn(3))
    assert report.written == ("grad_w[c] = g[c]·x[c]",)
    assert report.remarks == ()


def test_of_several_outputs_and_under_a_private_name():
    report = derive.audit(_MeanAndVariance, torch.randn(3, 5))
    assert report.written == ("grad_x[n,c] = gm[n]/size(c) + gv[n]·(x[n,c] − m[n])/size(c)",)
    assert "the factor 2 is missing" in report.rows[0].wrong


def test_of_arguments_without_names():
    report = derive.audit(Several, torch.randn(3), torch.randn(3))
    assert [row.input for row in report.rows] == ["args[0]", "args[1]"]
    assert report.written == ("grad_args1[c] = grads0[c]·args1[c]",)


@pytest.mark.parametrize(
    ("function", "old", "new", "said"),
    [
        (
            Linear,
            "grad_output @ weight",
            "-grad_output @ weight",
            "(−grad_output[n,o]·weight[o,k])",
        ),
        (Softmax, "s * (g - inner)", "s * g", "grad_x[n,c] = "),
        (CrossEntropy, "-= 1", "+= 1", "grad_output·"),
    ],
)
def test_of_seeded_mistakes(function, old, new, said):
    report = derive.audit(
        seeded(function, old, new), *EXAMPLES[function], reference=OPERATIONS[function]
    )
    assert said in report.written[-1], report.written


def test_a_right_one_and_one_that_is_not_read_have_none():
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    def backward(ctx, g):
        return torch.from_numpy(3 * g.detach().numpy())

    assert derive.audit(Softmax, *EXAMPLES[Softmax]).written == ()
    report = audited(forward, backward, torch.randn(3))
    assert not report.right and report.written == ()


def test_a_backward_of_too_many_gradients_says_how_many():
    def forward(ctx, x):
        return x * 2

    def backward(ctx, g):
        return g * 2, g

    report = audited(forward, backward, torch.randn(3))
    assert report.rows[0].wrong == "backward returns 2 gradients where forward takes 1 argument"


def test_a_gradient_of_a_default_is_missing():
    """Torch wants one for a default that is left out if it calls setup_context."""
    made = derive.audit(seeded(Scaled, ", None", ""), torch.randn(3), torch.randn(3)).rows[0]
    assert (
        made.wrong
        == "backward returns 2 gradients where forward takes 3 arguments with its defaults"
    )

    def forward(ctx, x, k=2.0):
        ctx.k = k
        return x * k

    report = audited(forward, lambda ctx, g: g * ctx.k, torch.randn(3))
    assert report.verdict == "fragile" and "fails where k is given" in str(report)


def test_a_cotangent_that_is_changed_in_place_is_said_once():
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g.mul_(x.cos())

    report = audited(forward, backward, torch.randn(4))
    assert report.rows[0].wrong == "the cotangent g is changed in place by backward"


class SineAndGate(Function):
    @staticmethod
    def forward(ctx, a, s):
        ctx.save_for_backward(a, s)
        return a.sin() + torch.tanh(a * s)

    @staticmethod
    def backward(ctx, G):
        a, s = ctx.saved_tensors
        return G * a.cos(), (G * a * (1 - torch.tanh(a * s) ** 2)).sum(0)


def test_two_missing_terms_are_no_changed_factor_that_cancels_them():
    torch.manual_seed(0)
    row = derive.audit(SineAndGate, torch.randn(4, 3), torch.randn(3)).rows[0]
    assert row.wrong.count("the term") == 2 and row.wrong.count("is missing") == 2


def test_an_output_that_is_marked_has_no_cotangent():
    def forward(ctx, x, w):
        gate = torch.sigmoid(w)
        usage = gate * x
        ctx.mark_non_differentiable(usage)
        ctx.save_for_backward(x, gate)
        return usage, usage * x

    def backward(ctx, gu, gy):
        x, gate = ctx.saved_tensors
        return gy * gate * x, gy * x**2 * gate * (1 - gate)

    report = audited(forward, backward, torch.randn(3), torch.randn(3))
    assert report.formulas[0] == "grad_x[c] = 2·gy[c]·usage[c]"
    assert report.rows[0].wrong == "the factor 2 is missing"


class Distilled(Function):
    @staticmethod
    def forward(ctx, x, t, T, reduction="mean"):
        p = torch.softmax(x / T, -1)
        ctx.save_for_backward(p, t)
        ctx.T, ctx.reduction = T, reduction
        loss = (t * torch.log_softmax(x / T, -1)).sum(-1) * x.shape[-1]
        return loss.sum() if reduction == "sum" else loss.mean()

    @staticmethod
    def backward(ctx, g):
        p, t = ctx.saved_tensors
        many = len(p) if ctx.reduction == "mean" else 1
        d = g * (t - p * t.sum(-1, keepdim=True)) * p.shape[-1]
        return d / ctx.T / many, None, None, None


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (" / ctx.T", "", "the factor 1/T is missing"),
        (" / ctx.T", " / ctx.T**2", "the factor T is missing"),
        (" * p.shape[-1]", "", "the factor size(c) is missing"),
        (" else 1", " else 4", "where reduction='sum': it is 0.25 times what it should be"),
    ],
)
def test_a_ratio_is_told_by_what_is_missing(old, new, said):
    example = torch.randn(5, 3), torch.rand(5, 3), 2.0
    assert derive.audit(seeded(Distilled, old, new), *example).rows[0].wrong == said
