"""Steps with the gradient of a smooth function, and scaled or reversed gradients."""

import math

import torch
from kit.right.entry import entry
from kit.right.quantizers import through
from torch.autograd import Function


class SpikeArctan(Function):
    @staticmethod
    def forward(ctx, v, alpha=2.0):
        ctx.save_for_backward(v)
        ctx.alpha = alpha
        return (v > 0).to(v.dtype)

    @staticmethod
    def backward(ctx, g):
        (v,) = ctx.saved_tensors
        return g * ctx.alpha / 2 / (1 + (math.pi / 2 * ctx.alpha * v) ** 2), None


class SpikeSigmoid(Function):
    @staticmethod
    def forward(ctx, v, slope):
        ctx.save_for_backward(v)
        ctx.slope = slope
        return torch.heaviside(v, torch.ones_like(v))

    @staticmethod
    def backward(ctx, g):
        (v,) = ctx.saved_tensors
        s = torch.sigmoid(ctx.slope * v)
        return g * ctx.slope * s * (1 - s), None


class SpikeFastSigmoid(Function):
    @staticmethod
    def forward(ctx, v, threshold):
        ctx.save_for_backward(v, threshold)
        return (v >= threshold).to(v.dtype)

    @staticmethod
    def backward(ctx, g):
        v, threshold = ctx.saved_tensors
        slope = g / (1 + 10 * (v - threshold).abs()) ** 2
        return slope, -slope.flatten(0, -2).sum(0)


class LeakyNeuron(Function):
    """A leaky integrator over time with spikes; the reset has no gradient."""

    @staticmethod
    def forward(ctx, current, leak):
        v, spikes, membranes = torch.zeros_like(current[0]), [], []
        for step in current:
            v = leak * v + step
            fired = (v > 1).to(v.dtype)
            membranes.append(v)
            spikes.append(fired)
            v = v - fired
        ctx.save_for_backward(torch.stack(membranes))
        ctx.leak = leak
        return torch.stack(spikes)

    @staticmethod
    def backward(ctx, g):
        (membranes,) = ctx.saved_tensors
        carried, grads = torch.zeros_like(g[0]), []
        for t in reversed(range(len(g))):
            carried = ctx.leak * carried + g[t] / (1 + (math.pi * (membranes[t] - 1)) ** 2)
            grads.append(carried)
        return torch.stack(grads[::-1]), None


def leaky_neuron(current, leak):
    v, spikes = torch.zeros_like(current[0]), []
    for step in current:
        v = leak * v + step
        hard = (v > 1).to(v.dtype)
        spikes.append(through(hard, torch.atan(math.pi * (v - 1)) / math.pi))
        v = v - hard
    return torch.stack(spikes)


class GradientReversal(Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.weight = weight
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return -ctx.weight * g, None


class GradientScale(Function):
    @staticmethod
    def forward(ctx, x, factor=0.1):
        ctx.factor = factor
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        return g * ctx.factor, None


class LowerBoundThrough(Function):
    """max(x, bound) with a gradient that passes everywhere."""

    @staticmethod
    def forward(ctx, x, bound):
        return x.clamp(min=bound)

    @staticmethod
    def backward(ctx, g):
        return g, None


ENTRIES = [
    entry(
        SpikeArctan,
        lambda n, c, a: (torch.randn(n, c), a),
        *((3, 5, 2.0), (1, 2, 1.0), (4, 2, 5.0)),
        reference=lambda v, a: through(
            (v > 0).to(v.dtype), torch.atan(math.pi / 2 * a * v) / math.pi
        ),
    ),
    entry(
        SpikeSigmoid,
        lambda n, c, s: (torch.randn(n, c), s),
        *((3, 5, 25.0), (1, 2, 1.0), (4, 2, 5.0)),
        reference=lambda v, s: through(
            torch.heaviside(v, torch.ones_like(v)), torch.sigmoid(s * v)
        ),
    ),
    entry(
        SpikeFastSigmoid,
        lambda n, c: (torch.randn(n, c), torch.rand(c)),
        *((3, 5), (1, 2), (4, 2)),
        reference=lambda v, threshold: through(
            (v >= threshold).to(v.dtype), (v - threshold) / (1 + 10 * (v - threshold).abs())
        ),
    ),
    entry(
        LeakyNeuron,
        lambda t, n, leak: (torch.randn(t, n) + 0.5, leak),
        *((6, 3, 0.9), (1, 2, 0.5), (4, 1, 1.0)),
        reference=leaky_neuron,
    ),
    entry(
        GradientReversal,
        lambda n, c, w: (torch.randn(n, c), w),
        *((3, 5, 0.3), (1, 2, 1.0), (4, 2, 2.0)),
        reference=lambda x, w: through(x, -w * x),
    ),
    entry(
        GradientScale,
        lambda n, c, w: (torch.randn(n, c), w),
        *((3, 5, 0.1), (1, 2, 1.0), (4, 2, 2.0)),
        reference=lambda x, w: through(x, w * x),
    ),
    entry(
        LowerBoundThrough,
        lambda n, c, b: (torch.randn(n, c), b),
        *((3, 5, 0.0), (1, 2, -1.0), (4, 2, 0.5)),
        reference=lambda x, b: through(x.clamp(min=b), x),
    ),
]
