"""Graphs: edges that gather and scatter, segments, sparse products, bags."""

import torch
from kit.right.entry import entry
from torch.autograd import Function
from torch.autograd.function import once_differentiable


class NeighborSum(Function):
    """Messages along edges: edges[0] are sources, edges[1] destinations."""

    @staticmethod
    def forward(ctx, x, edges):
        ctx.save_for_backward(edges)
        return torch.zeros_like(x).index_add(0, edges[1], x[edges[0]])

    @staticmethod
    def backward(ctx, g):
        (edges,) = ctx.saved_tensors
        return torch.zeros_like(g).index_add(0, edges[0], g[edges[1]]), None


class NeighborMean(Function):
    @staticmethod
    def forward(ctx, x, edges):
        source, target = edges
        count = torch.zeros(len(x), dtype=torch.long).index_add(0, target, torch.ones_like(target))
        count = count.clamp(min=1)[:, None]
        ctx.save_for_backward(edges, count)
        return torch.zeros_like(x).index_add(0, target, x[source]) / count

    @staticmethod
    def backward(ctx, g):
        edges, count = ctx.saved_tensors
        g = g / count
        return torch.zeros_like(g).index_add(0, edges[0], g[edges[1]]), None


class EdgeScore(Function):
    """The inner product of both ends of each edge."""

    @staticmethod
    def forward(ctx, x, y, edges):
        ctx.save_for_backward(x, y, edges)
        return (x[edges[0]] * y[edges[1]]).sum(-1)

    @staticmethod
    def backward(ctx, g):
        x, y, edges = ctx.saved_tensors
        g = g[:, None]
        dx = torch.zeros_like(x).index_add(0, edges[0], g * y[edges[1]])
        dy = torch.zeros_like(y).index_add(0, edges[1], g * x[edges[0]])
        return dx, dy, None


class SegmentSum(Function):
    """Sums of rows with the same segment number; the numbers are sorted."""

    @staticmethod
    def forward(ctx, x, segment, count):
        ctx.save_for_backward(segment)
        return x.new_zeros(count, x.shape[1]).index_add(0, segment, x)

    @staticmethod
    def backward(ctx, g):
        (segment,) = ctx.saved_tensors
        return g[segment], None, None


class SegmentSoftmax(Function):
    """A softmax within each segment."""

    @staticmethod
    def forward(ctx, scores, segment, count):
        top = scores.new_full((count,), -torch.inf)
        top = top.scatter_reduce(0, segment, scores, "amax")
        weights = (scores - top[segment]).exp()
        total = scores.new_zeros(count).index_add(0, segment, weights)
        p = weights / total[segment]
        ctx.save_for_backward(p, segment)
        ctx.count = count
        return p

    @staticmethod
    def backward(ctx, g):
        p, segment = ctx.saved_tensors
        inner = p.new_zeros(ctx.count).index_add(0, segment, p * g)
        return p * (g - inner[segment]), None, None


class SparseProduct(Function):
    """A sparse matrix, given as (rows, columns, values), times a dense matrix."""

    @staticmethod
    def forward(ctx, values, x, rows, columns, size):
        ctx.save_for_backward(values, x, rows, columns)
        return x.new_zeros(size, x.shape[1]).index_add(0, rows, values[:, None] * x[columns])

    @staticmethod
    def backward(ctx, g):
        values, x, rows, columns = ctx.saved_tensors
        along = g[rows]
        dvalues = (along * x[columns]).sum(-1)
        dx = torch.zeros_like(x).index_add(0, columns, values[:, None] * along)
        return dvalues, dx, None, None, None


class EmbeddingBag(Function):
    """Means of bags of table rows; `offsets` has the first position of each bag."""

    @staticmethod
    def forward(ctx, table, tokens, offsets):
        ends = torch.cat([offsets[1:], torch.tensor([len(tokens)])])
        sizes = ends - offsets
        bag = torch.repeat_interleave(torch.arange(len(offsets)), sizes)
        sizes = sizes.clamp(min=1)[:, None]
        ctx.save_for_backward(tokens, bag, sizes)
        ctx.rows = table.shape[0]
        total = table.new_zeros(len(offsets), table.shape[1])
        return total.index_add(0, bag, table[tokens]) / sizes

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        tokens, bag, sizes = ctx.saved_tensors
        g = g / sizes
        return g.new_zeros(ctx.rows, g.shape[1]).index_add(0, tokens, g[bag]), None, None


class PaddedEmbedding(Function):
    """Rows of a table; the padding row is zero and has no gradient."""

    @staticmethod
    def forward(ctx, table, tokens, padding):
        ctx.save_for_backward(tokens)
        ctx.rows, ctx.padding = table.shape[0], padding
        return torch.where((tokens == padding)[..., None], 0, table[tokens])

    @staticmethod
    def backward(ctx, g):
        (tokens,) = ctx.saved_tensors
        flat = g.flatten(0, -2) * (tokens != ctx.padding).flatten()[:, None]
        return g.new_zeros(ctx.rows, g.shape[-1]).index_add(0, tokens.flatten(), flat), None, None


class ScatterMaximum(Function):
    """The largest entry of each segment, and its position."""

    @staticmethod
    def forward(ctx, x, segment, count):
        best = torch.full((count,), len(x))
        for place in x.argsort(stable=True).tolist():
            best[segment[place]] = place
        ctx.save_for_backward(best)
        ctx.mark_non_differentiable(best)
        ctx.size = len(x)
        return torch.cat([x, x.new_zeros(1)])[best], best

    @staticmethod
    def backward(ctx, g, _):
        (best,) = ctx.saved_tensors
        return g.new_zeros(ctx.size + 1).index_add(0, best, g)[:-1], None, None


def _edges(n, count):
    return torch.stack([torch.randint(0, n, (count,)), torch.randint(0, n, (count,))])


def _segments(n, count):
    return torch.randint(0, count, (n,)).sort().values


ENTRIES = [
    entry(
        NeighborSum,
        lambda n, d, e: (torch.randn(n, d), _edges(n, e)),
        (4, 3, 6),
        (1, 1, 1),
        (3, 2, 5),
    ),
    entry(
        NeighborMean,
        lambda n, d, e: (torch.randn(n, d), _edges(n, e)),
        *((4, 3, 6), (2, 1, 1), (3, 2, 5)),
    ),
    entry(
        EdgeScore,
        lambda n, d, e: (torch.randn(n, d), torch.randn(n, d), _edges(n, e)),
        *((4, 3, 6), (1, 1, 1), (3, 2, 5)),
    ),
    entry(
        SegmentSum,
        lambda n, d, s: (torch.randn(n, d), _segments(n, s), s),
        *((6, 3, 3), (1, 1, 1), (4, 2, 5)),
    ),
    entry(
        SegmentSoftmax, lambda n, s: (torch.randn(n), _segments(n, s), s), *((7, 3), (1, 1), (5, 2))
    ),
    entry(
        SparseProduct,
        lambda n, m, d, e: (
            torch.randn(e),
            torch.randn(m, d),
            torch.randint(0, n, (e,)),
            torch.randint(0, m, (e,)),
            n,
        ),
        *((3, 5, 2, 6), (1, 1, 1, 1), (4, 2, 3, 5)),
    ),
    entry(
        EmbeddingBag,
        lambda rows, d, *offsets: (
            torch.randn(rows, d),
            torch.randint(0, rows, (offsets[-1] + 2,)),
            torch.tensor(offsets),
        ),
        *((5, 3, 0, 2, 5), (2, 1, 0), (3, 2, 0, 1, 1, 3)),
    ),
    entry(
        PaddedEmbedding,
        lambda rows, d, n, t: (torch.randn(rows, d), torch.randint(0, rows, (n, t)), 0),
        *((5, 3, 2, 4), (2, 1, 1, 2), (4, 2, 3, 3)),
    ),
    entry(
        ScatterMaximum, lambda n, s: (torch.randn(n), _segments(n, s), s), *((7, 3), (1, 1), (4, 5))
    ),
]
