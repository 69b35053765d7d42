"""Features of autograd.Function: ctx flags, modules, tuples, errors, varargs."""

import torch
from kit.right.entry import entry
from torch import nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable


class InPlaceLeaky(Function):
    """Changes its input in place and marks it dirty."""

    @staticmethod
    def forward(ctx, x, slope):
        kept = x > 0
        ctx.save_for_backward(kept)
        ctx.slope = slope
        ctx.mark_dirty(x)
        return x.mul_(torch.where(kept, 1, slope))

    @staticmethod
    def backward(ctx, g):
        (kept,) = ctx.saved_tensors
        return torch.where(kept, g, ctx.slope * g), None


class SavedOutput(Function):
    @staticmethod
    def forward(x):
        return torch.tanh(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * (1 - y * y)


class TopChoices(Function):
    """The k largest entries of each row, their positions, and all values doubled."""

    @staticmethod
    def forward(ctx, x, k):
        values, places = x.topk(k, -1)
        ctx.save_for_backward(places)
        ctx.mark_non_differentiable(places)
        ctx.shape = x.shape
        return values, places, x * 2

    @staticmethod
    def backward(ctx, gv, _, gx):
        (places,) = ctx.saved_tensors
        return (2 * gx).scatter_add(-1, places, gv), None


class SortedRows(Function):
    @staticmethod
    def forward(ctx, x, descending=False):
        values, order = x.sort(dim=-1, descending=descending)
        ctx.save_for_backward(order.argsort(-1))
        ctx.mark_non_differentiable(order)
        return values, order

    @staticmethod
    def backward(ctx, g, _):
        (back,) = ctx.saved_tensors
        return g.gather(-1, back), None


class Moments(Function):
    """Two outputs whose cotangents may be None."""

    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x)
        return x.mean(-1), (x * x).mean(-1)

    @staticmethod
    def backward(ctx, first, second):
        (x,) = ctx.saved_tensors
        grad = torch.zeros_like(x)
        if first is not None:
            grad = grad + first[..., None] / x.shape[-1]
        if second is not None:
            grad = grad + 2 * x * second[..., None] / x.shape[-1]
        return grad


class CovarianceKernel(Function):
    """The width has a gradient; the forward raises if the points need one."""

    @staticmethod
    def forward(ctx, x, y, width):
        if any(ctx.needs_input_grad[:2]):
            raise RuntimeError("CovarianceKernel has no gradient of its points")
        square = (x[:, None] - y).square().sum(-1)
        kernel = torch.exp(-0.5 * square / width**2)
        ctx.save_for_backward(square, kernel, width)
        return kernel

    @staticmethod
    def backward(ctx, g):
        square, kernel, width = ctx.saved_tensors
        return None, None, (g * kernel * square).sum() / width**3


class OptionalBias(Function):
    """Computes only the gradients that are needed; the bias may be None."""

    @staticmethod
    def forward(ctx, x, weight, bias=None):
        ctx.save_for_backward(x, weight)
        return nn.functional.linear(x, weight, bias)

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        dx = dweight = dbias = None
        if ctx.needs_input_grad[0]:
            dx = g @ weight
        if ctx.needs_input_grad[1]:
            dweight = g.flatten(0, -2).t() @ x.flatten(0, -2)
        if ctx.needs_input_grad[2]:
            dbias = g.flatten(0, -2).sum(0)
        return dx, dweight, dbias


class WeightedStack(Function):
    """A weighted sum of any number of tensors."""

    @staticmethod
    def forward(ctx, weights, *tensors):
        ctx.save_for_backward(weights, *tensors)
        return sum(w * t for w, t in zip(weights, tensors, strict=True))

    @staticmethod
    def backward(ctx, g):
        weights, *tensors = ctx.saved_tensors
        dweights = torch.stack([(g * t).sum() for t in tensors])
        return dweights, *(w * g for w in weights)


class JoinAlong(Function):
    @staticmethod
    def forward(ctx, dim, *tensors):
        ctx.dim, ctx.sizes = dim, [t.shape[dim] for t in tensors]
        return torch.cat(tensors, dim)

    @staticmethod
    def backward(ctx, g):
        return None, *g.split(ctx.sizes, ctx.dim)


class MixtureOfTables(Function):
    """Learned weights mix a list of constant tables."""

    @staticmethod
    def forward(ctx, weights, tables):
        ctx.save_for_backward(*tables)
        return torch.einsum("nk,kd->nd", weights, torch.stack(tables))

    @staticmethod
    def backward(ctx, g):
        return g @ torch.stack(ctx.saved_tensors).t(), None


class Recomputed(Function):
    """The backward recomputes a module, whose parameters are arguments too."""

    @staticmethod
    def forward(ctx, x, module, *parameters):
        ctx.module, ctx.count = module, len(parameters)
        ctx.save_for_backward(x, *parameters)
        return module(x)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        x, *parameters = ctx.saved_tensors
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            names = [name for name, _ in ctx.module.named_parameters()]
            own = [p.detach().requires_grad_() for p in parameters]
            y = torch.func.functional_call(ctx.module, dict(zip(names, own, strict=True)), x)
        dx, *rest = torch.autograd.grad(y, (x, *own), g)
        return dx, None, *rest


class ReversibleBlock(Function):
    """Additive coupling: the backward rebuilds the inputs from the outputs."""

    @staticmethod
    def forward(ctx, a, b, f, h, *parameters):
        y = a + f(b)
        z = b + h(y)
        ctx.save_for_backward(y, z)
        ctx.modules = f, h
        return y, z

    @staticmethod
    @once_differentiable
    def backward(ctx, gy, gz):
        y, z = ctx.saved_tensors
        f, h = ctx.modules
        with torch.enable_grad():
            y = y.detach().requires_grad_()
            changed = h(y)
            through, *gh = torch.autograd.grad(changed, (y, *h.parameters()), gz)
        gy = gy + through
        b = (z - changed).detach().requires_grad_()
        with torch.enable_grad():
            through, *gf = torch.autograd.grad(f(b), (b, *f.parameters()), gy)
        return gy, gz + through, None, None, *gf, *gh


class FixedPoint(Function):
    """z = tanh(W z + x) by iteration; the backward solves a linear system."""

    @staticmethod
    def forward(ctx, x, weight, steps=100):
        z = torch.zeros_like(x)
        for _ in range(steps):
            z = torch.tanh(z @ weight.t() + x)
        ctx.save_for_backward(z, weight)
        return z

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        z, weight = ctx.saved_tensors
        slope = 1 - z * z
        system = torch.eye(len(weight), dtype=z.dtype) - slope[:, :, None] * weight
        u = torch.linalg.solve(system.mT, g[..., None])[..., 0] * slope
        return u, u.t() @ z, None


class Bisection(Function):
    """The root y of y + y**3 = x; autograd cannot go through the brackets."""

    @staticmethod
    def forward(ctx, x):
        low, high = -1 - x.abs(), 1 + x.abs()
        for _ in range(80):
            middle = (low + high) / 2
            below = middle + middle**3 < x
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        y = (low + high) / 2
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g / (1 + 3 * y * y)


class MaskedDropout(Function):
    """Dropout by a given mask; the identity outside training."""

    @staticmethod
    def forward(ctx, x, mask, rate, training):
        ctx.factor = 1 / (1 - rate)
        ctx.training = training
        if not training:
            return x.clone()
        ctx.save_for_backward(mask)
        return x * mask * ctx.factor

    @staticmethod
    def backward(ctx, g):
        if not ctx.training:
            return g, None, None, None
        (mask,) = ctx.saved_tensors
        return g * mask * ctx.factor, None, None, None


class BitMaskedRelu(Function):
    """Saves the signs as bytes."""

    @staticmethod
    def forward(ctx, x):
        signs = (x > 0).to(torch.uint8)
        ctx.save_for_backward(signs)
        return x * signs

    @staticmethod
    def backward(ctx, g):
        (signs,) = ctx.saved_tensors
        return g * signs


class NormOfOrder(Function):
    """A norm chosen by a string: order 1, 2 or infinity."""

    @staticmethod
    def forward(ctx, x, order="two"):
        ctx.order = order
        if order == "one":
            y = x.abs().sum(-1)
        elif order == "two":
            y = (x * x).sum(-1).sqrt()
        else:
            y = x.abs().amax(-1)
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        g, y = g[..., None], y[..., None]
        if ctx.order == "one":
            return g * x.sign(), None
        if ctx.order == "two":
            return g * torch.where(y == 0, 0, x / y), None
        first = torch.zeros_like(x).scatter(-1, x.abs().argmax(-1, keepdim=True), 1)
        return g * x.sign() * first, None


class FilledRows(Function):
    """Fills a buffer that needs a gradient, row by row."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        out = x.new_empty(len(x), weight.shape[1], requires_grad=any(ctx.needs_input_grad))
        for n in range(len(x)):
            out[n : n + 1] = x[n : n + 1] @ weight
        return out

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        return g @ weight.t(), x.t() @ g


def _blocks(n, d):
    f, h = (nn.Sequential(nn.Linear(d, d), nn.Tanh()) for _ in range(2))
    return torch.randn(n, d), torch.randn(n, d), f, h, *f.parameters(), *h.parameters()


def _module(n, d, h):
    module = nn.Sequential(nn.Linear(d, h), nn.Tanh(), nn.Linear(h, d))
    return torch.randn(n, d), module, *module.parameters()


ENTRIES = [
    entry(
        InPlaceLeaky,
        lambda n, c, s: (torch.randn(n, c), s),
        *((3, 5, 0.1), (1, 2, 0.5), (4, 3, 0.2)),
        in_place=True,
    ),
    entry(SavedOutput, lambda *s: (torch.randn(*s),), (3, 5), (1, 1), (2, 2, 3)),
    entry(TopChoices, lambda n, c, k: (torch.randn(n, c), k), *((3, 6, 2), (1, 2, 1), (2, 4, 4))),
    entry(
        SortedRows,
        lambda n, c, *more: (torch.randn(n, c), *more),
        *((3, 6), (1, 1, True), (2, 4, True)),
    ),
    entry(Moments, lambda *s: (torch.randn(*s),), (3, 5), (1, 1), (2, 2, 3)),
    entry(
        CovarianceKernel,
        lambda n, m, d: (torch.randn(n, d), torch.randn(m, d), torch.tensor(0.9)),
        *((4, 3, 2), (1, 1, 1), (2, 5, 3)),
        constants=("x", "y"),
    ),
    entry(
        OptionalBias,
        lambda n, i, o: (torch.randn(n, i), torch.randn(o, i), torch.randn(o)),
        *((3, 4, 5), (1, 1, 1), (2, 3, 2)),
    ),
    entry(
        WeightedStack,
        lambda k, *s: (torch.rand(k), *(torch.randn(*s) for _ in range(k))),
        *((3, 2, 4), (1, 1, 1), (2, 3)),
    ),
    entry(
        JoinAlong,
        lambda dim, n, *sizes: (dim, *(torch.randn(n, size) for size in sizes)),
        *((1, 3, 2, 4), (1, 1, 1), (-1, 2, 3, 1, 2)),
    ),
    entry(
        MixtureOfTables,
        lambda n, k, d: (torch.rand(n, k), [torch.randn(d) for _ in range(k)]),
        *((4, 3, 2), (1, 1, 1), (2, 2, 5)),
    ),
    entry(Recomputed, _module, (5, 4, 3), (1, 1, 1), (2, 3, 5)),
    entry(ReversibleBlock, _blocks, (5, 3), (1, 1), (2, 4)),
    entry(
        FixedPoint,
        lambda n, d: (torch.randn(n, d), 0.3 * torch.randn(d, d) / d**0.5),
        *((4, 3), (1, 1), (2, 4)),
    ),
    entry(Bisection, lambda *s: (torch.randn(*s),), (3, 5), (1, 1), (2, 2, 3)),
    entry(
        MaskedDropout,
        lambda n, c, rate, training: (torch.randn(n, c), torch.rand(n, c) > rate, rate, training),
        *((4, 5, 0.3, True), (1, 2, 0.5, False), (3, 3, 0.1, True)),
    ),
    entry(BitMaskedRelu, lambda *s: (torch.randn(*s),), (3, 5), (1, 1), (2, 2, 3)),
    entry(
        NormOfOrder,
        lambda n, c, *more: (torch.randn(n, c), *more),
        *((3, 5), (2, 2, "one"), (4, 3, "max")),
    ),
    entry(
        FilledRows,
        lambda n, i, o: (torch.randn(n, i), torch.randn(i, o)),
        *((3, 4, 5), (1, 1, 1), (2, 3, 2)),
    ),
]
