"""Axes of exactly two, three or four columns, such as coordinates and boxes."""

import torch
from kit.right.entry import entry
from torch.autograd import Function
from torch.autograd.function import once_differentiable


class PlanarCross(Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]

    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        da = torch.stack([g * b[..., 1], -g * b[..., 0]], -1)
        db = torch.stack([-g * a[..., 1], g * a[..., 0]], -1)
        return da, db


class SpatialCross(Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return torch.linalg.cross(a, b)

    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        return torch.linalg.cross(b, g), torch.linalg.cross(g, a)


class QuaternionProduct(Function):
    @staticmethod
    def forward(ctx, p, q):
        ctx.save_for_backward(p, q)
        return QuaternionProduct.product(p, q)

    @staticmethod
    def product(p, q):
        a, b, c, d = p.unbind(-1)
        w, x, y, z = q.unbind(-1)
        return torch.stack(
            (
                a * w - b * x - c * y - d * z,
                a * x + b * w + c * z - d * y,
                a * y - b * z + c * w + d * x,
                a * z + b * y - c * x + d * w,
            ),
            -1,
        )

    @staticmethod
    def backward(ctx, g):
        p, q = ctx.saved_tensors
        conjugate = p.new_tensor([1, -1, -1, -1])
        dp = QuaternionProduct.product(g, q * conjugate)
        dq = QuaternionProduct.product(p * conjugate, g)
        return dp, dq


class QuaternionRotation(Function):
    """The rotation matrix of a nonzero quaternion."""

    @staticmethod
    def forward(ctx, q):
        w, x, y, z = q.unbind(-1)
        s = 2 / (q * q).sum(-1)
        rows = (
            (-y * y - z * z, x * y - z * w, x * z + y * w),
            (x * y + z * w, -x * x - z * z, y * z - x * w),
            (x * z - y * w, y * z + x * w, -x * x - y * y),
        )
        m = torch.stack([torch.stack(row, -1) for row in rows], -2)
        ctx.save_for_backward(q, s, m)
        return torch.eye(3, dtype=q.dtype) + s[..., None, None] * m

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        q, s, m = ctx.saved_tensors
        w, x, y, z = q.unbind(-1)
        e = g.mT
        dw = x * (g[..., 2, 1] - g[..., 1, 2]) + y * (g[..., 0, 2] - g[..., 2, 0])
        dw = dw + z * (g[..., 1, 0] - g[..., 0, 1])
        dx = y * (g + e)[..., 0, 1] + z * (g + e)[..., 0, 2] + w * (g - e)[..., 2, 1]
        dx = dx - 2 * x * (g[..., 1, 1] + g[..., 2, 2])
        dy = x * (g + e)[..., 0, 1] + z * (g + e)[..., 1, 2] + w * (g - e)[..., 0, 2]
        dy = dy - 2 * y * (g[..., 0, 0] + g[..., 2, 2])
        dz = x * (g + e)[..., 0, 2] + y * (g + e)[..., 1, 2] + w * (g - e)[..., 1, 0]
        dz = dz - 2 * z * (g[..., 0, 0] + g[..., 1, 1])
        direct = s[..., None] * torch.stack((dw, dx, dy, dz), -1)
        along = (g * m).sum((-1, -2)) * s * s
        return direct - along[..., None] * q


class ConicOfCovariance(Function):
    """Inverses of symmetric 2 x 2 matrices; three numbers stand for each matrix."""

    @staticmethod
    def forward(ctx, covariance):
        a, b, c = covariance.unbind(-1)
        det = a * c - b * b
        conic = torch.stack((c, -b, a), -1) / det[..., None]
        ctx.save_for_backward(conic)
        return conic

    @staticmethod
    def backward(ctx, g):
        (conic,) = ctx.saved_tensors
        x, y, z = conic.unbind(-1)
        gx, gy, gz = g.unbind(-1)
        da = -(gx * x * x + gy * x * y + gz * y * y)
        db = -(2 * gx * x * y + gy * (x * z + y * y) + 2 * gz * y * z)
        dc = -(gx * y * y + gy * y * z + gz * z * z)
        return torch.stack((da, db, dc), -1)


class GaussianSplat(Function):
    """Weights of pixels under Gaussians; a center has 2 numbers, a conic has 3."""

    @staticmethod
    def forward(ctx, center, conic, pixels):
        d = pixels[:, None] - center
        a, b, c = conic.unbind(-1)
        power = -0.5 * (a * d[..., 0] ** 2 + c * d[..., 1] ** 2) - b * d[..., 0] * d[..., 1]
        weight = torch.exp(power)
        ctx.save_for_backward(d, conic, weight)
        return weight

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        d, conic, weight = ctx.saved_tensors
        a, b, c = conic.unbind(-1)
        x, y = d.unbind(-1)
        h = g * weight
        dcenter = torch.stack((h * (a * x + b * y), h * (c * y + b * x)), -1)
        dconic = torch.stack((-0.5 * h * x * x, -h * x * y, -0.5 * h * y * y), -1)
        return dcenter.sum(0), dconic.sum(0), None


class BoxOverlap(Function):
    """1 - intersection over union of paired boxes (x0, y0, x1, y1)."""

    @staticmethod
    def forward(ctx, a, b):
        low, high = torch.maximum(a[:, :2], b[:, :2]), torch.minimum(a[:, 2:], b[:, 2:])
        sides = (high - low).clamp(min=0)
        size_a, size_b = a[:, 2:] - a[:, :2], b[:, 2:] - b[:, :2]
        common = sides.prod(1)
        union = size_a.prod(1) + size_b.prod(1) - common
        ctx.save_for_backward(a, b, sides, size_a, size_b, common, union)
        return 1 - common / union

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        a, b, sides, size_a, size_b, common, union = ctx.saved_tensors
        dcommon = (-g * (union + common) / union**2)[:, None]
        darea = (g * common / union**2)[:, None]
        dsides = dcommon * sides.flip(1) * (sides > 0)
        mine_low, mine_high = a[:, :2] > b[:, :2], a[:, 2:] < b[:, 2:]
        da = torch.cat((-dsides * mine_low, dsides * mine_high), 1)
        db = torch.cat((-dsides * ~mine_low, dsides * ~mine_high), 1)
        da = da + torch.cat((-darea * size_a.flip(1), darea * size_a.flip(1)), 1)
        db = db + torch.cat((-darea * size_b.flip(1), darea * size_b.flip(1)), 1)
        return da, db


class ComplexProduct(Function):
    """The product of complex numbers; each is a pair (real, imaginary)."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        real = x[..., 0] * y[..., 0] - x[..., 1] * y[..., 1]
        imaginary = x[..., 0] * y[..., 1] + x[..., 1] * y[..., 0]
        return torch.stack((real, imaginary), -1)

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        gr, gi = g.unbind(-1)
        dx = torch.stack((gr * y[..., 0] + gi * y[..., 1], gi * y[..., 0] - gr * y[..., 1]), -1)
        dy = torch.stack((gr * x[..., 0] + gi * x[..., 1], gi * x[..., 0] - gr * x[..., 1]), -1)
        return dx, dy


class BinaryMargin(Function):
    """The logistic loss of the difference of two columns."""

    @staticmethod
    def forward(ctx, z, label):
        sign = 1 - 2 * label.to(z.dtype)
        margin = sign * (z[:, 0] - z[:, 1])
        ctx.save_for_backward(margin, sign)
        return torch.nn.functional.softplus(-margin).mean()

    @staticmethod
    def backward(ctx, g):
        margin, sign = ctx.saved_tensors
        d = -torch.sigmoid(-margin) * sign * g / len(margin)
        return torch.stack([d, -d], 1), None


class HomogeneousProjection(Function):
    """Image points of 3-D points under a 3 x 4 camera matrix."""

    @staticmethod
    def forward(ctx, points, camera):
        seen = points @ camera[:, :3].T + camera[:, 3]
        y = seen[:, :2] / seen[:, 2:]
        ctx.save_for_backward(points, camera, seen, y)
        return y

    @staticmethod
    def backward(ctx, g):
        points, camera, seen, y = ctx.saved_tensors
        dxy = g / seen[:, 2:]
        dseen = torch.cat((dxy, -(dxy * y).sum(1, keepdim=True)), 1)
        dcamera = torch.cat((dseen.T @ points, dseen.sum(0)[:, None]), 1)
        return dseen @ camera[:, :3], dcamera


def _two(k):
    return lambda *s: (torch.randn(*s, k), torch.randn(*s, k))


def _covariances(n):
    a, c = torch.rand(n) + 1, torch.rand(n) + 1
    return (torch.stack((a, torch.rand(n) - 0.5, c), -1),)


def _splat(pixels, n):
    return torch.randn(n, 2), _covariances(n)[0], torch.randn(pixels, 2)


def _boxes(n):
    corner = 2 * torch.rand(2, n, 2)
    return tuple(torch.cat((corner, corner + 0.5 + torch.rand(2, n, 2)), -1))


def _camera(n):
    points, camera = torch.randn(n, 3), torch.randn(3, 4)
    camera[2] = torch.tensor([0.1, 0.2, 0.3, 4.0])
    return points, camera


ENTRIES = [
    entry(PlanarCross, _two(2), (4,), (1,), (2, 3)),
    entry(SpatialCross, _two(3), (4,), (1,), (2, 3)),
    entry(QuaternionProduct, _two(4), (3,), (1,), (2, 2)),
    entry(QuaternionRotation, lambda *s: (torch.randn(*s, 4),), (3,), (1,), (2, 2)),
    entry(ConicOfCovariance, _covariances, (4,), (1,), (3,)),
    entry(GaussianSplat, _splat, (5, 3), (1, 1), (2, 4), constants=("pixels",)),
    entry(BoxOverlap, _boxes, (6,), (1,), (7,)),
    entry(ComplexProduct, _two(2), (3, 4), (1,), (2,)),
    entry(
        BinaryMargin, lambda n: (torch.randn(n, 2), torch.randint(0, 2, (n,))), *((5,), (1,), (3,))
    ),
    entry(HomogeneousProjection, _camera, (5,), (1,), (2,)),
]
