"""Scans and recurrences along time."""

import torch
from kit.right.entry import entry
from torch.autograd import Function
from torch.autograd.function import once_differentiable


def _reversed_cumsum(x, dim):
    return x.flip(dim).cumsum(dim).flip(dim)


class CumulativeSum(Function):
    @staticmethod
    def forward(ctx, x, dim):
        ctx.dim = dim
        return x.cumsum(dim)

    @staticmethod
    def backward(ctx, g):
        return _reversed_cumsum(g, ctx.dim), None


class ExclusiveCumulativeSum(Function):
    @staticmethod
    def forward(ctx, x):
        return x.cumsum(-1) - x

    @staticmethod
    def backward(ctx, grad_output):
        return _reversed_cumsum(grad_output, -1) - grad_output


class LogCumulativeSumExp(Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.logcumsumexp(x, -1)
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        shares = (x[..., None, :] - y[..., :, None]).tril().exp().tril()
        return (g[..., None, :] @ shares)[..., 0, :]


class RunningMaximum(Function):
    """Running maxima and their positions, which have no gradient."""

    @staticmethod
    def forward(ctx, x):
        values, places = x.cummax(1)
        ctx.save_for_backward(places)
        ctx.mark_non_differentiable(places)
        return values, places

    @staticmethod
    def backward(ctx, g, _):
        (places,) = ctx.saved_tensors
        return torch.zeros_like(g).scatter_add(1, places, g)


class MovingAverage(Function):
    """An exponential moving average with a learned rate."""

    @staticmethod
    def forward(ctx, x, rate):
        mean, means = torch.zeros_like(x[:, 0]), []
        for t in range(x.shape[1]):
            mean = mean + rate * (x[:, t] - mean)
            means.append(mean)
        means = torch.stack(means, 1)
        ctx.save_for_backward(x, rate, means)
        return means

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        x, rate, means = ctx.saved_tensors
        dx, drate = torch.empty_like(x), torch.zeros_like(rate)
        carried = torch.zeros_like(x[:, 0])
        for t in range(x.shape[1] - 1, -1, -1):
            carried = carried + g[:, t]
            before = means[:, t - 1] if t > 0 else torch.zeros_like(carried)
            dx[:, t] = rate * carried
            drate = drate + (carried * (x[:, t] - before)).sum()
            carried = (1 - rate) * carried
        return dx, drate


class LinearRecurrence(Function):
    """h[t] = a[t]*h[t-1] + b[t], from an initial state."""

    @staticmethod
    def forward(ctx, a, b, h0):
        h, states = h0, []
        for t in range(a.shape[1]):
            h = a[:, t] * h + b[:, t]
            states.append(h)
        states = torch.stack(states, 1)
        ctx.save_for_backward(a, h0, states)
        return states

    @staticmethod
    def backward(ctx, g):
        a, h0, states = ctx.saved_tensors
        carried = torch.zeros_like(h0)
        da, db = [], []
        for t in reversed(range(a.shape[1])):
            carried = carried + g[:, t]
            before = states[:, t - 1] if t else h0
            da.append(carried * before)
            db.append(carried)
            carried = carried * a[:, t]
        return torch.stack(da[::-1], 1), torch.stack(db[::-1], 1), carried


class SelectiveScan(Function):
    """A state-space layer with step sizes and projections per token."""

    @staticmethod
    def forward(ctx, u, delta, A, B, C, D):
        h = u.new_zeros(u.shape[0], *A.shape)
        states, outputs = [], []
        for t in range(u.shape[1]):
            decay = torch.exp(delta[:, t, :, None] * A)
            h = decay * h + (delta[:, t] * u[:, t])[..., None] * B[:, t, None, :]
            states.append(h)
            outputs.append((h * C[:, t, None, :]).sum(-1) + D * u[:, t])
        ctx.save_for_backward(u, delta, A, B, C, D, torch.stack(states, 1))
        return torch.stack(outputs, 1)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        u, delta, A, B, C, D, states = ctx.saved_tensors
        du, ddelta = g * D, torch.zeros_like(delta)
        dA, dB, dC = torch.zeros_like(A), torch.zeros_like(B), torch.zeros_like(C)
        dh = torch.zeros_like(states[:, 0])
        for t in range(u.shape[1] - 1, -1, -1):
            dh = dh + g[:, t, :, None] * C[:, t, None, :]
            dC[:, t] = (g[:, t, :, None] * states[:, t]).sum(1)
            decay = torch.exp(delta[:, t, :, None] * A)
            before = states[:, t - 1] if t > 0 else torch.zeros_like(dh)
            through = dh * before * decay
            dA += (through * delta[:, t, :, None]).sum(0)
            driven = (dh * B[:, t, None, :]).sum(-1)
            ddelta[:, t] = (through * A).sum(-1) + driven * u[:, t]
            du[:, t] += driven * delta[:, t]
            dB[:, t] = (dh * (delta[:, t] * u[:, t])[..., None]).sum(1)
            dh = dh * decay
        return du, ddelta, dA, dB, dC, (g * u).sum((0, 1))


class MinimalGRU(Function):
    """h[t] = (1 - z[t])*h[t-1] + z[t]*c[t]; returns all states and the last one."""

    @staticmethod
    def forward(ctx, gate, candidate, h0):
        z = torch.sigmoid(gate)
        h, states = h0, []
        for t in range(z.shape[1]):
            h = torch.lerp(h, candidate[:, t], z[:, t])
            states.append(h)
        states = torch.stack(states, 1)
        ctx.save_for_backward(z, candidate, h0, states)
        return states, h.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_states, grad_last):
        z, candidate, h0, states = ctx.saved_tensors
        carried = grad_last
        dgate, dcandidate = torch.empty_like(z), torch.empty_like(z)
        for t in range(z.shape[1] - 1, -1, -1):
            carried = carried + grad_states[:, t]
            before = h0 if t == 0 else states[:, t - 1]
            dcandidate[:, t] = carried * z[:, t]
            dgate[:, t] = carried * (candidate[:, t] - before) * z[:, t] * (1 - z[:, t])
            carried = carried * (1 - z[:, t])
        return dgate, dcandidate, carried


class Retention(Function):
    """Linear attention with a constant decay per head."""

    @staticmethod
    def forward(ctx, q, k, v, decay):
        steps = torch.arange(q.shape[2])
        apart = steps[:, None] - steps
        mask = torch.where(apart >= 0, decay[:, None, None] ** apart.clamp(min=0), 0.0)
        mask = mask.to(q.dtype)
        scores = (q @ k.mT) * mask
        ctx.save_for_backward(q, k, v, mask, scores)
        return scores @ v

    @staticmethod
    def backward(ctx, g):
        q, k, v, mask, scores = ctx.saved_tensors
        ds = (g @ v.mT) * mask
        return ds @ k, ds.mT @ q, scores.mT @ g, None


class DiscountedReturns(Function):
    """Discounted sums of rewards that stop at the end of an episode."""

    @staticmethod
    def forward(ctx, rewards, done, gamma):
        ctx.save_for_backward(done)
        ctx.gamma = gamma
        out = torch.empty_like(rewards)
        tail = torch.zeros_like(rewards[:, 0])
        for t in range(rewards.shape[1] - 1, -1, -1):
            tail = rewards[:, t] + gamma * torch.where(done[:, t], 0, tail)
            out[:, t] = tail
        return out

    @staticmethod
    def backward(ctx, g):
        (done,) = ctx.saved_tensors
        grads, flow = [], torch.zeros_like(g[:, 0])
        for t in range(g.shape[1]):
            flow = flow + g[:, t]
            grads.append(flow)
            flow = ctx.gamma * torch.where(done[:, t], 0, flow)
        return torch.stack(grads, 1), None, None


class DeltaRule(Function):
    """Linear attention with the delta rule."""

    @staticmethod
    def forward(ctx, q, k, v, beta):
        S = q.new_zeros(q.shape[0], v.shape[-1], k.shape[-1])
        states, out = [S], []
        for t in range(q.shape[1]):
            error = v[:, t] - (S @ k[:, t, :, None])[..., 0]
            S = S + (beta[:, t, None] * error)[..., None] * k[:, t, None, :]
            states.append(S)
            out.append((S @ q[:, t, :, None])[..., 0])
        ctx.save_for_backward(q, k, v, beta, torch.stack(states, 1))
        return torch.stack(out, 1)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        q, k, v, beta, states = ctx.saved_tensors
        dq, dk, dv, dbeta = map(torch.empty_like, (q, k, v, beta))
        dS = torch.zeros_like(states[:, 0])
        for t in range(q.shape[1] - 1, -1, -1):
            before, after = states[:, t], states[:, t + 1]
            dq[:, t] = (after.mT @ g[:, t, :, None])[..., 0]
            dS = dS + g[:, t, :, None] * q[:, t, None, :]
            error = v[:, t] - (before @ k[:, t, :, None])[..., 0]
            along = (dS @ k[:, t, :, None])[..., 0]
            dbeta[:, t] = (error * along).sum(-1)
            derror = beta[:, t, None] * along
            dv[:, t] = derror
            dk[:, t] = beta[:, t, None] * (dS.mT @ error[..., None])[..., 0]
            dk[:, t] -= (before.mT @ derror[..., None])[..., 0]
            dS = dS - derror[..., None] * k[:, t, None, :]
        return dq, dk, dv, dbeta


class TokenShift(Function):
    """Mixes each token with the previous one; the first with a state."""

    @staticmethod
    def forward(ctx, x, last, mix):
        before = torch.cat([last[:, None], x[:, :-1]], 1)
        ctx.save_for_backward(x, before, mix)
        return x + (before - x) * mix, x[:, -1].clone()

    @staticmethod
    def backward(ctx, g, glast):
        x, before, mix = ctx.saved_tensors
        gm = g * mix
        dx = g - gm
        dx = dx + torch.cat([gm[:, 1:], glast[:, None]], 1)
        return dx, gm[:, 0], (g * (before - x)).sum((0, 1))


def _selective(b, t, d, n):
    return (
        torch.randn(b, t, d),
        torch.rand(b, t, d),
        -torch.rand(d, n) - 0.1,
        torch.randn(b, t, n),
        torch.randn(b, t, n),
        torch.randn(d),
    )


def _heads(b, h, t, d):
    return (*(torch.randn(b, h, t, d) for _ in range(3)), torch.linspace(0.5, 0.9, h))


def _fast_weights(b, t, d, e):
    k = torch.nn.functional.normalize(torch.randn(b, t, d), dim=-1)
    return torch.randn(b, t, d), k, torch.randn(b, t, e), torch.rand(b, t)


ENTRIES = [
    entry(
        CumulativeSum,
        lambda n, t, dim: (torch.randn(n, t), dim),
        *((3, 5, 1), (2, 4, 0), (1, 1, -1)),
    ),
    entry(ExclusiveCumulativeSum, lambda *s: (torch.randn(*s),), (3, 5), (1, 1), (2, 2, 4)),
    entry(LogCumulativeSumExp, lambda *s: (torch.randn(*s),), (3, 5), (2, 1), (2, 2, 4)),
    entry(RunningMaximum, lambda *s: (torch.randn(*s),), (3, 6), (2, 1), (4, 9)),
    entry(
        MovingAverage,
        lambda n, t, d: (torch.randn(n, t, d), torch.tensor(0.3)),
        *((2, 5, 3), (1, 1, 2), (3, 4, 1)),
    ),
    entry(
        LinearRecurrence,
        lambda n, t, d: (torch.rand(n, t, d), torch.randn(n, t, d), torch.randn(n, d)),
        *((2, 6, 3), (1, 1, 2), (3, 4, 1)),
    ),
    entry(SelectiveScan, _selective, (2, 4, 3, 2), (1, 1, 2, 3), (1, 3, 1, 4)),
    entry(
        MinimalGRU,
        lambda n, t, d: (torch.randn(n, t, d), torch.randn(n, t, d), torch.randn(n, d)),
        *((2, 5, 3), (1, 1, 2), (2, 3, 4)),
    ),
    entry(Retention, _heads, *((2, 2, 4, 3), (1, 1, 2, 2), (1, 3, 3, 1)), constants=("decay",)),
    entry(
        DiscountedReturns,
        lambda n, t, gamma: (torch.randn(n, t), torch.rand(n, t) > 0.7, gamma),
        *((3, 6, 0.9), (1, 1, 0.5), (2, 4, 1.0)),
    ),
    entry(DeltaRule, _fast_weights, (2, 4, 3, 2), (1, 1, 2, 3), (1, 3, 4, 1)),
    entry(
        TokenShift,
        lambda n, t, d: (torch.randn(n, t, d), torch.randn(n, d), torch.rand(d)),
        *((2, 4, 3), (1, 1, 2), (3, 2, 4)),
    ),
]
