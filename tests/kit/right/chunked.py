"""Functions that process rows in chunks, or compute gradients in the forward."""

import torch
from kit.right.entry import entry
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional as F


class ChunkedLinearCrossEntropy(Function):
    """A linear cross-entropy in chunks of rows; the forward computes the gradients."""

    @staticmethod
    def forward(ctx, x, weight, target, chunk=2, ignore_index=-100):
        count = (target != ignore_index).sum().clamp(min=1)
        total = x.new_zeros(())
        dx, dweight = torch.zeros_like(x), torch.zeros_like(weight)
        for first in range(0, len(x), chunk):
            rows, labels = x[first : first + chunk], target[first : first + chunk]
            kept = labels != ignore_index
            logp = F.log_softmax(rows @ weight.t(), -1)
            place = labels.where(kept, 0)[:, None]
            total -= (logp.gather(1, place)[:, 0] * kept).sum()
            d = logp.exp()
            d.scatter_add_(1, place, -torch.ones_like(d))
            d *= kept[:, None] / count
            dx[first : first + chunk] = d @ weight
            dweight += d.t() @ rows
        ctx.save_for_backward(dx, dweight)
        return total / count

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        dx, dweight = ctx.saved_tensors
        return dx * g, dweight * g, None, None, None


class ChunkedLogSumExp(Function):
    """Logsumexp with a running maximum and sum over chunks of the columns."""

    @staticmethod
    def forward(ctx, x, chunk):
        top = x.new_full(x.shape[:-1], -torch.inf)
        total = x.new_zeros(x.shape[:-1])
        for part in x.split(chunk, -1):
            higher = torch.maximum(top, part.amax(-1))
            total = total * (top - higher).exp() + (part - higher[..., None]).exp().sum(-1)
            top = higher
        y = top + total.log()
        ctx.save_for_backward(x, y)
        ctx.chunk = chunk
        return y

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        parts = [(p - y[..., None]).exp() * g[..., None] for p in x.split(ctx.chunk, -1)]
        return torch.cat(parts, -1), None


class ChunkedMeanSquares(Function):
    @staticmethod
    def forward(ctx, x, weight, y, chunk):
        ctx.save_for_backward(x, weight, y)
        ctx.chunk = chunk
        total = x.new_zeros(())
        for rows, wanted in zip(x.split(chunk), y.split(chunk), strict=True):
            total = total + ((rows @ weight - wanted) ** 2).sum()
        return total / y.numel()

    @staticmethod
    def backward(ctx, g):
        x, weight, y = ctx.saved_tensors
        dx, dweight, dy = [], torch.zeros_like(weight), []
        for rows, wanted in zip(x.split(ctx.chunk), y.split(ctx.chunk), strict=True):
            d = 2 * g / y.numel() * (rows @ weight - wanted)
            dx.append(d @ weight.t())
            dweight = dweight + rows.t() @ d
            dy.append(-d)
        return torch.cat(dx), dweight, torch.cat(dy), None


class ChunkedAttention(Function):
    """Causal attention with a running softmax over chunks of keys; saves the log-normalizers."""

    @staticmethod
    def forward(ctx, q, k, v, chunk):
        scale = q.shape[-1] ** -0.5
        t, s = q.shape[-2], k.shape[-2]
        future = torch.ones(t, s, dtype=torch.bool).triu(s - t + 1)
        top = q.new_full(q.shape[:-1], -torch.inf)
        total, out = torch.zeros_like(top), q.new_zeros(*q.shape[:-1], v.shape[-1])
        for first in range(0, s, chunk):
            part = slice(first, first + chunk)
            scores = (q @ k[..., part, :].mT * scale).masked_fill(future[:, part], -torch.inf)
            higher = torch.maximum(top, scores.amax(-1))
            shrink, p = (top - higher).exp(), (scores - higher[..., None]).exp()
            total = total * shrink + p.sum(-1)
            out = out * shrink[..., None] + p @ v[..., part, :]
            top = higher
        out = out / total[..., None]
        ctx.save_for_backward(q, k, v, out, top + total.log(), future)
        ctx.scale, ctx.chunk = scale, chunk
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, do):
        q, k, v, out, lse, future = ctx.saved_tensors
        delta = (do * out).sum(-1, keepdim=True)
        dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
        for first in range(0, k.shape[-2], ctx.chunk):
            part = slice(first, first + ctx.chunk)
            kk, vv = k[..., part, :], v[..., part, :]
            scores = (q @ kk.mT * ctx.scale).masked_fill(future[:, part], -torch.inf)
            p = (scores - lse[..., None]).exp()
            ds = p * (do @ vv.mT - delta) * ctx.scale
            dq += ds @ kk
            dk[..., part, :] = ds.mT @ q
            dv[..., part, :] = p.mT @ do
        return dq, dk, dv, None


class TiledFeedForward(Function):
    """Two layers in tiles; the backward recomputes them."""

    @staticmethod
    def forward(ctx, x, up, down, tiles):
        ctx.save_for_backward(x, up, down)
        ctx.tiles = tiles
        return torch.cat([F.silu(part @ up) @ down for part in x.chunk(tiles)])

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        x, up, down = ctx.saved_tensors
        grads, dup, ddown = [], torch.zeros_like(up), torch.zeros_like(down)
        for part, gpart in zip(x.chunk(ctx.tiles), g.chunk(ctx.tiles), strict=True):
            h = part @ up
            s = torch.sigmoid(h)
            ddown += (h * s).t() @ gpart
            dh = gpart @ down.t() * (s + h * s * (1 - s))
            dup += part.t() @ dh
            grads.append(dh @ up.t())
        return torch.cat(grads), dup, ddown, None


class ChunkedPairwise(Function):
    """The mean of a Gaussian kernel over all pairs, in chunks of the first points."""

    @staticmethod
    def forward(ctx, x, y, width, chunk):
        ctx.save_for_backward(x, y)
        ctx.width, ctx.chunk = width, chunk
        total = x.new_zeros(())
        for part in x.split(chunk):
            total = total + torch.exp(-((part[:, None] - y) ** 2).sum(-1) / width).sum()
        return total / (len(x) * len(y))

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        dx, dy = [], torch.zeros_like(y)
        for part in x.split(ctx.chunk):
            apart = part[:, None] - y
            kernel = torch.exp(-(apart**2).sum(-1) / ctx.width)
            d = -2 * g / (ctx.width * len(x) * len(y)) * kernel[..., None] * apart
            dx.append(d.sum(1))
            dy = dy - d.sum(0)
        return torch.cat(dx), dy, None, None


class ChunkedPolicyLoss(Function):
    """Two outputs in chunks: log-probabilities of chosen tokens, and entropies."""

    @staticmethod
    def forward(ctx, logits, chosen, chunk):
        ctx.save_for_backward(logits, chosen)
        ctx.chunk = chunk
        picked, entropies = [], []
        for part, places in zip(logits.split(chunk), chosen.split(chunk), strict=True):
            logp = part.log_softmax(-1)
            picked.append(logp.gather(-1, places[:, None])[:, 0])
            entropies.append(-(logp.exp() * logp).sum(-1))
        return torch.cat(picked), torch.cat(entropies)

    @staticmethod
    def backward(ctx, gp, ge):
        logits, chosen = ctx.saved_tensors
        grads = []
        for part, places, a, b in zip(
            *(t.split(ctx.chunk) for t in (logits, chosen, gp, ge)), strict=True
        ):
            logp = part.log_softmax(-1)
            p = logp.exp()
            entropy = -(p * logp).sum(-1, keepdim=True)
            hot = F.one_hot(places, part.shape[-1]).to(p.dtype)
            grads.append(a[:, None] * (hot - p) - b[:, None] * p * (logp + entropy))
        return torch.cat(grads), None, None


def _linear_loss(n, d, c, chunk):
    target = torch.randint(0, c, (n,))
    target[2::4] = -100
    return torch.randn(n, d), torch.randn(c, d), target, chunk


ENTRIES = [
    entry(ChunkedLinearCrossEntropy, _linear_loss, (6, 3, 4, 2), (1, 2, 2, 4), (5, 2, 3, 3)),
    entry(
        ChunkedLogSumExp,
        lambda n, c, chunk: (torch.randn(n, c), chunk),
        *((3, 7, 3), (1, 1, 2), (2, 4, 4)),
    ),
    entry(
        ChunkedMeanSquares,
        lambda n, d, c, k: (torch.randn(n, d), torch.randn(d, c), torch.randn(n, c), k),
        *((6, 3, 2, 4), (1, 1, 1, 1), (4, 2, 3, 2)),
    ),
    entry(
        ChunkedAttention,
        lambda b, t, d, e, chunk: (
            torch.randn(b, t, d),
            torch.randn(b, t, d),
            torch.randn(b, t, e),
            chunk,
        ),
        *((2, 5, 3, 2, 2), (1, 1, 2, 1, 3), (1, 4, 1, 3, 4)),
    ),
    entry(
        TiledFeedForward,
        lambda n, d, h, k: (torch.randn(n, d), torch.randn(d, h), torch.randn(h, d), k),
        *((6, 3, 4, 3), (1, 2, 1, 1), (5, 2, 3, 2)),
    ),
    entry(
        ChunkedPairwise,
        lambda n, m, d, k: (torch.randn(n, d), torch.randn(m, d), 2.0, k),
        *((5, 4, 3, 2), (1, 1, 1, 1), (3, 2, 2, 4)),
    ),
    entry(
        ChunkedPolicyLoss,
        lambda n, c, k: (torch.randn(n, c), torch.randint(0, c, (n,)), k),
        *((5, 4, 2), (1, 2, 1), (4, 3, 8)),
    ),
]
