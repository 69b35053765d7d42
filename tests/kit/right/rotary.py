"""Rotary embeddings: tables of cosines and sines, even head dimensions, positions."""

import torch
from kit.right.entry import entry
from torch.autograd import Function
from torch.autograd.function import once_differentiable


def _rotated(x):
    first, second = x.chunk(2, -1)
    return torch.cat((-second, first), -1)


def _rotated_back(x):
    first, second = x.chunk(2, -1)
    return torch.cat((second, -first), -1)


def angles(length, count, base=10000.0):
    """Angles for `length` positions and `count` frequencies."""
    steps = base ** (-torch.arange(count) / count)
    return torch.arange(length)[:, None] * steps


class RotaryHalves(Function):
    @staticmethod
    def forward(ctx, x, cos, sin):
        ctx.save_for_backward(cos, sin)
        return x * cos + _rotated(x) * sin

    @staticmethod
    def backward(ctx, g):
        cos, sin = ctx.saved_tensors
        return g * cos + _rotated_back(g * sin), None, None


class RotaryEqualHalves(RotaryHalves):
    """Reads the first halves of tables whose halves are equal."""

    @staticmethod
    def backward(ctx, g):
        cos, sin = (table.chunk(2, -1)[0] for table in ctx.saved_tensors)
        ga, gb = g.chunk(2, -1)
        return torch.cat((ga * cos + gb * sin, gb * cos - ga * sin), -1), None, None


class RotaryEqualPairs(Function):
    """Reads every second column of tables in which two columns at a time are equal."""

    @staticmethod
    def forward(ctx, x, cos, sin):
        ctx.save_for_backward(cos, sin)
        other = torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
        return x * cos + other * sin

    @staticmethod
    def backward(ctx, g):
        cos, sin = (table[..., ::2] for table in ctx.saved_tensors)
        even, odd = g[..., ::2], g[..., 1::2]
        dx = torch.stack((even * cos + odd * sin, odd * cos - even * sin), -1)
        return dx.flatten(-2), None, None


class RotaryPair(Function):
    """One table rotates queries and keys, which have different numbers of heads."""

    @staticmethod
    def forward(ctx, q, k, cos, sin):
        ctx.save_for_backward(cos, sin)
        c, s = cos[:, None], sin[:, None]
        return q * c + _rotated(q) * s, k * c + _rotated(k) * s

    @staticmethod
    def backward(ctx, dq, dk):
        cos, sin = ctx.saved_tensors
        c, s = cos[:, None], sin[:, None]
        return dq * c + _rotated_back(dq * s), dk * c + _rotated_back(dk * s), None, None


class RotaryInterleaved(Function):
    """Rotates neighboring columns; the tables have half as many columns."""

    @staticmethod
    def forward(ctx, x, cos, sin):
        ctx.save_for_backward(cos, sin)
        a, b = x[..., 0::2], x[..., 1::2]
        y = torch.empty_like(x)
        y[..., 0::2] = a * cos - b * sin
        y[..., 1::2] = b * cos + a * sin
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        cos, sin = ctx.saved_tensors
        da, db = grad[..., 0::2], grad[..., 1::2]
        dx = torch.empty_like(grad)
        dx[..., 0::2] = da * cos + db * sin
        dx[..., 1::2] = db * cos - da * sin
        return dx, None, None


class RotaryComplex(Function):
    """The table has complex numbers of absolute value 1."""

    @staticmethod
    def forward(ctx, x, table):
        ctx.save_for_backward(table)
        pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
        return torch.view_as_real(pairs * table).flatten(-2).type_as(x)

    @staticmethod
    def backward(ctx, g):
        (table,) = ctx.saved_tensors
        pairs = torch.view_as_complex(g.unflatten(-1, (-1, 2)).contiguous())
        return torch.view_as_real(pairs * table.conj()).flatten(-2).type_as(g), None


class RotaryCached(Function):
    """Positions select rows of a cached table; its halves are cosines and sines."""

    @staticmethod
    def forward(ctx, x, cache, positions):
        cos, sin = cache[positions].chunk(2, -1)
        ctx.save_for_backward(cos, sin)
        a, b = x.chunk(2, -1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

    @staticmethod
    def backward(ctx, g):
        cos, sin = ctx.saved_tensors
        ga, gb = g.chunk(2, -1)
        return torch.cat((ga * cos + gb * sin, gb * cos - ga * sin), -1), None, None


class RotaryPartial(Function):
    """Rotates the first columns only; the tables are a tuple."""

    @staticmethod
    def forward(ctx, x, tables):
        cos, sin = tables
        ctx.save_for_backward(cos, sin)
        n = cos.shape[-1]
        head, rest = x[..., :n], x[..., n:]
        return torch.cat((head * cos + _rotated(head) * sin, rest), -1)

    @staticmethod
    def backward(ctx, g):
        cos, sin = ctx.saved_tensors
        n = cos.shape[-1]
        head, rest = g[..., :n], g[..., n:]
        return torch.cat((head * cos + _rotated_back(head * sin), rest), -1), None


class RotaryByAngle(Function):
    """The angles are learned; the forward computes cosine and sine."""

    @staticmethod
    def forward(ctx, x, theta):
        cos, sin = theta.cos(), theta.sin()
        a, b = x.chunk(2, -1)
        y = torch.cat((a * cos - b * sin, a * sin + b * cos), -1)
        ctx.save_for_backward(y, cos, sin)
        return y

    @staticmethod
    def backward(ctx, g):
        y, cos, sin = ctx.saved_tensors
        ga, gb = g.chunk(2, -1)
        ya, yb = y.chunk(2, -1)
        dx = torch.cat((ga * cos + gb * sin, gb * cos - ga * sin), -1)
        return dx, (gb * ya - ga * yb).sum(0)


def _tables(t, d):
    theta = torch.cat([angles(t, d // 2)] * 2, -1)
    return theta.cos(), theta.sin()


def _pair_tables(t, d):
    theta = angles(t, d).repeat_interleave(2, -1)
    return theta.cos(), theta.sin()


def _cache(n, d):
    theta = angles(n, d // 2)
    return torch.cat((theta.cos(), theta.sin()), -1)


ENTRIES = [
    entry(
        RotaryHalves,
        lambda b, t, d: (torch.randn(b, t, d), *_tables(t, d)),
        *((2, 5, 8), (1, 1, 2), (3, 4, 6)),
        constants=("cos", "sin"),
    ),
    entry(
        RotaryEqualHalves,
        lambda b, t, d: (torch.randn(b, t, d), *_tables(t, d)),
        *((2, 5, 8), (1, 1, 2), (3, 4, 6)),
        constants=("cos", "sin"),
    ),
    entry(
        RotaryEqualPairs,
        lambda b, t, d: (torch.randn(b, t, 2 * d), *_pair_tables(t, d)),
        *((2, 5, 4), (1, 1, 1), (3, 4, 3)),
        constants=("cos", "sin"),
    ),
    entry(
        RotaryPair,
        lambda b, t, h, d: (torch.randn(b, t, 2 * h, d), torch.randn(b, t, h, d), *_tables(t, d)),
        *((2, 3, 1, 4), (1, 1, 1, 2), (1, 4, 2, 6)),
        constants=("cos", "sin"),
    ),
    entry(
        RotaryInterleaved,
        lambda b, t, d: (torch.randn(b, t, d), angles(t, d // 2).cos(), angles(t, d // 2).sin()),
        *((2, 4, 6), (1, 1, 2), (3, 2, 8)),
        constants=("cos", "sin"),
    ),
    entry(
        RotaryComplex,
        lambda b, t, d: (
            torch.randn(b, t, d),
            torch.polar(torch.ones(t, d // 2), angles(t, d // 2)),
        ),
        *((2, 4, 6), (1, 1, 2), (3, 2, 4)),
        constants=("table",),
    ),
    entry(
        RotaryCached,
        lambda b, t, d, n: (torch.randn(b, t, d), _cache(n, d), torch.arange(n - t, n)),
        *((2, 4, 8, 16), (1, 1, 2, 3), (2, 3, 4, 3)),
        constants=("cache",),
    ),
    entry(
        RotaryPartial,
        lambda b, t, d, n: (torch.randn(b, t, d), _tables(t, n)),
        *((2, 4, 8, 4), (1, 2, 2, 2), (2, 3, 7, 4)),
    ),
    entry(
        RotaryByAngle,
        lambda b, t, d: (torch.randn(b, t, 2 * d), torch.randn(t, d)),
        *((2, 4, 3), (1, 1, 1), (3, 2, 2)),
    ),
]
