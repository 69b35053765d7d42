"""Quantizers with a straight-through gradient; `reference` states the intended one."""

import torch
from kit.right.entry import entry
from torch.autograd import Function
from torch.autograd.function import once_differentiable


def through(value, smooth):
    """The value of one and the gradient of the other."""
    return value.detach() + smooth - smooth.detach()


class RoundThrough(Function):
    @staticmethod
    def forward(ctx, x):
        return torch.round(x)

    @staticmethod
    def backward(ctx, g):
        return g


class SignClipped(Function):
    """The sign in the forward, the gradient of hardtanh in the backward."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.where(x >= 0, 1.0, -1.0).to(x.dtype)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * (x.abs() <= 1)


class LearnedStepSize(Function):
    """Weights rounded to multiples of a learned step."""

    @staticmethod
    def forward(ctx, w, step, low, high):
        ctx.save_for_backward(w, step)
        ctx.low, ctx.high = low, high
        return (w / step).clamp(low, high).round() * step

    @staticmethod
    def backward(ctx, g):
        w, step = ctx.saved_tensors
        v = w / step
        inside = (v >= ctx.low) & (v <= ctx.high)
        dw = g * inside
        q = v.clamp(ctx.low, ctx.high).round()
        dstep = (g * torch.where(inside, q - v, q)).sum().reshape(step.shape)
        return dw, dstep, None, None


def learned_step_size(w, step, low, high):
    v = (w / step).clamp(low, high)
    return through(v.round(), v) * step


class FakeQuantize(Function):
    """Each row has a constant scale and zero point."""

    @staticmethod
    def forward(ctx, x, scale, zero, bits):
        low, high = 0, 2**bits - 1
        level = torch.round(x / scale[:, None]) + zero[:, None]
        ctx.save_for_backward((level >= low) & (level <= high))
        return (level.clamp(low, high) - zero[:, None]) * scale[:, None]

    @staticmethod
    def backward(ctx, g):
        (kept,) = ctx.saved_tensors
        return g * kept, None, None, None


def fake_quantize(x, scale, zero, bits):
    v = x / scale[:, None]
    level = through(v.round(), v) + zero[:, None]
    return (level.clamp(0, 2**bits - 1) - zero[:, None]) * scale[:, None]


class ClippedActivation(Function):
    """Activations between 0 and a learned bound, in 2**bits - 1 steps."""

    @staticmethod
    def forward(ctx, x, bound, bits):
        ctx.save_for_backward(x, bound)
        steps = 2**bits - 1
        y = torch.minimum(x.clamp(min=0), bound)
        return torch.round(y * steps / bound) * bound / steps

    @staticmethod
    def backward(ctx, g):
        x, bound = ctx.saved_tensors
        over = x > bound
        dx = torch.where((x > 0) & ~over, g, 0)
        return dx, (g * over).sum().reshape(bound.shape), None


def clipped_activation(x, bound, bits):
    steps = 2**bits - 1
    y = torch.minimum(x.clamp(min=0), bound)
    return through(torch.round(y * steps / bound) * bound / steps, y)


class ScaledSign(Function):
    """Signs of weights, times the mean absolute value of their row."""

    @staticmethod
    def forward(ctx, w):
        scale = w.abs().mean(1, keepdim=True)
        ctx.save_for_backward(w, scale)
        return w.sign() * scale

    @staticmethod
    def backward(ctx, g):
        w, scale = ctx.saved_tensors
        sign = w.sign()
        shared = (g * sign).mean(1, keepdim=True) * sign
        return shared + g * scale * (w.abs() <= 1)


def scaled_sign(w):
    return through(w.sign(), w.clamp(-1, 1)) * w.abs().mean(1, keepdim=True)


class NearestCode(Function):
    """The nearest codebook row and its position; the cotangent passes to the input."""

    @staticmethod
    def forward(ctx, x, codebook):
        places = torch.cdist(x, codebook).argmin(-1)
        ctx.mark_non_differentiable(places)
        return codebook[places], places

    @staticmethod
    def backward(ctx, g, _):
        return g, None


def nearest_code(x, codebook):
    places = torch.cdist(x, codebook).argmin(-1)
    return through(codebook[places], x), places


class HardChoice(Function):
    """One-hot of the largest logit, with the gradient of a softmax."""

    @staticmethod
    def forward(ctx, logits, temperature):
        soft = (logits / temperature).softmax(-1)
        ctx.save_for_backward(soft)
        ctx.temperature = temperature
        place = soft.argmax(-1, keepdim=True)
        return torch.zeros_like(soft).scatter(-1, place, 1.0)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (soft,) = ctx.saved_tensors
        inner = (g * soft).sum(-1, keepdim=True)
        return soft * (g - inner) / ctx.temperature, None


def hard_choice(logits, temperature):
    soft = (logits / temperature).softmax(-1)
    hard = torch.zeros_like(soft).scatter(-1, soft.argmax(-1, keepdim=True), 1.0)
    return through(hard, soft)


class TernaryWeights(Function):
    """-1, 0 or 1 by a threshold; the gradient passes where |w| <= 1.5."""

    @staticmethod
    def forward(ctx, w, threshold):
        ctx.save_for_backward(w)
        return (w > threshold).to(w.dtype) - (w < -threshold).to(w.dtype)

    @staticmethod
    def backward(ctx, grad_output):
        (w,) = ctx.saved_tensors
        return grad_output.masked_fill(w.abs() > 1.5, 0), None


ENTRIES = [
    entry(
        RoundThrough,
        lambda *s: (3 * torch.randn(*s),),
        *((3, 4), (1, 1), (2, 2, 3)),
        reference=lambda x: through(x.round(), x),
    ),
    entry(
        SignClipped,
        lambda *s: (torch.randn(*s),),
        *((3, 4), (2, 1), (2, 2, 3)),
        reference=lambda x: through(
            torch.where(x >= 0, 1.0, -1.0).to(x.dtype), torch.nn.functional.hardtanh(x)
        ),
    ),
    entry(
        LearnedStepSize,
        lambda n, c, *more: (3 * torch.randn(n, c), torch.tensor([0.5]), *more),
        *((4, 3, -4, 3), (2, 2, 0, 7), (5, 1, -1, 1)),
        reference=learned_step_size,
    ),
    entry(
        FakeQuantize,
        lambda n, c, bits: (
            torch.randn(n, c),
            torch.rand(n) / 4 + 0.1,
            torch.randint(3, 9, (n,)),
            bits,
        ),
        *((3, 5, 4), (1, 2, 2), (2, 4, 3)),
        reference=fake_quantize,
        constants=("scale",),
    ),
    entry(
        ClippedActivation,
        lambda n, c, bits: (3 * torch.randn(n, c), torch.tensor(2.0), bits),
        *((3, 5, 4), (2, 2, 2), (2, 4, 8)),
        reference=clipped_activation,
    ),
    entry(
        ScaledSign,
        lambda n, c: (torch.randn(n, c),),
        *((3, 4), (1, 2), (2, 6)),
        reference=scaled_sign,
    ),
    entry(
        NearestCode,
        lambda n, k, d: (torch.randn(n, d), torch.randn(k, d)),
        *((5, 4, 3), (1, 2, 2), (3, 6, 1)),
        reference=nearest_code,
        constants=("codebook",),
    ),
    entry(
        HardChoice,
        lambda n, c, t: (torch.randn(n, c), t),
        *((3, 5, 0.7), (1, 2, 1.0), (4, 3, 2.0)),
        reference=hard_choice,
    ),
    entry(
        TernaryWeights,
        lambda n, c, t: (torch.randn(n, c), t),
        *((3, 5, 0.3), (2, 1, 0.5), (4, 3, 0.1)),
        reference=lambda w, t: through(
            (w > t).to(w.dtype) - (w < -t).to(w.dtype), w.clamp(-1.5, 1.5)
        ),
    ),
]
