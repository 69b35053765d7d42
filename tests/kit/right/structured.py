"""Arguments with a structure that the forward or the backward requires."""

import torch
from kit.right.entry import entry
from torch.autograd import Function
from torch.autograd.function import once_differentiable


class LogGammaRatio(Function):
    """log B(a, b) for positive a and b."""

    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return torch.lgamma(a) + torch.lgamma(b) - torch.lgamma(a + b)

    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        both = torch.digamma(a + b)
        return g * (torch.digamma(a) - both), g * (torch.digamma(b) - both)


class PositivePower(Function):
    """x**p for positive x; both have gradients."""

    @staticmethod
    def forward(ctx, x, p):
        y = x**p
        ctx.save_for_backward(x, p, y)
        return y

    @staticmethod
    def backward(ctx, g):
        x, p, y = ctx.saved_tensors
        return g * p * y / x, g * y * x.log()


class HotSelection(Function):
    """Selects a score by a one-hot row of floats, a constant."""

    @staticmethod
    def forward(ctx, scores, hot):
        logp = scores.log_softmax(-1)
        ctx.save_for_backward(logp, hot)
        return -(logp * hot).sum(-1)

    @staticmethod
    def backward(ctx, g):
        logp, hot = ctx.saved_tensors
        return (logp.exp() - hot) * g[..., None], None


class RowEntropy(Function):
    """The entropy of rows of probabilities."""

    @staticmethod
    def forward(ctx, p):
        logp = p.log()
        ctx.save_for_backward(logp)
        return -(p * logp).sum(-1)

    @staticmethod
    def backward(ctx, g):
        (logp,) = ctx.saved_tensors
        return -(logp + 1) * g[..., None]


class CenteredAverage(Function):
    """Averages deviations from a center. Rows of weights sum to 1, so the center cancels."""

    @staticmethod
    def forward(ctx, transition, values, mean):
        ctx.save_for_backward(transition, values, mean)
        return transition @ (values - mean) + mean

    @staticmethod
    def backward(ctx, g):
        transition, values, mean = ctx.saved_tensors
        return g @ (values - mean).t(), transition.t() @ g, torch.zeros_like(mean)


class UnitAngle(Function):
    """The angle between unit vectors."""

    @staticmethod
    def forward(ctx, u, v):
        c = (u * v).sum(-1)
        ctx.save_for_backward(u, v, c)
        return torch.acos(c)

    @staticmethod
    def backward(ctx, g):
        u, v, c = ctx.saved_tensors
        d = (-g / torch.sqrt(1 - c * c))[..., None]
        return d * v, d * u


class TriangularLogDeterminant(Function):
    """log det of a triangular factor with positive diagonal, plus a whitened square."""

    @staticmethod
    def forward(ctx, factor, x):
        white = torch.linalg.solve_triangular(factor, x[:, None], upper=False)
        ctx.save_for_backward(factor, white)
        return factor.diagonal().log().sum() + 0.5 * (white * white).sum()

    @staticmethod
    def backward(ctx, g):
        factor, white = ctx.saved_tensors
        dx = torch.linalg.solve_triangular(factor.t(), white, upper=True)
        dfactor = torch.diag(1 / factor.diagonal()) - (dx @ white.t()).tril()
        return g * dfactor, g * dx[:, 0]


class OrthogonalSolve(Function):
    """A solve with an orthogonal matrix; the backward uses its transpose as the inverse."""

    @staticmethod
    def forward(ctx, q, x):
        ctx.save_for_backward(q)
        return torch.linalg.solve(q, x)

    @staticmethod
    def backward(ctx, g):
        (q,) = ctx.saved_tensors
        return None, q @ g


class PiecewiseLinear(Function):
    """Linear interpolation between sorted, constant knots."""

    @staticmethod
    def forward(ctx, x, knots, values):
        place = torch.searchsorted(knots, x.contiguous()).clamp(1, len(knots) - 1)
        left, right = knots[place - 1], knots[place]
        share = (x - left) / (right - left)
        ctx.save_for_backward(place, share, right - left, values)
        return torch.lerp(values[place - 1], values[place], share)

    @staticmethod
    def backward(ctx, g):
        place, share, width, values = ctx.saved_tensors
        dx = g * (values[place] - values[place - 1]) / width
        dvalues = torch.zeros_like(values)
        dvalues = dvalues.index_add(0, (place - 1).flatten(), (g * (1 - share)).flatten())
        dvalues = dvalues.index_add(0, place.flatten(), (g * share).flatten())
        return dx, None, dvalues


class PermutedRows(Function):
    """Permutes rows; the backward gathers by the inverse permutation."""

    @staticmethod
    def forward(ctx, x, order, inverse):
        ctx.save_for_backward(inverse)
        return x[order]

    @staticmethod
    def backward(ctx, g):
        (inverse,) = ctx.saved_tensors
        return g[inverse], None, None


class Sparsemax(Function):
    """The projection onto the simplex, by a sort."""

    @staticmethod
    def forward(ctx, x):
        ordered = x.sort(-1, descending=True).values
        ranks = torch.arange(1, x.shape[-1] + 1)
        total = ordered.cumsum(-1)
        count = (1 + ranks * ordered > total).sum(-1, keepdim=True)
        threshold = (total.gather(-1, count - 1) - 1) / count
        y = (x - threshold).clamp(min=0)
        ctx.save_for_backward(y > 0, count)
        return y

    @staticmethod
    def backward(ctx, g):
        kept, count = ctx.saved_tensors
        g = g * kept
        return kept * (g - g.sum(-1, keepdim=True) / count)


class SortedQuantiles(Function):
    """The squared distance of two sorted samples of one size."""

    @staticmethod
    def forward(ctx, x, y):
        d = x.sort(-1).values - y.sort(-1).values
        ctx.save_for_backward(d)
        return (d * d).mean(-1)

    @staticmethod
    def backward(ctx, g):
        (d,) = ctx.saved_tensors
        d = 2 * d * g[..., None] / d.shape[-1]
        return d, -d


class LoopedPower(Function):
    """Applies a stochastic matrix to rows several times."""

    @staticmethod
    def forward(ctx, rows, matrix, steps):
        visited = [rows]
        for _ in range(steps):
            visited.append(visited[-1] @ matrix)
        ctx.save_for_backward(matrix, *visited)
        return visited[-1]

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        matrix, *visited = ctx.saved_tensors
        dmatrix = torch.zeros_like(matrix)
        for rows in visited[-2::-1]:
            dmatrix += rows.t() @ g
            g = g @ matrix.t()
        return g, dmatrix, None


class Householder(Function):
    """Reflects rows by a unit vector."""

    @staticmethod
    def forward(ctx, x, u):
        share = x @ u
        ctx.save_for_backward(x, u, share)
        return x - 2 * share[:, None] * u

    @staticmethod
    def backward(ctx, g):
        x, u, share = ctx.saved_tensors
        gu = g @ u
        return g - 2 * gu[:, None] * u, -2 * (gu @ x + share @ g)


def normalized(x):
    return x / x.norm(dim=-1, keepdim=True)


def _permutation(n, d):
    order = torch.randperm(n)
    return torch.randn(n, d), order, order.argsort()


def _factor(n):
    lower = torch.randn(n, n).tril(-1) + torch.diag(torch.rand(n) + 0.5)
    return lower, torch.randn(n)


ENTRIES = [
    entry(
        LogGammaRatio,
        lambda *s: (torch.rand(*s) + 0.5, torch.rand(*s) + 0.5),
        *((3, 4), (1, 1), (2, 2, 3)),
    ),
    entry(
        PositivePower,
        lambda *s: (torch.rand(*s) + 0.5, torch.randn(*s)),
        *((3, 4), (1, 1), (2, 2, 3)),
    ),
    entry(
        HotSelection,
        lambda n, c: (torch.randn(n, c), torch.eye(c)[torch.randint(0, c, (n,))]),
        *((4, 5), (1, 2), (3, 3)),
        constants=("hot",),
    ),
    entry(RowEntropy, lambda *s: (torch.randn(*s).softmax(-1),), (3, 4), (1, 2), (2, 2, 3)),
    entry(
        CenteredAverage,
        lambda n, d: (torch.randn(n, n).softmax(-1), torch.randn(n, d), torch.randn(d)),
        *((4, 3), (2, 1), (3, 2)),
    ),
    entry(
        UnitAngle,
        lambda *s: (normalized(torch.randn(*s)), normalized(torch.randn(*s))),
        *((4, 3), (1, 4), (2, 2, 3)),
        structured=lambda u, v: (normalized(u), normalized(v)),
    ),
    entry(TriangularLogDeterminant, _factor, (4,), (1,), (3,)),
    entry(
        OrthogonalSolve,
        lambda n, k: (torch.linalg.qr(torch.randn(n, n)).Q, torch.randn(n, k)),
        *((4, 3), (1, 1), (3, 2)),
        constants=("q",),
    ),
    entry(
        PiecewiseLinear,
        lambda k, *s: (torch.rand(*s), torch.linspace(0, 1, k), torch.randn(k)),
        *((5, 3, 4), (2, 1), (4, 6)),
        constants=("knots",),
    ),
    entry(PermutedRows, _permutation, (5, 3), (1, 1), (4, 2)),
    entry(Sparsemax, lambda *s: (torch.randn(*s),), (3, 5), (1, 2), (2, 2, 4)),
    entry(
        SortedQuantiles,
        lambda *s: (torch.randn(*s).sort(-1).values, torch.randn(*s).sort(-1).values),
        *((3, 5), (1, 1), (2, 2, 4)),
    ),
    entry(
        LoopedPower,
        lambda n, d, k: (torch.randn(n, d).softmax(-1), torch.randn(d, d).softmax(-1), k),
        *((3, 4, 3), (1, 2, 1), (2, 3, 2)),
    ),
    entry(
        Householder,
        lambda n, d: (torch.randn(n, d), normalized(torch.randn(d))),
        *((4, 3), (1, 2), (3, 5)),
    ),
]
