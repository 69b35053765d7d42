"""Right Functions as people write them: with ctx or setup_context, saved values, flags, losses."""

import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable


class Linear(Function):
    @staticmethod
    def forward(ctx, x, weight, bias=None):
        ctx.save_for_backward(x, weight)
        ctx.has_bias = bias is not None
        y = x @ weight.t()
        return y + bias if bias is not None else y

    @staticmethod
    def backward(ctx, grad_output):
        x, weight = ctx.saved_tensors
        grad_x = grad_weight = grad_bias = None
        if ctx.needs_input_grad[0]:
            grad_x = grad_output @ weight
        if ctx.needs_input_grad[1]:
            grad_weight = grad_output.t() @ x
        if ctx.has_bias and ctx.needs_input_grad[2]:
            grad_bias = grad_output.sum(0)
        return grad_x, grad_weight, grad_bias


class LayerNorm(Function):
    @staticmethod
    def forward(ctx, x, weight, bias, eps=1e-5):
        mu = x.mean(-1, keepdim=True)
        var = ((x - mu) ** 2).mean(-1, keepdim=True)
        rstd = torch.rsqrt(var + eps)
        xhat = (x - mu) * rstd
        ctx.save_for_backward(xhat, weight, rstd)
        return xhat * weight + bias

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        xhat, weight, rstd = ctx.saved_tensors
        d = dy * weight
        c1 = (d * xhat).mean(-1, keepdim=True)
        c2 = d.mean(-1, keepdim=True)
        dx = (d - xhat * c1 - c2) * rstd
        dw = (dy * xhat).sum(0)
        db = dy.sum(0)
        return dx, dw, db, None


class RMSNorm(Function):
    @staticmethod
    def forward(x, weight, eps):
        rstd = torch.rsqrt((x * x).mean(-1, keepdim=True) + eps)
        return x * rstd * weight

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, weight, eps = inputs
        ctx.save_for_backward(x, weight)
        ctx.eps = eps

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        n = x.shape[-1]
        rstd = torch.rsqrt((x * x).mean(-1, keepdim=True) + ctx.eps)
        wdy = dy * weight
        dot = (wdy * x).sum(-1, keepdim=True)
        dx = rstd * wdy - rstd**3 * x * dot / n
        dw = (dy * x * rstd).sum(0)
        return dx, dw, None


class Softmax(Function):
    @staticmethod
    def forward(ctx, x):
        s = torch.softmax(x, dim=-1)
        ctx.save_for_backward(s)
        return s

    @staticmethod
    def backward(ctx, g):
        (s,) = ctx.saved_tensors
        inner = (g * s).sum(-1, keepdim=True)
        return s * (g - inner)


class CrossEntropy(Function):
    @staticmethod
    def forward(ctx, logits, target):
        logp = torch.log_softmax(logits, -1)
        ctx.save_for_backward(logp, target)
        return -logp.gather(1, target[:, None]).mean()

    @staticmethod
    def backward(ctx, grad_output):
        logp, target = ctx.saved_tensors
        p = logp.exp()
        p[torch.arange(len(target)), target] -= 1
        p /= len(target)
        return grad_output * p, None


class MeanSquares(Function):
    @staticmethod
    def forward(ctx, pred, target):
        ctx.save_for_backward(pred, target)
        return ((pred - target) ** 2).mean()

    @staticmethod
    def backward(ctx, grad_out):
        pred, target = ctx.saved_tensors
        d = 2 * (pred - target) / pred.numel()
        return grad_out * d, -grad_out * d


class SwiGLU(Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a * torch.sigmoid(a) * b

    @staticmethod
    def backward(ctx, dc):
        a, b = ctx.saved_tensors
        sig = torch.sigmoid(a)
        silu = a * sig
        db = dc * silu
        da = dc * (silu * (1 - sig) + sig) * b
        return da, db


class Scale(Function):
    @staticmethod
    def forward(ctx, x, alpha, shift):
        ctx.save_for_backward(x, alpha)
        return alpha * torch.tanh(x) + shift

    @staticmethod
    def backward(ctx, g):
        x, alpha = ctx.saved_tensors
        t = torch.tanh(x)
        dx = g * alpha * (1 - t**2)
        dalpha = (g * t).sum()
        dshift = g.sum(0)
        return dx, dalpha, dshift


class Bilinear(Function):
    @staticmethod
    def forward(x, m, y):
        return torch.einsum("ni,ij,nj->n", x, m, y)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        x, m, y = ctx.saved_tensors
        dx = g[:, None] * (y @ m.t())
        dm = x.t() @ (g[:, None] * y)
        dy = g[:, None] * (x @ m)
        return dx, dm, dy


class Attention(Function):
    @staticmethod
    def forward(ctx, q, k, v):
        scale = q.shape[-1] ** -0.5
        p = torch.softmax(q @ k.t() * scale, -1)
        ctx.save_for_backward(q, k, v, p)
        ctx.scale = scale
        return p @ v

    @staticmethod
    @once_differentiable
    def backward(ctx, do):
        q, k, v, p = ctx.saved_tensors
        dv = p.t() @ do
        dp = do @ v.t()
        ds = p * (dp - (dp * p).sum(-1, keepdim=True))
        dq = ds @ k * ctx.scale
        dk = ds.t() @ q * ctx.scale
        return dq, dk, dv


class Normalize(Function):
    @staticmethod
    def forward(ctx, x):
        norm = x.norm(dim=-1, keepdim=True)
        y = x / norm
        ctx.save_for_backward(y, norm)
        return y

    @staticmethod
    def backward(ctx, grad):
        y, norm = ctx.saved_tensors
        return (grad - y * (grad * y).sum(-1, keepdim=True)) / norm


class SquaredRelu(Function):
    @staticmethod
    def forward(ctx, input):
        ctx.save_for_backward(input)
        return input.clamp(min=0) ** 2

    @staticmethod
    def backward(ctx, grad_output):
        (input,) = ctx.saved_tensors
        grad_input = grad_output.clone()
        grad_input[input < 0] = 0
        return grad_input * 2 * input.clamp(min=0)


class Polynomial(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return 0.5 * (5 * x**3 - 3 * x)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * 1.5 * (5 * x**2 - 1)


class SumAndProduct(Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a + b, a * b

    @staticmethod
    def backward(ctx, gs, gp):
        a, b = ctx.saved_tensors
        return gs + gp * b, gs + gp * a


class Whiten(Function):
    @staticmethod
    def forward(ctx, x, gamma, beta):
        n = x.shape[0]
        mu = x.mean(0)
        xc = x - mu
        inv = 1 / torch.sqrt((xc**2).sum(0) / n + 1e-5)
        ctx.save_for_backward(xc, inv, gamma)
        return gamma * xc * inv + beta

    @staticmethod
    @once_differentiable
    def backward(ctx, dout):
        xc, inv, gamma = ctx.saved_tensors
        n = dout.shape[0]
        xhat = xc * inv
        dbeta = dout.sum(0)
        dgamma = (dout * xhat).sum(0)
        dx = gamma * inv / n * (n * dout - dbeta - xhat * dgamma)
        return dx, dgamma, dbeta


class Distance(Function):
    @staticmethod
    def forward(ctx, x, y):
        diff = x[:, None, :] - y[None, :, :]
        d = (diff**2).sum(-1)
        ctx.save_for_backward(diff)
        return d

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (diff,) = ctx.saved_tensors
        whole = 2 * g[:, :, None] * diff
        return whole.sum(1), -whole.sum(0)


def _random(*shapes):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator) for shape in shapes]


EXAMPLES = {
    Linear: _random((3, 4), (5, 4), (5,)),
    LayerNorm: _random((3, 4), (4,), (4,)),
    RMSNorm: [*_random((3, 5), (5,)), 1e-6],
    Softmax: _random((3, 5)),
    CrossEntropy: [*_random((4, 6)), torch.tensor([0, 2, 5, 1])],
    MeanSquares: _random((3, 4), (3, 4)),
    SwiGLU: _random((3, 4), (3, 4)),
    Scale: _random((3, 4), (), (4,)),
    Bilinear: _random((3, 4), (4, 5), (3, 5)),
    Attention: _random((3, 4), (5, 4), (5, 6)),
    Normalize: _random((3, 4)),
    SquaredRelu: _random((3, 4)),
    Polynomial: _random((7,)),
    SumAndProduct: _random((3, 4), (3, 4)),
    Whiten: _random((5, 3), (3,), (3,)),
    Distance: _random((3, 4), (5, 4)),
}

OPERATIONS = {
    Linear: """op linear(x[n,k], weight[o,k], bias[o]) -> y
        y[n,o] = sum[k](x[n,k]*weight[o,k]) + bias[o]""",
    LayerNorm: """op layer_norm(x[n,c], weight[c], bias[c]; eps=1e-5) -> y
        mu[n] = mean[c](x[n,c])
        var[n] = mean[c]((x[n,c] - mu[n])**2)
        rstd[n] = rsqrt(var[n] + eps)
        xhat[n,c] = (x[n,c] - mu[n])*rstd[n]
        y[n,c] = xhat[n,c]*weight[c] + bias[c]""",
    RMSNorm: """op rms_norm(x[n,c], weight[c]; eps=1e-6) -> y
        rstd[n] = rsqrt(mean[c](x[n,c]**2) + eps)
        y[n,c] = x[n,c]*rstd[n]*weight[c]""",
    Softmax: """op softmax(x[n,c]) -> s
        s[n,c] = exp(x[n,c])/sum[k](exp(x[n,k]))""",
    CrossEntropy: """op cross_entropy(logits[n,c], target[n]) -> loss
        loss = mean[n](logsumexp[c](logits[n,c]) - logits[n,target[n]])""",
    MeanSquares: """op mean_squares(pred[n,c], target[n,c]) -> loss
        loss = mean[n,c]((pred[n,c] - target[n,c])**2)""",
    SwiGLU: """op swiglu(a[n,c], b[n,c]) -> y
        y[n,c] = a[n,c]*sigmoid(a[n,c])*b[n,c]""",
    Scale: """op scale(x[n,c], alpha, shift[c]) -> y
        y[n,c] = alpha*tanh(x[n,c]) + shift[c]""",
    Bilinear: """op bilinear(x[n,i], m[i,j], y[n,j]) -> z
        z[n] = sum[i,j](x[n,i]*m[i,j]*y[n,j])""",
    Attention: """op attention(q[t,d], k[s,d], v[s,e]) -> o
        p[t,s] = softmax[s](sum[d](q[t,d]*k[s,d])*size(d)**(-1/2))
        o[t,e] = sum[s](p[t,s]*v[s,e])""",
    Normalize: """op normalize(x[n,c]) -> y
        norm[n] = sqrt(sum[c](x[n,c]**2))
        y[n,c] = x[n,c]/norm[n]""",
    SquaredRelu: """op squared_relu(input[n,c]) -> y
        y[n,c] = relu(input[n,c])**2""",
    Polynomial: """op legendre(x[n]) -> y
        y[n] = (5*x[n]**3 - 3*x[n])/2""",
    SumAndProduct: """op sum_and_product(a[n,c], b[n,c]) -> s, p
        s[n,c] = a[n,c] + b[n,c]
        p[n,c] = a[n,c]*b[n,c]""",
    Whiten: """op whiten(x[n,c], gamma[c], beta[c]) -> y
        mu[c] = mean[n](x[n,c])
        var[c] = mean[n]((x[n,c] - mu[c])**2)
        inv[c] = 1/sqrt(var[c] + 1e-5)
        xhat[n,c] = (x[n,c] - mu[c])*inv[c]
        y[n,c] = gamma[c]*xhat[n,c] + beta[c]""",
    Distance: """op distance(x[n,d], y[m,d]) -> z
        z[n,m] = sum[d]((x[n,d] - y[m,d])**2)""",
}
