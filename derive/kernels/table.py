"""Torch's fused kernels, each with the equation of its result."""

from __future__ import annotations

from collections.abc import Mapping

from derive.kernels.attention import Attention
from derive.kernels.kernel_spec import KernelSpec
from derive.kernels.normalization import Normalisation

_GELU_TANH = """op gelu(g, x) -> dx
u = sqrt(2/pi)*(x + 0.044715*x**3)
dx = g*((1 + tanh(u))/2 + x*(1 - tanh(u)**2)*sqrt(2/pi)*(1 + 3*0.044715*x**2)/2)"""

_MISH = """op mish(g, x) -> dx
t = tanh(softplus(x))
dx = g*(t + x*(1 - t**2)*sigmoid(x))"""

_HARDTANH = """op hardtanh(x; low=-1.0, high=1.0) -> y
y = where(x <= low, low, where(x >= high, high, x))"""

_HARDTANH_SLOPE = """op hardtanh(g, x; low=-1.0, high=1.0) -> dx
dx = where(x <= low, 0, where(x >= high, 0, g))"""

_HUBER = """op huber(x, t; width=1.0) -> y
e = x - t
y = where(abs(e) <= width, e**2/2, width*(abs(e) - width/2))"""

_SMOOTH_L1 = """op smooth_l1(x, t; width=1.0) -> y
e = x - t
y = where(abs(e) < width, e**2/(2*width), abs(e) - width/2)"""

_GLU_SLOPE = """op glu(g, x[t]; size(t)=2) -> dx
a = sigmoid(x[1])
dx[t] = where(t == 0, g*a, g*x[0]*a*(1 - a))"""

FORWARD = (
    KernelSpec(
        "glu",
        "op glu(x[t]; size(t)=2) -> y\ny = x[0]*sigmoid(x[1])",
        "torch.nn.functional.glu(x, t).squeeze(t)",
    ),
    KernelSpec("gelu", "y = x*(1 + erf(x/sqrt(2)))/2", "torch.nn.functional.gelu(x)"),
    KernelSpec(
        "gelu (tanh)",
        "y = x*(1 + tanh(sqrt(2/pi)*(x + 0.044715*x**3)))/2",
        "torch.nn.functional.gelu(x, approximate='tanh')",
    ),
    KernelSpec("silu", "y = x*sigmoid(x)", "torch.nn.functional.silu(x)"),
    KernelSpec("mish", "y = x*tanh(softplus(x))", "torch.nn.functional.mish(x)"),
    KernelSpec(
        "selu",
        "y = 1.0507009873554805*where(x > 0, x, 1.6732632423543772*expm1(x))",
        "torch.selu(x)",
    ),
    KernelSpec(
        "elu",
        "op elu(x; alpha=1.0) -> y\ny = where(x > 0, x, alpha*expm1(x))",
        "torch.nn.functional.elu(x, alpha)",
    ),
    KernelSpec(
        "celu",
        "op celu(x; alpha=1.0) -> y\ny = where(x > 0, x, alpha*expm1(x/alpha))",
        "torch.celu(x, alpha)",
    ),
    KernelSpec(
        "leaky_relu",
        "op leaky_relu(x; slope=0.01) -> y\ny = where(x > 0, x, slope*x)",
        "torch.nn.functional.leaky_relu(x, slope)",
    ),
    KernelSpec(
        "hardswish",
        "y = where(x <= -3, 0, where(x >= 3, x, x*(x + 3)/6))",
        "torch.nn.functional.hardswish(x.clamp(-3), inplace=True)",
    ),
    KernelSpec(
        "hardswish by clamp", "y = x*clamp(x + 3, 0, 6)/6", "torch.nn.functional.hardswish(x)"
    ),
    KernelSpec(
        "hardsigmoid",
        "y = where(x <= -3, 0, where(x >= 3, 1, (x + 3)/6))",
        "torch.nn.functional.hardsigmoid(x)",
    ),
    KernelSpec(
        "hardsigmoid by clamp", "y = clamp(x + 3, 0, 6)/6", "torch.nn.functional.hardsigmoid(x)"
    ),
    KernelSpec(
        "hardtanh", _HARDTANH, "torch.ops.aten.hardtanh(x, low, high)", domain="low <= high"
    ),
    KernelSpec(
        "softshrink",
        "op softshrink(x; width=0.5) -> y\ny = where(abs(x) <= width, 0, x - width*sign(x))",
        "torch.nn.functional.softshrink(x, width)",
        domain="0 <= width",
    ),
    KernelSpec(
        "hardshrink",
        "op hardshrink(x; width=0.5) -> y\ny = where(abs(x) <= width, 0, x)",
        "torch.nn.functional.hardshrink(x, width)",
    ),
    KernelSpec(
        "huber_loss", _HUBER, "torch.ops.aten.huber_loss(x, t, 0, width)", domain="0 < width"
    ),
    KernelSpec(
        "smooth_l1_loss",
        _SMOOTH_L1,
        "torch.ops.aten.smooth_l1_loss(x, t, 0, width)",
        domain="0 < width",
    ),
    KernelSpec(
        "smooth_l1_loss of any width",
        _SMOOTH_L1.replace("/(2*width)", "*where(width > 0, 1/width, 1)/2"),
        "torch.ops.aten.smooth_l1_loss(x, t, 0, width)",
        domain="0 < width",
    ),
)
"""The kernels that a forward may call."""


def _linear(name: str, equation: str, call: str, smooth: bool = True) -> KernelSpec:
    """The spec of a kernel that is linear in the cotangent g."""
    return KernelSpec(name, equation, call, "g", smooth=smooth)


BACKWARD = (
    _linear("glu backward", _GLU_SLOPE, "torch.ops.aten.glu_backward(g, x, t)"),
    _linear(
        "gelu backward",
        "dx = g*((1 + erf(x/sqrt(2)))/2 + x*exp(-x**2/2)/sqrt(2*pi))",
        "torch.ops.aten.gelu_backward(g, x)",
    ),
    _linear(
        "gelu (tanh) backward", _GELU_TANH, "torch.ops.aten.gelu_backward(g, x, approximate='tanh')"
    ),
    _linear(
        "silu backward",
        "dx = g*sigmoid(x)*(1 + x*(1 - sigmoid(x)))",
        "torch.ops.aten.silu_backward(g, x)",
        smooth=False,
    ),
    _linear("mish backward", _MISH, "torch.ops.aten.mish_backward(g, x)", smooth=False),
    _linear(
        "selu backward",
        "dx = 1.0507009873554805*g*where(x > 0, 1, 1.6732632423543772*exp(x))",
        "torch.ops.aten.elu_backward(g, 1.6732632423543772, 1.0507009873554805, 1, False, x)",
    ),
    _linear(
        "elu backward",
        "op elu(g, x; alpha=1.0) -> dx\ndx = g*where(x > 0, 1, alpha*exp(x))",
        "torch.ops.aten.elu_backward(g, alpha, 1, 1, False, x)",
    ),
    _linear(
        "leaky_relu backward",
        "op leaky_relu(g, x; slope=0.01) -> dx\ndx = g*where(x > 0, 1, slope)",
        "torch.ops.aten.leaky_relu_backward(g, x, slope, False)",
    ),
    _linear(
        "celu backward",
        "op celu(g, x; alpha=1.0) -> dx\ndx = g*where(x > 0, 1, exp(x/alpha))",
        "torch.ops.aten.elu_backward(g, alpha, 1, 1/alpha, False, x)",
    ),
    _linear(
        "hardswish backward",
        "dx = g*where(x <= -3, 0, where(x >= 3, 1, x/3 + 1/2))",
        "torch.ops.aten.hardswish_backward(g, x)",
    ),
    _linear(
        "hardtanh backward", _HARDTANH_SLOPE, "torch.ops.aten.hardtanh_backward(g, x, low, high)"
    ),
    _linear(
        "shrink backward",
        "op shrink(g, x; width=0.5) -> dx\ndx = where(abs(x) <= width, 0, g)",
        "torch.ops.aten.hardshrink_backward(g, x, width)",
    ),
    _linear(
        "softmax backward",
        "dx[i] = y[i]*(g[i] - sum[j](g[j]*y[j]))",
        "torch._softmax_backward_data(g, y, i, y.dtype)",
    ),
    _linear(
        "log_softmax backward",
        "dx[i] = g[i] - exp(y[i])*sum[j](g[j])",
        "torch._log_softmax_backward_data(g, y, i, y.dtype)",
    ),
    _linear("tanh backward", "dx = g*(1 - y**2)", "torch.ops.aten.tanh_backward(g, y)"),
    _linear("sigmoid backward", "dx = g*y*(1 - y)", "torch.ops.aten.sigmoid_backward(g, y)"),
)
"""Further kernels for a backward; smooth ones also where a graph of the backward is needed."""


def _norm(
    name: str, axes: str, along: str, weight: str, call: str, gradients: str
) -> Normalisation:
    """Specs for x[axes] normalized along some of the axes, with weight and bias over given axes."""
    rows = ",".join(i for i in axes.split(",") if i not in along.split(","))
    x, row = f"[{axes}]", f"[{rows}]" if rows else ""
    forward = f"""op {name}(x{x}, w[{weight}], b[{weight}]; eps=1e-5, share=1.0) -> y, mu, rstd
mu{row} = mean[{along}](x{x})
rstd{row} = rsqrt(mean[{along}]((x{x} - mu{row})**2)/share + eps)
y{x} = (x{x} - mu{row})*rstd{row}*w[{weight}] + b[{weight}]"""
    rest = ",".join(i for i in axes.split(",") if i not in weight.split(","))
    backward = f"""op {name}(g{x}, x{x}, mu{row}, rstd{row}, w[{weight}]; share=1.0) -> dx, dw, db
h{x} = (x{x} - mu{row})*rstd{row}
v{x} = g{x}*w[{weight}]
dx{x} = rstd{row}*(v{x} - mean[{along}](v{x}) - h{x}*mean[{along}](v{x}*h{x})/share)
dw[{weight}] = sum[{rest}](g{x}*h{x})
db[{weight}] = sum[{rest}](g{x})"""
    known = ("mu", "rstd")
    pulled_back = KernelSpec(f"{name} backward", backward, gradients, "g", statistics=known)
    return Normalisation(KernelSpec(name, forward, call), pulled_back)


NORMALISATIONS = (
    _norm(
        *("layer_norm", "*p,*s", "*s", "*s"),
        *("rt.native_layer_norm(x, along, w, b, eps)",),
        *("rt.native_layer_norm_backward(g, x, along, mu, rstd, w, wanted)",),
    ),
    _norm(
        *("group_norm", "n,k,c,*s", "c,*s", "k,c"),
        *(
            "rt.native_group_norm(x, w, b, eps)",
            "rt.native_group_norm_backward(g, x, mu, rstd, w, wanted)",
        ),
    ),
    _norm(
        *("instance_norm", "n,c,*s", "*s", "c"),
        *(
            "rt.native_instance_norm(x, w, b, eps)",
            "rt.native_instance_norm_backward(g, x, mu, rstd, w, wanted)",
        ),
    ),
    _norm(
        *("batch_norm", "n,c,*s", "n,*s", "c"),
        *(
            "rt.native_batch_norm(x, w, b, eps)",
            "rt.native_batch_norm_backward(g, x, mu, rstd, w, wanted)",
        ),
    ),
)
"""The normalization kernels, forward and backward, which have several results."""


def _attention(name: str, added: str, kind: str, seen: str) -> Attention:
    """Specs for attention whose scores have an additive mask or a boolean one."""
    inputs = "q[*b,i,d], k[*b,j,d], v[*b,j,e]", f"m[*b,i,j]{kind}"
    scores = f"scale*sum[d](q[*b,i,d]*k[*b,j,d]){added}"
    forward = f"""op attention({inputs[0]}, {inputs[1]}; scale=1.0) -> y, lse
s[*b,i,j] = {scores}
lse[*b,i] = logsumexp[j{seen}](s[*b,i,j])
y[*b,i,e] = sum[j{seen}](exp(s[*b,i,j] - lse[*b,i])*v[*b,j,e])"""
    weights = f"exp({scores} - lse[*b,i])"
    weights = f"[m[*b,i,j]]*{weights}" if seen else weights
    given = f"g[*b,i,e], {inputs[0]}, y[*b,i,e], lse[*b,i], {inputs[1]}"
    backward = f"""op attention({given}; scale=1.0) -> dq, dk, dv
p[*b,i,j] = {weights}
ds[*b,i,j] = p[*b,i,j]*sum[e](g[*b,i,e]*(v[*b,j,e] - y[*b,i,e]))
dq[*b,i,d] = scale*sum[j](ds[*b,i,j]*k[*b,j,d])
dk[*b,j,d] = scale*sum[i](ds[*b,i,j]*q[*b,i,d])
dv[*b,j,e] = sum[i](p[*b,i,j]*g[*b,i,e])"""
    return Attention(
        KernelSpec(name, forward, "rt.attention(q, k, v, m, scale)"),
        KernelSpec(
            f"{name} backward",
            backward,
            "rt.attention_backward(g, q, k, v, y, lse, m, scale)",
            "g",
            statistics=("lse",),
        ),
    )


ATTENTIONS = (
    _attention("attention", " + m[*b,i,j]", "", ""),
    _attention("masked attention", "", ": bool", " | m[*b,i,j]"),
)
"""The attention kernels, with an additive mask and with a boolean one."""

_OF_SEVERAL = tuple(
    row for kind in (*NORMALISATIONS, *ATTENTIONS) for row in (kind.forward, kind.backward)
)

KERNELS: Mapping[str, KernelSpec] = {row.name: row for row in (*FORWARD, *BACKWARD, *_OF_SEVERAL)}
