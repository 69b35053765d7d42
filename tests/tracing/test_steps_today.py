"""Steps of models that carry a state, and losses and updates of training, as they are written."""

import math

import pytest
import torch
import torch.nn.functional as F
from kit.reads import assert_read


def rwkv(r, w, v, k, a, kappa, state):
    """A step of RWKV-7: a decay, a removal and a new value."""
    w, a, kappa = torch.exp(-0.606531 * w.sigmoid()), a.sigmoid(), F.normalize(kappa, dim=-1)
    removed = (state @ -kappa[..., None]) * (kappa * a)[..., None, :]
    state = state * w[..., None, :] + removed + v[..., None] * k[..., None, :]
    return (state @ r[..., None])[..., 0], state


def gated_delta(q, k, v, beta, g, state):
    q, k = F.normalize(q, dim=-1) * q.shape[-1] ** -0.5, F.normalize(k, dim=-1)
    state = state * (-F.softplus(g)).exp()[..., None, None]
    error = (v - (state * k[..., None]).sum(-2)) * beta.sigmoid()[..., None]
    state = state + k[..., None] * error[..., None, :]
    return (state * q[..., None]).sum(-2), state


def memory(k, v, weights, momentum, forget):
    """A gradient step on what a memory should give, as Titans has it."""
    error = k @ weights - v
    momentum = 0.9 * momentum - k.mT @ error * 2 / k.shape[0]
    weights = (1 - forget.sigmoid()) * weights + momentum
    return k @ weights, momentum


def depths(x, w, u, chosen):
    """Only some tokens pass a layer."""
    every = chosen[..., None].expand(-1, -1, x.shape[-1])
    gate = (x @ w).gather(1, chosen).sigmoid()
    return x.scatter_add(1, every, F.silu(x.gather(1, every) @ u) * gate[..., None])


def adapted(x, w, a, b, m):
    """A layer of DoRA: directions with a low-rank change, lengths of their own."""
    v = w + b @ a * (4.0 / a.shape[0])
    return F.linear(x, m[:, None] * v / v.norm(dim=1, keepdim=True).detach())


def sequences(lp, old, advantage, mask):
    """The loss of GSPO: one ratio for each sequence."""
    mask = mask.sigmoid()
    whole = ((lp - old) * mask).sum(-1) / mask.sum(-1)
    ratio = torch.exp((lp - lp.detach() + whole.detach()[:, None]).clamp(max=10.0))
    a = advantage[:, None]
    loss = -torch.min(ratio * a, ratio.clamp(0.8, 1.2) * a)
    return ((loss * mask).sum(-1) / mask.sum(-1)).mean()


def transport(cost):
    """Two rounds of Sinkhorn in logarithms."""
    n, m = cost.shape
    f, g = torch.zeros(n, dtype=cost.dtype), torch.zeros(m, dtype=cost.dtype)
    for _ in range(2):
        f = -0.3 * torch.logsumexp((g[None] - cost) / 0.3 - math.log(m), 1)
        g = -0.3 * torch.logsumexp((f[:, None] - cost) / 0.3 - math.log(n), 0)
    return (((f[:, None] + g[None] - cost) / 0.3).exp() * cost).sum()


def orthogonal(g):
    """Two rounds of Newton and Schulz, as Muon has them."""
    x = g / (g.norm() + 1e-7)
    for _ in range(2):
        a = x @ x.mT
        x = 3.4445 * x + (-4.775 * a + 2.0315 * a @ a) @ x
    return x * (g.shape[0] * g.shape[1]) ** 0.5


STATE = (2, 3, 4)
READ = {
    rwkv: [*(STATE,) * 2, (2, 3, 5), *(STATE,) * 3, (2, 3, 5, 4)],
    gated_delta: [STATE, STATE, (2, 3, 5), (2, 3), (2, 3), (2, 3, 4, 5)],
    memory: [(3, 4), (3, 5), (4, 5), (4, 5), (5,)],
    depths: [(2, 6, 4), (4,), (4, 4), torch.tensor([[0, 3], [2, 5]])],
    adapted: [(3, 6), (5, 6), (2, 6), (5, 2), (5,)],
    sequences: [(6, 5), (6, 5), (6,), (6, 5)],
    transport: [(4, 6)],
    orthogonal: [(4, 6)],
}


@pytest.mark.parametrize("function", READ)
def test_a_step_is_read(function):
    assert_read(function, READ[function])
