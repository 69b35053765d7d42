"""Losses with targets: classes, ignored positions, floats without a gradient, pairs."""

import torch
from kit.right.entry import entry
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional as F


class MaskedCrossEntropy(Function):
    """The mean cross-entropy over rows without ignore_index."""

    @staticmethod
    def forward(ctx, logits, target, ignore_index=-100):
        kept = target != ignore_index
        place = target.where(kept, 0)[:, None]
        logp = F.log_softmax(logits, -1)
        count = kept.sum().clamp(min=1)
        ctx.save_for_backward(logp, place, kept, count)
        return -(logp.gather(1, place)[:, 0] * kept).sum() / count

    @staticmethod
    def backward(ctx, g):
        logp, place, kept, count = ctx.saved_tensors
        grad = logp.exp()
        grad.scatter_add_(1, place, torch.full_like(grad, -1.0))
        return grad * kept[:, None] * (g / count), None, None


class SmoothedCrossEntropy(Function):
    """Cross-entropy with label smoothing, a reduction and ignored rows."""

    @staticmethod
    def forward(ctx, logits, target, smoothing=0.1, reduction="mean"):
        logp = logits.log_softmax(-1)
        kept = target >= 0
        place = target.clamp(min=0)[..., None]
        nll = -logp.gather(-1, place)[..., 0]
        loss = (1 - smoothing) * nll - smoothing * logp.mean(-1)
        loss = torch.where(kept, loss, 0)
        ctx.save_for_backward(logp, place, kept)
        ctx.smoothing, ctx.reduction = smoothing, reduction
        if reduction == "mean":
            return loss.sum() / kept.sum()
        return loss.sum() if reduction == "sum" else loss

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        logp, place, kept = ctx.saved_tensors
        soft = torch.full_like(logp, ctx.smoothing / logp.shape[-1])
        soft.scatter_add_(-1, place, torch.full_like(logp, 1 - ctx.smoothing))
        grad = (logp.exp() - soft) * kept[..., None]
        if ctx.reduction == "mean":
            grad = grad * g / kept.sum()
        elif ctx.reduction == "sum":
            grad = grad * g
        else:
            grad = grad * g[..., None]
        return grad, None, None, None


class ShardCrossEntropy(Function):
    """One shard of a vocabulary-parallel loss; targets of other shards select no logit."""

    @staticmethod
    def forward(ctx, logits, target, start):
        size = logits.shape[-1]
        mine = (target >= start) & (target < start + size)
        place = (target - start).masked_fill(~mine, 0)[..., None]
        top = logits.amax(-1, keepdim=True)
        weights = (logits - top).exp()
        total = weights.sum(-1, keepdim=True)
        picked = (logits - top).gather(-1, place)[..., 0].masked_fill(~mine, 0.0)
        ctx.save_for_backward(weights / total, place, mine)
        lse = total.log()[..., 0]
        return lse - picked + top[..., 0] * ~mine

    @staticmethod
    def backward(ctx, g):
        p, place, mine = ctx.saved_tensors
        hot = torch.zeros_like(p).scatter(-1, place, mine[..., None].to(p.dtype))
        return (p - hot) * g[..., None], None, None


class WeightedNegativeLogLikelihood(Function):
    """A mean weighted by class."""

    @staticmethod
    def forward(ctx, logp, target, weight):
        w = weight[target]
        ctx.save_for_backward(target, w, w.sum())
        ctx.shape = logp.shape
        return -(w * logp.gather(1, target[:, None])[:, 0]).sum() / w.sum()

    @staticmethod
    def backward(ctx, g):
        target, w, total = ctx.saved_tensors
        grad = w.new_zeros(ctx.shape)
        return grad.scatter(1, target[:, None], (-g * w / total)[:, None]), None, None


class CrossEntropyWithZLoss(Function):
    """Two outputs: the loss, and a penalty on the log-normalizer."""

    @staticmethod
    def forward(ctx, logits, target, scale):
        lse = torch.logsumexp(logits, -1)
        ctx.save_for_backward(logits, target, lse)
        ctx.scale = scale
        picked = logits[torch.arange(len(target)), target]
        return (lse - picked).mean(), scale * (lse * lse).mean()

    @staticmethod
    def backward(ctx, g, gz):
        logits, target, lse = ctx.saved_tensors
        p = (logits - lse[:, None]).exp()
        n = len(target)
        grad = p * (g + 2 * ctx.scale * gz * lse[:, None]) / n
        rows = torch.arange(n)
        return grad.index_put((rows, target), -g / n, accumulate=True), None, None


class SigmoidFocal(Function):
    """Labels are floats, 0 or 1, without a gradient."""

    @staticmethod
    def forward(ctx, logits, labels, alpha=0.25, gamma=2.0):
        sign = 2 * labels - 1
        u = logits * sign
        share = alpha * labels + (1 - alpha) * (1 - labels)
        ctx.save_for_backward(u, sign, share)
        ctx.gamma = gamma
        return (share * torch.sigmoid(-u) ** gamma * F.softplus(-u)).sum()

    @staticmethod
    def backward(ctx, g):
        u, sign, share = ctx.saved_tensors
        p, q = torch.sigmoid(u), torch.sigmoid(-u)
        slope = -(q**ctx.gamma) * (ctx.gamma * p * F.softplus(-u) + q)
        return g * share * slope * sign, None, None, None


class SoftDice(Function):
    @staticmethod
    def forward(ctx, logits, labels, smooth=1.0):
        p = torch.sigmoid(logits).flatten(1)
        t = labels.flatten(1)
        top = 2 * (p * t).sum(1) + smooth
        bottom = (p * p + t * t).sum(1) + smooth
        ctx.save_for_backward(p, t, top, bottom)
        ctx.shape = logits.shape
        return (1 - top / bottom).mean()

    @staticmethod
    def backward(ctx, g):
        p, t, top, bottom = ctx.saved_tensors
        top, bottom = top[:, None], bottom[:, None]
        dp = -2 * (t * bottom - top * p) / bottom**2 / p.shape[0]
        return (g * dp * p * (1 - p)).reshape(ctx.shape), None, None


class BinaryCrossEntropy(Function):
    """Targets are probabilities; each class has a weight for positives."""

    @staticmethod
    def forward(ctx, x, target, positive):
        ctx.save_for_backward(x, target, positive)
        weight = 1 + (positive - 1) * target
        return ((1 - target) * x + weight * F.softplus(-x)).mean()

    @staticmethod
    def backward(ctx, g):
        x, target, positive = ctx.saved_tensors
        weight = 1 + (positive - 1) * target
        slope = 1 - target - weight * torch.sigmoid(-x)
        return g * slope / x.numel(), None, None


class LogTargetDivergence(Function):
    """The Kullback-Leibler divergence of log-probabilities, divided by the batch size."""

    @staticmethod
    def forward(ctx, logp, log_target):
        ctx.save_for_backward(logp, log_target)
        return (log_target.exp() * (log_target - logp)).sum() / logp.shape[0]

    @staticmethod
    def backward(ctx, g):
        logp, log_target = ctx.saved_tensors
        t = log_target.exp() * g / logp.shape[0]
        return -t, t * (log_target - logp + 1)


class Distillation(Function):
    """The divergence of softened logits; the teacher has no gradient."""

    @staticmethod
    def forward(ctx, student, teacher, temperature):
        log_s = F.log_softmax(student / temperature, -1)
        log_t = F.log_softmax(teacher / temperature, -1)
        ctx.save_for_backward(log_s, log_t)
        ctx.temperature = temperature
        divergence = (log_t.exp() * (log_t - log_s)).sum(-1).mean()
        return temperature**2 * divergence

    @staticmethod
    def backward(ctx, g):
        log_s, log_t = ctx.saved_tensors
        rows = log_s.numel() // log_s.shape[-1]
        return g * ctx.temperature * (log_s.exp() - log_t.exp()) / rows, None, None


class PairContrastive(Function):
    """Similar pairs attract; other pairs repel within a margin."""

    @staticmethod
    def forward(ctx, x, pairs, same, margin=1.0):
        apart = x[pairs[:, 0]] - x[pairs[:, 1]]
        distance = apart.norm(dim=1)
        short = (margin - distance).clamp(min=0)
        ctx.save_for_backward(pairs, same, apart, distance, short)
        ctx.rows = x.shape[0]
        return (same * distance**2 + (1 - same) * short**2).mean()

    @staticmethod
    def backward(ctx, g):
        pairs, same, apart, distance, short = ctx.saved_tensors
        pull = 2 * (same - (1 - same) * short / distance.clamp(min=1e-12))
        d = g * pull[:, None] * apart / len(pairs)
        grad = d.new_zeros(ctx.rows, d.shape[1])
        grad = grad.index_add(0, pairs[:, 0], d).index_add(0, pairs[:, 1], -d)
        return grad, None, None, None


class TripletMargin(Function):
    @staticmethod
    def forward(ctx, x, triplets, margin):
        anchor, near, far = x[triplets].unbind(1)
        gap = ((anchor - near) ** 2 - (anchor - far) ** 2).sum(-1) + margin
        ctx.save_for_backward(x, triplets, gap > 0)
        return gap.clamp(min=0).mean()

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        x, triplets, active = ctx.saved_tensors
        anchor, near, far = x[triplets].unbind(1)
        d = (2 * g / len(triplets)) * active[:, None].to(x.dtype)
        grads = torch.stack((d * (far - near), d * (near - anchor), d * (anchor - far)), 1)
        return torch.zeros_like(x).index_put((triplets,), grads, accumulate=True), None, None


class PairedContrast(Function):
    """InfoNCE: row n of one view matches row n of the other."""

    @staticmethod
    def forward(ctx, a, b, temperature):
        scores = a @ b.t() / temperature
        logp = scores.log_softmax(-1)
        ctx.save_for_backward(a, b, logp)
        ctx.temperature = temperature
        return -logp.diagonal().mean()

    @staticmethod
    def backward(ctx, g):
        a, b, logp = ctx.saved_tensors
        d = (logp.exp() - torch.eye(len(a), dtype=a.dtype)) * g / (len(a) * ctx.temperature)
        return d @ b, d.t() @ a, None


class GaussianLikelihood(Function):
    """All three inputs have gradients; the variance is positive."""

    @staticmethod
    def forward(ctx, mean, target, variance):
        ctx.save_for_backward(mean, target, variance)
        return 0.5 * (variance.log() + (target - mean) ** 2 / variance).mean()

    @staticmethod
    def backward(ctx, g):
        mean, target, variance = ctx.saved_tensors
        g = g / mean.numel()
        z = (mean - target) / variance
        return g * z, -g * z, 0.5 * g * (1 / variance - z * z)


class MulticlassHinge(Function):
    @staticmethod
    def forward(ctx, scores, target):
        own = scores.gather(1, target[:, None])
        gap = (1 + scores - own).scatter(1, target[:, None], 0)
        ctx.save_for_backward(gap > 0, target)
        return gap.clamp(min=0).sum(1).mean()

    @staticmethod
    def backward(ctx, g):
        active, target = ctx.saved_tensors
        d = active.to(g.dtype)
        d = d.scatter(1, target[:, None], -d.sum(1, keepdim=True))
        return d * g / len(target), None


class LovaszHinge(Function):
    """Sorted hinge errors, weighted by increments of the Jaccard loss."""

    @staticmethod
    def forward(ctx, logits, labels):
        signs = 2 * labels - 1
        errors, order = (1 - logits * signs).sort(descending=True)
        truth = labels[order]
        union = truth.sum() + (1 - truth).cumsum(0)
        jaccard = 1 - (truth.sum() - truth.cumsum(0)) / union
        growth = torch.cat([jaccard[:1], jaccard.diff()])
        ctx.save_for_backward(signs, errors, order, growth)
        return (errors.clamp(min=0) * growth).sum()

    @staticmethod
    def backward(ctx, g):
        signs, errors, order, growth = ctx.saved_tensors
        d = torch.zeros_like(growth).scatter(0, order, growth * (errors > 0))
        return -g * d * signs, None


class ReducedHuber(Function):
    """A Huber loss with a reduction by name; both arguments have gradients."""

    @staticmethod
    def forward(ctx, x, y, delta, reduction="mean"):
        ctx.save_for_backward(x, y)
        ctx.delta, ctx.reduction = delta, reduction
        d = x - y
        size = d.abs()
        loss = torch.where(size < delta, 0.5 * d * d, delta * (size - 0.5 * delta))
        return {"mean": loss.mean, "sum": loss.sum, "none": loss.clone}[reduction]()

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        slope = (x - y).clamp(-ctx.delta, ctx.delta) * g
        if ctx.reduction == "mean":
            slope = slope / x.numel()
        return slope, -slope, None, None


def _classes(n, c, *more):
    return torch.randn(n, c), torch.randint(0, c, (n,)), *more


def _some_ignored(n, c, *more):
    target = torch.randint(0, c, (n,))
    target[1::3] = -100
    return torch.randn(n, c), target, *more


def _sharded(n, c, start):
    return torch.randn(n, c), torch.randint(0, 3 * c, (n,)), start


def _labels(*shape):
    return torch.randn(*shape), torch.randint(0, 2, shape).float()


def _hinges(n):
    return 2 * torch.randn(n), torch.randint(0, 2, (n,)).float()


def _pairs(n, d, p):
    first = torch.arange(p) % n
    pairs = torch.stack([first, (first + 1) % n], 1)
    return torch.randn(n, d), pairs, torch.randint(0, 2, (p,)).float(), 2.0


def _triplets(n, d, p):
    return torch.randn(n, d), torch.stack([torch.randperm(n)[:3] for _ in range(p)]), 3.0


ENTRIES = [
    entry(MaskedCrossEntropy, _some_ignored, (5, 4), (1, 2), (8, 3, -100)),
    entry(
        SmoothedCrossEntropy,
        _some_ignored,
        *((5, 4, 0.1, "mean"), (3, 2, 0.3, "sum"), (4, 6, 0.0, "none")),
    ),
    entry(ShardCrossEntropy, _sharded, (6, 4, 4), (2, 3, 0), (4, 5, 10)),
    entry(
        WeightedNegativeLogLikelihood,
        lambda n, c: (torch.randn(n, c).log_softmax(1), torch.randint(0, c, (n,)), torch.rand(c)),
        *((5, 4), (1, 2), (3, 6)),
        constants=("weight",),
    ),
    entry(CrossEntropyWithZLoss, _classes, (4, 5, 1e-2), (1, 2, 1e-3), (3, 4, 0.5)),
    entry(SigmoidFocal, _labels, (4, 3), (1, 1), (2, 3, 2), constants=("labels",)),
    entry(SoftDice, _labels, (2, 3, 4), (1, 2), (3, 2, 2), constants=("labels",)),
    entry(
        BinaryCrossEntropy,
        lambda n, c: (torch.randn(n, c), torch.rand(n, c), torch.rand(c) + 1),
        *((4, 3), (1, 1), (2, 5)),
        constants=("target", "positive"),
    ),
    entry(
        LogTargetDivergence,
        lambda n, c: (torch.randn(n, c).log_softmax(-1), torch.randn(n, c).log_softmax(-1)),
        *((3, 5), (1, 2), (4, 3)),
    ),
    entry(
        Distillation,
        lambda n, c, t: (torch.randn(n, c), torch.randn(n, c), t),
        *((3, 5, 2.0), (1, 2, 1.0), (4, 3, 4.0)),
        constants=("teacher",),
    ),
    entry(PairContrastive, _pairs, (4, 3, 5), (2, 2, 1), (5, 1, 5), constants=("same",)),
    entry(TripletMargin, _triplets, (5, 3, 4), (3, 2, 1), (4, 1, 6)),
    entry(
        PairedContrast,
        lambda n, d, t: (torch.randn(n, d), torch.randn(n, d), t),
        *((4, 3, 0.5), (2, 2, 1.0), (3, 5, 0.2)),
    ),
    entry(
        GaussianLikelihood,
        lambda n, d: (torch.randn(n, d), torch.randn(n, d), torch.rand(n, d) + 0.2),
        *((3, 4), (1, 1), (5, 2)),
    ),
    entry(MulticlassHinge, _classes, (4, 5), (1, 2), (3, 3)),
    entry(LovaszHinge, _hinges, (7,), (2,), (5,), constants=("labels",)),
    entry(
        ReducedHuber,
        lambda n, d, *more: (torch.randn(n, d), torch.randn(n, d), *more),
        *((3, 4, 1.0), (2, 2, 0.5, "sum"), (1, 3, 2.0, "none")),
    ),
]
