"""Norms: groups, training flags, other dtypes inside, in-place memory."""

import torch
from kit.right.entry import entry
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional as F


class RMSNormFloat32(Function):
    """Computes in float32 for every input dtype."""

    @staticmethod
    def forward(ctx, x, weight, eps=1e-6):
        wide = x.float()
        rstd = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
        ctx.save_for_backward(x, weight, rstd)
        return (wide * rstd).to(x.dtype) * weight

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        x, weight, rstd = ctx.saved_tensors
        xhat = x.float() * rstd
        gw = (g * weight).float()
        dx = rstd * (gw - xhat * (gw * xhat).mean(-1, keepdim=True))
        dweight = (g * xhat.to(x.dtype)).flatten(0, -2).sum(0)
        return dx.to(x.dtype), dweight, None


class LayerNormFloat64(Function):
    """Computes in float64; the weight is relative to one."""

    @staticmethod
    def forward(ctx, x, weight, bias):
        wide = x.double()
        var, mean = torch.var_mean(wide, -1, correction=0, keepdim=True)
        rstd = torch.rsqrt(var + 1e-5)
        ctx.save_for_backward(x, weight, mean, rstd)
        return ((wide - mean) * rstd * (1 + weight.double()) + bias.double()).to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        x, weight, mean, rstd = ctx.saved_tensors
        wide = g.double()
        xhat = (x.double() - mean) * rstd
        d = wide * (1 + weight.double())
        shared = d.mean(-1, keepdim=True) + xhat * (d * xhat).mean(-1, keepdim=True)
        dx = (d - shared) * rstd
        dweight = (wide * xhat).flatten(0, -2).sum(0)
        return dx.to(x.dtype), dweight.to(weight.dtype), g.flatten(0, -2).sum(0)


class GroupNorm(Function):
    """The number of groups divides the number of channels."""

    @staticmethod
    def forward(ctx, x, weight, bias, groups):
        grouped = x.unflatten(1, (groups, -1)).flatten(2)
        mean = grouped.mean(-1, keepdim=True)
        rstd = torch.rsqrt(grouped.var(-1, correction=0, keepdim=True) + 1e-5)
        xhat = (grouped - mean) * rstd
        ctx.save_for_backward(xhat, rstd, weight)
        ctx.groups, ctx.shape = groups, x.shape
        return xhat.reshape(x.shape) * weight[:, None] + bias[:, None]

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        xhat, rstd, weight = ctx.saved_tensors
        d = (g * weight[:, None]).reshape(xhat.shape)
        shared = d.mean(-1, keepdim=True) + xhat * (d * xhat).mean(-1, keepdim=True)
        dweight = (g * xhat.reshape(ctx.shape)).sum((0, 2))
        return ((d - shared) * rstd).reshape(ctx.shape), dweight, g.sum((0, 2)), None


class BatchNorm(Function):
    """Batch statistics in training, which move the running ones; these otherwise."""

    @staticmethod
    def forward(ctx, x, weight, bias, mean, var, training):
        if training:
            running_mean, running_var = mean, var
            mean, var = x.mean(0), x.var(0, correction=0)
            running_mean.lerp_(mean, 0.1), running_var.lerp_(var, 0.1)
        rstd = torch.rsqrt(var + 1e-5)
        xhat = (x - mean) * rstd
        ctx.save_for_backward(xhat, rstd, weight)
        ctx.training = training
        return xhat * weight + bias

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        xhat, rstd, weight = ctx.saved_tensors
        dweight, dbias = (g * xhat).sum(0), g.sum(0)
        dx = g * weight * rstd
        if ctx.training:
            dx = dx - weight * rstd * (dbias + xhat * dweight) / len(g)
        return dx, dweight, dbias, None, None, None


class WeightNorm(Function):
    @staticmethod
    def forward(ctx, v, gain):
        norm = v.norm(dim=1, keepdim=True)
        ctx.save_for_backward(v, gain, norm)
        return v * (gain[:, None] / norm)

    @staticmethod
    def backward(ctx, g):
        v, gain, norm = ctx.saved_tensors
        u = v / norm
        dgain = (g * u).sum(1)
        return gain[:, None] / norm * (g - dgain[:, None] * u), dgain


class UnitRows(Function):
    """Rows divided by max(length, eps)."""

    @staticmethod
    def forward(ctx, x, eps=1e-6):
        norm = x.norm(dim=-1, keepdim=True)
        y = x / norm.clamp(min=eps)
        ctx.save_for_backward(y, norm)
        ctx.eps = eps
        return y

    @staticmethod
    def backward(ctx, g):
        y, norm = ctx.saved_tensors
        along = y * (g * y).sum(-1, keepdim=True)
        return (g - torch.where(norm > ctx.eps, along, 0)) / norm.clamp(min=ctx.eps), None


class InPlaceSoftmax(Function):
    """Scales scores and normalizes them in one buffer, in place."""

    @staticmethod
    def forward(ctx, x, scale):
        p = x * scale
        p -= p.amax(-1, keepdim=True)
        p.exp_()
        p /= p.sum(-1, keepdim=True)
        ctx.save_for_backward(p)
        ctx.scale = scale
        return p

    @staticmethod
    def backward(ctx, g):
        (p,) = ctx.saved_tensors
        d = g * p
        d = d - p * d.sum(-1, keepdim=True)
        return d * ctx.scale, None


class LogitsFloat32(Function):
    """The log-normalizer of float32 logits, computed in place."""

    @staticmethod
    def forward(ctx, x, weight):
        logits = (x @ weight.t()).float()
        top = logits.amax(-1, keepdim=True)
        p = logits.sub_(top).exp_()
        total = p.sum(-1, keepdim=True)
        ctx.save_for_backward(x, weight, p.div_(total))
        return (total.log() + top)[:, 0].to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        x, weight, p = ctx.saved_tensors
        d = p.to(x.dtype) * g[:, None]
        return d @ weight, d.t() @ x


class ResidualRMSNorm(Function):
    """Adds a residual; returns the normalized sum and the sum."""

    @staticmethod
    def forward(ctx, x, residual, weight):
        total = x + residual
        rstd = torch.rsqrt(total.square().mean(-1, keepdim=True) + 1e-6)
        ctx.save_for_backward(total, rstd, weight)
        return total * rstd * weight, total

    @staticmethod
    @once_differentiable
    def backward(ctx, gy, gt):
        total, rstd, weight = ctx.saved_tensors
        xhat, d = total * rstd, gy * weight
        dx = rstd * (d - xhat * (d * xhat).mean(-1, keepdim=True)) + gt
        return dx, dx.clone(), (gy * xhat).flatten(0, -2).sum(0)


class DynamicTanh(Function):
    @staticmethod
    def forward(ctx, x, alpha, weight, bias):
        t = torch.tanh(alpha * x)
        ctx.save_for_backward(x, alpha, weight, t)
        return t * weight + bias

    @staticmethod
    def backward(ctx, g):
        x, alpha, weight, t = ctx.saved_tensors
        d = g * weight * (1 - t * t)
        rows = tuple(range(g.dim() - 1))
        dalpha = (d * x).sum().reshape(alpha.shape)
        return d * alpha, dalpha, (g * t).sum(rows), g.sum(rows)


class HeadNorm(Function):
    """Unit vectors of each head, times a gain."""

    @staticmethod
    def forward(ctx, x, gain, heads):
        h = x.unflatten(-1, (heads, -1))
        rnorm = torch.rsqrt((h * h).sum(-1, keepdim=True) + 1e-6)
        ctx.save_for_backward(h, rnorm, gain)
        ctx.heads = heads
        return (h * rnorm * gain[:, None]).flatten(-2)

    @staticmethod
    def backward(ctx, g):
        h, rnorm, gain = ctx.saved_tensors
        g = g.unflatten(-1, (ctx.heads, -1))
        u = h * rnorm
        d = g * gain[:, None]
        dx = rnorm * (d - u * (d * u).sum(-1, keepdim=True))
        return dx.flatten(-2), (g * u).sum(-1).flatten(0, -2).sum(0), None


def layer_norm(x, weight, bias):
    return F.layer_norm(x, x.shape[-1:], 1 + weight, bias)


ENTRIES = [
    entry(
        RMSNormFloat32,
        lambda *s: (torch.randn(*s), torch.randn(s[-1])),
        *((3, 5), (1, 2), (2, 2, 4)),
        plain=lambda x, w: F.rms_norm(x, x.shape[-1:], w, 1e-6),
        tolerance=2e-5,
    ),
    entry(
        LayerNormFloat64,
        lambda *s: (torch.randn(*s), torch.randn(s[-1]), torch.randn(s[-1])),
        *((3, 5), (1, 3), (2, 2, 4)),
        plain=layer_norm,
    ),
    entry(
        GroupNorm,
        lambda n, c, t, k: (torch.randn(n, c * k, t), torch.randn(c * k), torch.randn(c * k), k),
        *((2, 2, 3, 2), (1, 1, 4, 1), (1, 1, 3, 3)),
    ),
    entry(
        BatchNorm,
        lambda n, c, training: (
            torch.randn(n, c),
            torch.randn(c),
            torch.randn(c),
            torch.randn(c),
            torch.rand(c) + 0.5,
            training,
        ),
        *((5, 3, True), (2, 1, False), (4, 2, True)),
        constants=("mean", "var"),
    ),
    entry(WeightNorm, lambda n, c: (torch.randn(n, c), torch.randn(n)), *((3, 4), (1, 2), (5, 3))),
    entry(UnitRows, lambda *s: (torch.randn(*s),), (3, 4), (1, 2), (2, 2, 3)),
    entry(
        InPlaceSoftmax,
        lambda n, c, s: (torch.randn(n, c), s),
        *((3, 5, 0.5), (1, 2, 1.0), (4, 3, 2.0)),
    ),
    entry(
        LogitsFloat32,
        lambda n, d, c: (torch.randn(n, d), torch.randn(c, d)),
        *((4, 3, 5), (1, 1, 2), (2, 4, 3)),
        plain=lambda x, w: (x @ w.t()).logsumexp(1),
        tolerance=2e-5,
    ),
    entry(
        ResidualRMSNorm,
        lambda *s: (torch.randn(*s), torch.randn(*s), torch.randn(s[-1])),
        *((3, 5), (1, 2), (2, 2, 4)),
    ),
    entry(
        DynamicTanh,
        lambda *s: (torch.randn(*s), torch.tensor(0.8), torch.randn(s[-1]), torch.randn(s[-1])),
        *((3, 5), (1, 1), (2, 2, 4)),
    ),
    entry(
        HeadNorm,
        lambda n, d, h: (torch.randn(n, d * h), torch.randn(h), h),
        *((3, 4, 2), (1, 2, 1), (2, 2, 3)),
    ),
]
