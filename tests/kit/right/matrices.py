"""Functions of square, symmetric, triangular and rectangular matrices."""

import torch
from kit.right.entry import entry
from torch.autograd import Function
from torch.autograd.function import once_differentiable


def symmetric(a):
    return (a + a.mT) / 2


class MatrixInverse(Function):
    @staticmethod
    def forward(ctx, a):
        y = torch.linalg.inv(a)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return -(y.mT @ g @ y.mT)


class LinearSolve(Function):
    @staticmethod
    def forward(ctx, a, b):
        x = torch.linalg.solve(a, b)
        ctx.save_for_backward(a, x)
        return x

    @staticmethod
    def backward(ctx, g):
        a, x = ctx.saved_tensors
        db = torch.linalg.solve(a.mT, g)
        return -(db @ x.mT), db


class BatchedSolve(Function):
    """One right-hand side per matrix."""

    @staticmethod
    def forward(ctx, a, b):
        lu, pivots = torch.linalg.lu_factor(a)
        x = torch.linalg.lu_solve(lu, pivots, b[..., None])[..., 0]
        ctx.save_for_backward(lu, pivots, x)
        return x

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        lu, pivots, x = ctx.saved_tensors
        db = torch.linalg.lu_solve(lu, pivots, g[..., None], adjoint=True)[..., 0]
        return -db[..., :, None] * x[..., None, :], db


class LogDeterminantSPD(Function):
    """The log-determinant of a symmetric positive definite matrix."""

    @staticmethod
    def forward(ctx, a):
        factor = torch.linalg.cholesky(a)
        ctx.save_for_backward(factor)
        return 2 * factor.diagonal().log().sum()

    @staticmethod
    def backward(ctx, g):
        (factor,) = ctx.saved_tensors
        return g * torch.cholesky_inverse(factor)


class CholeskyFactor(Function):
    @staticmethod
    def forward(ctx, a):
        factor = torch.linalg.cholesky(a)
        ctx.save_for_backward(factor)
        return factor

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (factor,) = ctx.saved_tensors
        p = (factor.mT @ g).tril()
        p.diagonal().mul_(0.5)
        s = torch.linalg.solve_triangular(factor.mT, p, upper=True)
        s = torch.linalg.solve_triangular(factor, s, upper=False, left=False)
        return (s + s.mT) / 2


class SquareRootSPD(Function):
    """The square root of a symmetric positive definite matrix."""

    @staticmethod
    def forward(ctx, a):
        values, vectors = torch.linalg.eigh(a)
        roots = values.sqrt()
        ctx.save_for_backward(roots, vectors)
        return (vectors * roots) @ vectors.mT

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        roots, vectors = ctx.saved_tensors
        inner = vectors.mT @ g @ vectors / (roots[:, None] + roots)
        d = vectors @ inner @ vectors.mT
        return (d + d.mT) / 2


class SymmetricEigenvalues(Function):
    @staticmethod
    def forward(ctx, a):
        values, vectors = torch.linalg.eigh(a)
        ctx.save_for_backward(vectors)
        return values

    @staticmethod
    def backward(ctx, g):
        (vectors,) = ctx.saved_tensors
        return (vectors * g) @ vectors.mT


class SymmetricExponential(Function):
    """The exponential of a symmetric matrix; the backward uses divided differences."""

    @staticmethod
    def forward(ctx, a):
        values, vectors = torch.linalg.eigh(a)
        ctx.save_for_backward(values, vectors)
        return (vectors * values.exp()) @ vectors.mT

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        values, vectors = ctx.saved_tensors
        half = (values[:, None] - values) / 2
        mean = (values[:, None] + values) / 2
        ratio = torch.where(half.abs() < 1e-6, 1, half.sinh() / half)
        d = vectors @ (mean.exp() * ratio * (vectors.mT @ g @ vectors)) @ vectors.mT
        return symmetric(d)


class RectangularTrace(Function):
    """The trace of a rectangular matrix."""

    @staticmethod
    def forward(ctx, x):
        ctx.shape = x.shape
        return x.diagonal().sum()

    @staticmethod
    def backward(ctx, g):
        return g * torch.eye(*ctx.shape, dtype=g.dtype)


class SylvesterSolve(Function):
    """The solution X of A X + X B = C."""

    @staticmethod
    def solved(a, b, c):
        n, m = c.shape
        eye_n, eye_m = (torch.eye(k, dtype=c.dtype) for k in (n, m))
        both = torch.einsum("ij,kl->ikjl", a, eye_m) + torch.einsum("ij,lk->ikjl", eye_n, b)
        both = both.reshape(n * m, n * m)
        return torch.linalg.solve(both, c.reshape(-1)).reshape(n, m)

    @staticmethod
    def forward(ctx, a, b, c):
        x = SylvesterSolve.solved(a, b, c)
        ctx.save_for_backward(a, b, x)
        return x

    @staticmethod
    def backward(ctx, g):
        a, b, x = ctx.saved_tensors
        dc = SylvesterSolve.solved(a.mT, b.mT, g)
        return -(dc @ x.mT), -(x.mT @ dc), dc


class TriangularSolve(Function):
    @staticmethod
    def forward(ctx, lower, b):
        x = torch.linalg.solve_triangular(lower, b, upper=False)
        ctx.save_for_backward(lower, x)
        return x

    @staticmethod
    def backward(ctx, g):
        lower, x = ctx.saved_tensors
        db = torch.linalg.solve_triangular(lower.mT, g, upper=True)
        return -(db @ x.mT).tril(), db


class SymmetricForm(Function):
    """x P x for each row; the backward requires a symmetric P."""

    @staticmethod
    def forward(ctx, x, p):
        xp = x @ p
        ctx.save_for_backward(x, xp)
        return (xp * x).sum(-1)

    @staticmethod
    def backward(ctx, g):
        x, xp = ctx.saved_tensors
        gx = g[:, None] * x
        return 2 * g[:, None] * xp, gx.t() @ x


class KroneckerProduct(Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        rows, columns = a.shape[0] * b.shape[0], a.shape[1] * b.shape[1]
        return torch.einsum("ij,kl->ikjl", a, b).reshape(rows, columns)

    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        g = g.reshape(a.shape[0], b.shape[0], a.shape[1], b.shape[1])
        return torch.einsum("ikjl,kl->ij", g, b), torch.einsum("ikjl,ij->kl", g, a)


class MatrixPower(Function):
    """The k-th power of a matrix, k > 0."""

    @staticmethod
    def forward(ctx, a, k):
        powers = [torch.eye(a.shape[0], dtype=a.dtype)]
        for _ in range(k):
            powers.append(powers[-1] @ a)
        ctx.save_for_backward(*powers)
        return powers[k]

    @staticmethod
    def backward(ctx, g):
        powers = ctx.saved_tensors
        last = len(powers) - 2
        terms = (powers[i].mT @ g @ powers[last - i].mT for i in range(last + 1))
        return sum(terms), None


class GramSchmidtPair(Function):
    """The component of b orthogonal to a."""

    @staticmethod
    def forward(ctx, a, b):
        square = (a * a).sum(-1, keepdim=True)
        share = (a * b).sum(-1, keepdim=True) / square
        ctx.save_for_backward(a, b, square, share)
        return b - share * a

    @staticmethod
    def backward(ctx, g):
        a, b, square, share = ctx.saved_tensors
        ga = (g * a).sum(-1, keepdim=True)
        da = -share * g - ga * (b - 2 * share * a) / square
        return da, g - ga / square * a


def _spd(n):
    x = torch.randn(n, n)
    return (x @ x.T + n * torch.eye(n),)


def _symmetric(n):
    x = torch.randn(n, n)
    return ((x + x.T) / 2,)


def _well(n):
    return torch.randn(n, n) + 3 * torch.eye(n)


def _sylvester(n, m):
    return _well(n), _well(m), torch.randn(n, m)


ENTRIES = [
    entry(MatrixInverse, lambda n: (_well(n),), (4,), (1,), (3,)),
    entry(LinearSolve, lambda n, k: (_well(n), torch.randn(n, k)), (4, 2), (1, 1), (3, 5)),
    entry(
        BatchedSolve,
        lambda b, n: (torch.randn(b, n, n) + 3 * torch.eye(n), torch.randn(b, n)),
        *((2, 3), (1, 1), (3, 2)),
    ),
    entry(LogDeterminantSPD, _spd, (4,), (1,), (3,), structured=symmetric),
    entry(CholeskyFactor, _spd, (4,), (1,), (3,), structured=symmetric),
    entry(SquareRootSPD, _spd, (4,), (1,), (3,), structured=symmetric),
    entry(SymmetricEigenvalues, _symmetric, (4,), (1,), (3,), structured=symmetric),
    entry(SymmetricExponential, _symmetric, (4,), (1,), (3,), structured=symmetric),
    entry(RectangularTrace, lambda n, m: (torch.randn(n, m),), (4, 4), (3, 5), (5, 2)),
    entry(SylvesterSolve, _sylvester, (3, 2), (1, 1), (2, 4)),
    entry(
        TriangularSolve,
        lambda n, k: (_well(n).tril(), torch.randn(n, k)),
        *((4, 2), (1, 1), (3, 3)),
    ),
    entry(
        SymmetricForm,
        lambda n, d: (torch.randn(n, d), *_spd(d)),
        *((3, 4), (1, 1), (5, 2)),
        structured=lambda x, p: (x, symmetric(p)),
    ),
    entry(
        KroneckerProduct,
        lambda *s: (torch.randn(*s[:2]), torch.randn(*s[2:])),
        *((2, 3, 3, 2), (1, 1, 2, 1), (2, 2, 1, 3)),
    ),
    entry(MatrixPower, lambda n, k: (torch.randn(n, n), k), (3, 3), (1, 1), (2, 4)),
    entry(
        GramSchmidtPair, lambda *s: (torch.randn(*s), torch.randn(*s)), *((3, 4), (1, 2), (2, 2, 3))
    ),
]
