"""Gates: an axis has two, three or four equal parts, or interleaved pairs."""

import math

import torch
from kit.right.entry import entry
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional as F


class SwiGLUHalves(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        gate, up = x.chunk(2, dim=-1)
        return F.silu(gate) * up

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        gate, up = x.chunk(2, dim=-1)
        s = torch.sigmoid(gate)
        grad_gate = grad_output * up * s * (1 + gate * (1 - s))
        grad_up = grad_output * gate * s
        return torch.cat((grad_gate, grad_up), dim=-1)


class GeGLUTanh(Function):
    @staticmethod
    def forward(x):
        half = x.shape[-1] // 2
        return F.gelu(x[..., :half], approximate="tanh") * x[..., half:]

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        half = x.shape[-1] // 2
        a, b = x[..., :half], x[..., half:]
        c = math.sqrt(2 / math.pi)
        t = torch.tanh(c * (a + 0.044715 * a**3))
        slope = 0.5 * (1 + t) + 0.5 * a * (1 - t * t) * c * (1 + 3 * 0.044715 * a * a)
        gelu = 0.5 * a * (1 + t)
        return torch.cat([dy * b * slope, dy * gelu], -1)


class GeGLUExact(Function):
    @staticmethod
    def forward(ctx, x):
        value, gate = torch.tensor_split(x, 2, dim=-1)
        ctx.save_for_backward(value, gate)
        return value * F.gelu(gate)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        value, gate = ctx.saved_tensors
        cdf = 0.5 * (1 + torch.erf(gate / math.sqrt(2)))
        pdf = torch.exp(-0.5 * gate * gate) / math.sqrt(2 * math.pi)
        dx = torch.empty(*value.shape[:-1], 2 * value.shape[-1], dtype=g.dtype)
        first, second = dx.chunk(2, -1)
        first.copy_(g * gate * cdf)
        second.copy_(g * value * (cdf + gate * pdf))
        return dx


class GLUChannels(Function):
    """A gate along any axis; `dim` is an argument."""

    @staticmethod
    def forward(ctx, x, dim):
        a, b = x.chunk(2, dim)
        s = torch.sigmoid(b)
        ctx.save_for_backward(a, s)
        ctx.dim = dim
        return a * s

    @staticmethod
    def backward(ctx, grad):
        a, s = ctx.saved_tensors
        return torch.cat((grad * s, grad * a * s * (1 - s)), ctx.dim), None


class QuickGeGLUBias(Function):
    @staticmethod
    def forward(ctx, x, bias):
        h = x + bias
        ctx.save_for_backward(h)
        gate, up = h.split(h.shape[-1] // 2, -1)
        return gate * torch.sigmoid(1.702 * gate) * up

    @staticmethod
    def backward(ctx, grad_output):
        (h,) = ctx.saved_tensors
        gate, up = h.split(h.shape[-1] // 2, -1)
        s = torch.sigmoid(1.702 * gate)
        dgate = grad_output * up * s * (1 + 1.702 * gate * (1 - s))
        dup = grad_output * gate * s
        dh = torch.cat([dgate, dup], dim=-1)
        return dh, dh.flatten(0, -2).sum(0)


class SwiGLUInterleaved(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        gate, up = x[..., ::2], x[..., 1::2]
        return gate * torch.sigmoid(gate) * up

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        gate, up = x[..., ::2], x[..., 1::2]
        s = torch.sigmoid(gate)
        dx = torch.empty_like(x)
        dx[..., ::2] = g * up * (s + gate * s * (1 - s))
        dx[..., 1::2] = g * gate * s
        return dx


class ClampedSwiGLU(Function):
    """An interleaved SwiGLU that clamps both parts and adds one to the linear part."""

    @staticmethod
    def forward(ctx, x, alpha=1.702, limit=7.0):
        ctx.save_for_backward(x)
        ctx.alpha, ctx.limit = alpha, limit
        gate = x[..., ::2].clamp(max=limit)
        up = x[..., 1::2].clamp(-limit, limit)
        return gate * torch.sigmoid(alpha * gate) * (up + 1)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        alpha, limit = ctx.alpha, ctx.limit
        raw_gate, raw_up = x[..., ::2], x[..., 1::2]
        gate, up = raw_gate.clamp(max=limit), raw_up.clamp(-limit, limit)
        s = torch.sigmoid(alpha * gate)
        dgate = g * (up + 1) * s * (1 + alpha * gate * (1 - s)) * (raw_gate <= limit)
        dup = g * gate * s * (raw_up.abs() <= limit)
        return torch.stack((dgate, dup), -1).flatten(-2), None, None


class WeightedSwiGLU(Function):
    """A SwiGLU of routed tokens, weighted by their experts."""

    @staticmethod
    def forward(ctx, x, weights):
        ctx.save_for_backward(x, weights)
        a, b = x.chunk(2, -1)
        return F.silu(a) * b * weights

    @staticmethod
    def backward(ctx, g):
        x, weights = ctx.saved_tensors
        a, b = x.chunk(2, -1)
        s = torch.sigmoid(a)
        silu = a * s
        gw = g * weights
        grad_x = torch.cat((gw * b * (s + silu * (1 - s)), gw * silu), -1)
        grad_weights = (g * silu * b).sum(-1, keepdim=True)
        return grad_x, grad_weights


class LSTMCell(Function):
    """One axis has four gates; there are two outputs."""

    @staticmethod
    def forward(ctx, gates, c):
        i, f, z, o = gates.chunk(4, 1)
        i, f, z, o = i.sigmoid(), f.sigmoid(), z.tanh(), o.sigmoid()
        new = f * c + i * z
        t = new.tanh()
        ctx.save_for_backward(i, f, z, o, c, t)
        return o * t, new

    @staticmethod
    def backward(ctx, dh, dc):
        i, f, z, o, c, t = ctx.saved_tensors
        dc = dc + dh * o * (1 - t * t)
        di = dc * z * i * (1 - i)
        df = dc * c * f * (1 - f)
        dz = dc * i * (1 - z * z)
        do = dh * t * o * (1 - o)
        return torch.cat([di, df, dz, do], 1), dc * f


class GRUCell(Function):
    """One axis has three gates, both for the input and for the state."""

    @staticmethod
    def forward(ctx, gi, gh, h):
        ir, iz, inn = gi.chunk(3, 1)
        hr, hz, hn = gh.chunk(3, 1)
        r, z = torch.sigmoid(ir + hr), torch.sigmoid(iz + hz)
        n = torch.tanh(inn + r * hn)
        ctx.save_for_backward(r, z, n, hn, h)
        return (1 - z) * n + z * h

    @staticmethod
    def backward(ctx, g):
        r, z, n, hn, h = ctx.saved_tensors
        dn = g * (1 - z) * (1 - n * n)
        dz = g * (h - n) * z * (1 - z)
        dr = dn * hn * r * (1 - r)
        grad_gi = torch.cat([dr, dz, dn], 1)
        grad_gh = torch.cat([dr, dz, dn * r], 1)
        return grad_gi, grad_gh, g * z


def _halves(*shape):
    return (torch.randn(*shape),)


ENTRIES = [
    entry(SwiGLUHalves, _halves, (3, 8), (1, 2), (2, 3, 6)),
    entry(GeGLUTanh, _halves, (4, 6), (3, 2), (2, 2, 10)),
    entry(GeGLUExact, _halves, (2, 3, 4), (5, 2), (1, 8)),
    entry(
        GLUChannels,
        lambda n, c, t, dim: (torch.randn(n, 2 * c, t), dim),
        *((2, 3, 5, 1), (1, 1, 2, 1), (3, 2, 4, -1)),
    ),
    entry(
        QuickGeGLUBias,
        lambda n, h: (torch.randn(n, 2 * h), torch.randn(2 * h)),
        *((4, 3), (1, 1), (3, 5)),
    ),
    entry(SwiGLUInterleaved, _halves, (3, 6), (2, 2), (2, 3, 8)),
    entry(
        ClampedSwiGLU,
        lambda n, h, limit: (3 * torch.randn(n, 2 * h), 1.702, limit),
        *((4, 4, 2.0), (2, 1, 7.0), (3, 5, 1.0)),
    ),
    entry(
        WeightedSwiGLU,
        lambda n, h: (torch.randn(n, 2 * h), torch.rand(n, 1)),
        *((5, 4), (1, 1), (3, 2)),
    ),
    entry(
        LSTMCell, lambda n, h: (torch.randn(n, 4 * h), torch.randn(n, h)), *((3, 5), (1, 1), (2, 4))
    ),
    entry(
        GRUCell,
        lambda n, h: (torch.randn(n, 3 * h), torch.randn(n, 3 * h), torch.randn(n, h)),
        *((3, 4), (1, 1), (2, 5)),
    ),
]
