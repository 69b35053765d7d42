"""Mistakes seeded in the right Functions: a text of the source, what stands there instead, the
input whose gradient is wrong, and what the report says of it.

``None`` as what is said: that it is wrong is enough, no explanation is asked.
"""

from kit.functions import (
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

MISTAKES = [
    # ---- Linear
    (Linear, "grad_output @ weight", "-grad_output @ weight", "x", r"^the sign is wrong"),
    (Linear, "grad_output @ weight", "2 * grad_output @ weight", "x", r"factor 2 is too many"),
    (Linear, "grad_output.t() @ x", "x.t() @ grad_output", "weight", r"transposed"),
    (
        Linear,
        "grad_output.sum(0)",
        "grad_output.mean(0)",
        "bias",
        r"factor 1/size\(n\) is too many",
    ),
    (Linear, "grad_output.sum(0)", "grad_output.sum(1)", "bias", r"sum is over o; .* over n"),
    (Linear, "grad_output.sum(0)", "None", "bias", r"backward returns None"),
    (Linear, "grad_output.t() @ x", "grad_output.t() @ x / x.shape[0]", "weight", r"1/size\(n\)"),
    (Linear, "grad_output.sum(0)", "grad_output[0]", "bias", None),
    # ---- LayerNorm
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
    (
        LayerNorm,
        "(d - xhat * c1",
        "(d * weight - xhat * c1",
        "x",
        r"factor weight\[c\] is too many in",
    ),
    (
        LayerNorm,
        "return dx, dw, db, None",
        "return dx, db, dw, None",
        "weight",
        r"gradient of bias",
    ),
    # ---- RMSNorm
    (RMSNorm, "rstd**3", "rstd**2", "x", r"rstd\[n\] is missing in the term −"),
    (RMSNorm, "* dot / n", "* dot", "x", r"factor 1/size\(c\) is missing in the term"),
    (RMSNorm, "- rstd**3", "+ rstd**3", "x", r"sign of the term .* is wrong"),
    (RMSNorm, " - rstd**3 * x * dot / n", "", "x", r"term −.* is missing"),
    (RMSNorm, "dw = (dy * x * rstd)", "dw = (dy * x)", "weight", r"factor rstd\[.*\] is missing"),
    (
        RMSNorm,
        "dw = (dy * x * rstd)",
        "dw = (wdy * x * rstd)",
        "weight",
        r"wdy stands where dy should",
    ),
    (
        RMSNorm,
        "dot = (wdy * x)",
        "dot = (dy * x)",
        "x",
        r"factor weight\[.*\] is missing in the term",
    ),
    # ---- Softmax
    (Softmax, "s * (g - inner)", "s * g", "x", r"term −.* is missing"),
    (Softmax, "s * (g - inner)", "g - inner", "x", r"factor s\[n,c\] is missing"),
    (Softmax, "(g * s).sum", "g.sum", "x", r"factor s\[n,.*\] is missing in the term|missing"),
    (Softmax, "(g * s).sum(-1", "(g * s).sum(0", "x", None),
    (Softmax, "s * (g - inner)", "s * (g + inner)", "x", r"sign of .* is wrong"),
    (Softmax, "s * (g - inner)", "s * (1 - s) * g", "x", r"sum is missing: only one term"),
    # ---- CrossEntropy
    (CrossEntropy, "p /= len(target)", "p", "logits", r"factor 1/size\(n\) is missing"),
    (CrossEntropy, "grad_output * p", "p", "logits", r"factor grad_output is missing"),
    (CrossEntropy, "p[torch.arange(len(target)), target] -= 1", "p", "logits", r"δ.* is missing"),
    (CrossEntropy, "-= 1", "+= 1", "logits", r"sign of .*δ.* is wrong"),
    (CrossEntropy, "p /= len(target)", "p /= p.shape[1]", "logits", r"size\(n\)/size\(c\)"),
    # ---- MeanSquares
    (MeanSquares, "2 * (pred", "(pred", "pred", r"factor 2 is missing"),
    (MeanSquares, "pred.numel()", "pred.shape[0]", "pred", r"factor 1/size\(c\) is missing"),
    (MeanSquares, "-grad_out * d", "grad_out * d", "target", r"sign is wrong"),
    (MeanSquares, "return grad_out * d,", "return d,", "pred", r"factor grad_out is missing"),
    (MeanSquares, "-grad_out * d", "None", "target", r"returns None"),
    # ---- SwiGLU
    (SwiGLU, "(1 - sig) + sig) * b", "(1 - sig) + sig)", "a", r"factor b\[n,c\] is missing"),
    (SwiGLU, "silu * (1 - sig)", "silu * sig", "a", None),
    (SwiGLU, "(silu * (1 - sig) + sig)", "(silu * (1 - sig))", "a", r"term .*sigmoid.* is missing"),
    (SwiGLU, "db = dc * silu", "db = dc * sig", "b", r"factor a\[n,c\] is missing"),
    (SwiGLU, "(1 - sig)", "(1 + sig)", "a", r"sign of .*sigmoid.* is wrong"),
    (SwiGLU, "return da, db", "return db, da", "a", r"gradient of b"),
    # ---- Scale
    (Scale, "(1 - t**2)", "(1 - t)", "x", r"stands where tanh\(x\[n,c\]\)² should|factor tanh"),
    (Scale, "g * alpha * (1", "g * (1", "x", r"factor alpha is missing"),
    (Scale, "dalpha = (g * t)", "dalpha = (g * x)", "alpha", r"x\[.*\] stands where tanh"),
    (Scale, "(g * t).sum()", "(g * t).mean()", "alpha", r"1/\(size\(n\)·size\(c\)\) is too many"),
    # ---- Bilinear
    (
        Bilinear,
        "dm = x.t() @ (g[:, None] * y)",
        "dm = x.t() @ y",
        "m",
        r"factor g\[.*\] is missing",
    ),
    (Bilinear, "dy = g[:, None] * (x @ m)", "dy = x @ m", "y", r"factor g\[n\] is missing"),
    # ---- Attention
    (Attention, "dq = ds @ k * ctx.scale", "dq = ds @ k", "q", r"size\(d\)"),
    (Attention, "ds.t() @ q * ctx.scale", "ds.t() @ q", "k", r"size\(d\)"),
    (Attention, " - (dp * p).sum(-1, keepdim=True)", "", "q", r"term .* is missing"),
    (Attention, "dv = p.t() @ do", "dv = -p.t() @ do", "v", r"sign is wrong"),
    # ---- Normalize
    (Normalize, ") / norm", ")", "x", r"factor 1/norm\[n\] is missing|norm"),
    (Normalize, " - y * (grad * y).sum(-1, keepdim=True)", "", "x", r"term −.* is missing"),
    (Normalize, "grad - y", "grad + y", "x", r"sign of the term .* is wrong"),
    # ---- SquaredRelu
    (SquaredRelu, "* 2 *", "*", "input", r"factor 2 is missing"),
    (SquaredRelu, "input < 0", "input > 0", "input", None),
    # ---- Polynomial
    (Polynomial, "1.5", "0.5", "x", r"factor 3 is missing"),
    (Polynomial, "5 * x**2 - 1", "5 * x**2 + 1", "x", r"sign of .* is wrong"),
    (
        Polynomial,
        "5 * x**2 - 1",
        "5 * x - 1",
        "x",
        r"x\[n\] stands where x\[n\]²|1/x\[n\] is too many",
    ),
    (Polynomial, " - 1", "", "x", r"term .* is missing"),
    # ---- SumAndProduct
    (SumAndProduct, "gs + gp * b", "gp * b", "a", r"term gs\[n,c\] is missing"),
    (
        SumAndProduct,
        "gs + gp * b",
        "gs + gp * a",
        "a",
        r"a\[n,c\] stands where b\[n,c\]|gradient of b",
    ),
    (SumAndProduct, "gs + gp * a", "gs - gp * a", "b", r"sign of the term .*gp.* is wrong"),
    # ---- Whiten
    (Whiten, "n * dout - dbeta", "n * dout", "x", r"term −.* is missing"),
    (Whiten, "inv / n *", "inv *", "x", r"factor 1/size\(n\) is missing"),
    (Whiten, "gamma * inv / n", "inv / n", "x", r"factor gamma\[c\] is missing"),
    (
        Whiten,
        "- xhat * dgamma",
        "- xc * dgamma",
        "x",
        r"inv\[c\] is missing|1/inv\[c\] is too many",
    ),
    # ---- Distance
    (Distance, "-whole.sum(0)", "whole.sum(0)", "y", r"sign is wrong"),
    (Distance, "2 * g", "g", "x", r"factor 2 is missing"),
    (Distance, "whole.sum(1)", "whole.mean(1)", "x", r"factor 1/size\(m\) is too many"),
]

CONDITIONS = [
    (
        Softmax,
        "inner = (g * s)",
        "g.mul_(1)\n        g += 0.5\n        inner = (g * s)",
        "x",
        r"cotangent",
        "wrong",
    ),
    (
        Linear,
        "if ctx.needs_input_grad[1]:",
        "if ctx.needs_input_grad[0]:",
        "weight",
        r"only weight",
        "wrong",
    ),
    (
        Softmax,
        "inner = (g * s)",
        "g = g.view(-1).view(s.shape)\n        inner = (g * s)",
        "x",
        r"contiguous",
        "fragile",
    ),
    (RMSNorm, "ctx.eps)", "1e-6)", "x", r"where eps=", "wrong"),
    (
        Polynomial,
        "return grad_output",
        "x.mul_(2)\n        return grad_output",
        "x",
        r"changed in place|fails",
        "wrong",
    ),
]
