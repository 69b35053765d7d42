"""Convolutions with states, windows, patches and pools."""

import torch
from kit.right.entry import entry
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional as F


class CausalConvolution(Function):
    """A depthwise causal convolution; the state, and the next one, have width - 1 positions."""

    @staticmethod
    def forward(ctx, x, weight, bias, state):
        width = weight.shape[1]
        padded = torch.cat((state, x), -1)
        ctx.save_for_backward(padded, weight)
        y = F.conv1d(padded, weight[:, None], bias, groups=weight.shape[0])
        return y, padded[..., padded.shape[-1] - width + 1 :].clone()

    @staticmethod
    def backward(ctx, grad_y, grad_state):
        padded, weight = ctx.saved_tensors
        width, length = weight.shape[1], grad_y.shape[-1]
        flipped = F.pad(grad_y, (width - 1, width - 1)).unfold(-1, width, 1)
        grad_padded = (flipped * weight.flip(1)[:, None]).sum(-1)
        grad_padded = grad_padded + F.pad(grad_state, (length, 0))
        grad_weight = (padded.unfold(-1, width, 1) * grad_y[..., None]).sum((0, 2))
        return (
            grad_padded[..., width - 1 :],
            grad_weight,
            grad_y.sum((0, 2)),
            grad_padded[..., : width - 1],
        )


class ConvolutionStep(Function):
    """One token of a causal convolution; the window joins the state and the token."""

    @staticmethod
    def forward(ctx, x, state, weight):
        window = torch.cat([state, x[..., None]], -1)
        ctx.save_for_backward(window, weight)
        return (window * weight).sum(-1), window[..., 1:].clone()

    @staticmethod
    def backward(ctx, dy, dstate):
        window, weight = ctx.saved_tensors
        dwindow = dy[..., None] * weight + F.pad(dstate, (1, 0))
        return dwindow[..., -1], dwindow[..., :-1], (dy[..., None] * window).sum(0)


class DepthwiseConvolution(Function):
    """A depthwise convolution of odd width that keeps the length."""

    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.save_for_backward(x, weight)
        channels, width = weight.shape
        return F.conv1d(x, weight[:, None], bias, padding=width // 2, groups=channels)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        channels, width = weight.shape
        how = {"padding": width // 2, "groups": channels}
        dx = dw = db = None
        if ctx.needs_input_grad[0]:
            dx = torch.nn.grad.conv1d_input(x.shape, weight[:, None], g, **how)
        if ctx.needs_input_grad[1]:
            dw = torch.nn.grad.conv1d_weight(x, (channels, 1, width), g, **how)[:, 0]
        if ctx.needs_input_grad[2]:
            db = g.sum((0, 2))
        return dx, dw, db


class ConvolutionByColumns(Function):
    """A convolution as a matrix product with the unfolded image."""

    @staticmethod
    def forward(ctx, x, weight, stride, padding):
        kernel = weight.shape[2:]
        columns = F.unfold(x, kernel, padding=padding, stride=stride)
        ctx.save_for_backward(columns, weight)
        ctx.size, ctx.how = x.shape[2:], {"padding": padding, "stride": stride}
        high = (x.shape[2] + 2 * padding - kernel[0]) // stride + 1
        return (weight.flatten(1) @ columns).unflatten(-1, (high, -1))

    @staticmethod
    def backward(ctx, g):
        columns, weight = ctx.saved_tensors
        g = g.flatten(2)
        dweight = (g @ columns.mT).sum(0).reshape(weight.shape)
        dx = F.fold(weight.flatten(1).T @ g, ctx.size, weight.shape[2:], **ctx.how)
        return dx, dweight, None, None


class MeanPool(Function):
    """Means of k x k blocks; k divides both sides of the image."""

    @staticmethod
    def forward(ctx, x, k):
        ctx.k = k
        return x.unflatten(-1, (-1, k)).unflatten(-3, (-1, k)).mean((-1, -3))

    @staticmethod
    def backward(ctx, g):
        k = ctx.k
        return g.repeat_interleave(k, -1).repeat_interleave(k, -2) / k**2, None


class MaximumPool(Function):
    """Maxima of windows; a second output, without a gradient, has their positions."""

    @staticmethod
    def forward(ctx, x, k):
        y, places = F.max_pool1d(x, k, return_indices=True)
        ctx.mark_non_differentiable(places)
        ctx.save_for_backward(places)
        ctx.length = x.shape[-1]
        return y, places

    @staticmethod
    def backward(ctx, g, _):
        (places,) = ctx.saved_tensors
        return g.new_zeros(*g.shape[:-1], ctx.length).scatter(-1, places, g), None


class PackedConvolution(Function):
    """A causal convolution of packed sequences; no window crosses a boundary."""

    @staticmethod
    def forward(ctx, x, weight, starts):
        ctx.save_for_backward(x, weight, starts)
        y = torch.zeros_like(x)
        for first, last in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
            for k in range(min(weight.shape[1], last - first)):
                y[first + k : last] += x[first : last - k] * weight[:, k]
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        x, weight, starts = ctx.saved_tensors
        dx, dweight = torch.zeros_like(x), torch.zeros_like(weight)
        for first, last in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
            for k in range(min(weight.shape[1], last - first)):
                dx[first : last - k] += g[first + k : last] * weight[:, k]
                dweight[:, k] += (g[first + k : last] * x[first : last - k]).sum(0)
        return dx, dweight, None


class PatchEmbedding(Function):
    """A linear map of square patches of size p."""

    @staticmethod
    def forward(ctx, image, weight, p):
        b, c, h, w = image.shape
        patches = image.reshape(b, c, h // p, p, w // p, p).permute(0, 2, 4, 1, 3, 5)
        patches = patches.reshape(b, h // p * (w // p), c * p * p)
        ctx.save_for_backward(patches, weight)
        ctx.shape, ctx.p = image.shape, p
        return patches @ weight.t()

    @staticmethod
    def backward(ctx, g):
        patches, weight = ctx.saved_tensors
        (b, c, h, w), p = ctx.shape, ctx.p
        dimage = (g @ weight).reshape(b, h // p, w // p, c, p, p)
        dimage = dimage.permute(0, 3, 1, 4, 2, 5).reshape(b, c, h, w)
        return dimage, torch.einsum("bno,bni->oi", g, patches), None


class PixelShuffle(Function):
    """Groups of r*r channels become r x r positions."""

    @staticmethod
    def forward(ctx, x, r):
        ctx.r = r
        return F.pixel_shuffle(x, r)

    @staticmethod
    def backward(ctx, g):
        return F.pixel_unshuffle(g, ctx.r), None


ENTRIES = [
    entry(
        CausalConvolution,
        lambda b, c, t, w: (
            torch.randn(b, c, t),
            torch.randn(c, w),
            torch.randn(c),
            torch.randn(b, c, w - 1),
        ),
        *((2, 3, 5, 4), (1, 1, 1, 3), (2, 2, 4, 2)),
    ),
    entry(
        ConvolutionStep,
        lambda b, c, w: (torch.randn(b, c), torch.randn(b, c, w - 1), torch.randn(c, w)),
        *((2, 3, 4), (1, 1, 2), (3, 2, 3)),
    ),
    entry(
        DepthwiseConvolution,
        lambda b, c, t, w: (torch.randn(b, c, t), torch.randn(c, w), torch.randn(c)),
        *((2, 3, 6, 3), (1, 1, 5, 1), (1, 2, 5, 5)),
    ),
    entry(
        ConvolutionByColumns,
        lambda b, i, o, n, k, stride, padding: (
            torch.randn(b, i, n, n),
            torch.randn(o, i, k, k),
            stride,
            padding,
        ),
        *((2, 2, 3, 4, 3, 1, 1), (1, 1, 1, 5, 2, 2, 0), (1, 2, 1, 4, 2, 1, 0)),
    ),
    entry(
        MeanPool,
        lambda b, c, h, w, k: (torch.randn(b, c, h * k, w * k), k),
        *((1, 2, 2, 3, 2), (1, 1, 1, 1, 3), (2, 1, 2, 1, 1)),
    ),
    entry(
        MaximumPool,
        lambda b, c, t, k: (torch.randn(b, c, t), k),
        *((2, 3, 6, 2), (1, 1, 3, 3), (1, 2, 8, 3)),
    ),
    entry(
        PackedConvolution,
        lambda c, w, *lengths: (
            torch.randn(sum(lengths), c),
            torch.randn(c, w),
            torch.tensor([0, *lengths]).cumsum(0),
        ),
        *((3, 3, 4, 2, 5), (1, 2, 1), (2, 4, 3, 3)),
    ),
    entry(
        PatchEmbedding,
        lambda b, c, h, w, p, e: (torch.randn(b, c, h * p, w * p), torch.randn(e, c * p * p), p),
        *((2, 1, 2, 2, 2, 3), (1, 2, 1, 2, 1, 2), (1, 1, 1, 1, 3, 4)),
    ),
    entry(
        PixelShuffle,
        lambda b, c, h, w, r: (torch.randn(b, c * r * r, h, w), r),
        *((2, 1, 2, 3, 2), (1, 2, 1, 2, 1), (1, 1, 2, 1, 3)),
    ),
]
