"""What people train with today, written as it is in public code, at two sizes of its arguments."""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from functions import add, ints, r
from torch import Tensor, nn

TRAINED: dict[str, tuple[Any, Callable[[], tuple[Any, ...]]]] = {}
"""Each function with what makes arguments that are large enough to be timed."""


def case(small: Callable[[], tuple[Any, ...]], large: Callable[[], tuple[Any, ...]]) -> Any:
    def put(f: Any) -> Any:
        add(f"trained.{f.__name__}", f, *small())
        TRAINED[f.__name__] = f, large
        return f

    return put


def p(*shape: int) -> Tensor:
    return r(*shape).abs() + 0.1


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


def _repeat_kv(x: Tensor, times: int) -> Tensor:
    b, h, t, d = x.shape
    return x[:, :, None].expand(b, h, times, t, d).reshape(b, h * times, t, d)


@case(
    lambda: (r(2, 6, 5, 4), r(2, 3, 5, 4), r(2, 3, 5, 4)),
    lambda: (r(2, 8, 256, 64), r(2, 4, 256, 64), r(2, 4, 256, 64)),
)
def grouped_query_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    times = q.shape[1] // k.shape[1]
    k, v = _repeat_kv(k, times), _repeat_kv(v, times)
    scores = q @ k.transpose(2, 3) / math.sqrt(q.shape[-1])
    mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril()
    return scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v


@case(
    lambda: (r(2, 3, 5, 4), r(2, 3, 5, 4), r(4), r(4)),
    lambda: (r(2, 8, 256, 64), r(2, 8, 256, 64), r(64), r(64)),
)
def qk_norm_scores(q: Tensor, k: Tensor, gq: Tensor, gk: Tensor) -> Tensor:
    def normed(x: Tensor, g: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * g

    return normed(q, gq) @ normed(k, gk).transpose(-1, -2)


@case(lambda: (r(2, 3, 5, 7),), lambda: (r(2, 8, 256, 256),))
def soft_capped_softmax(scores: Tensor, cap: float = 50.0) -> Tensor:
    return torch.softmax(cap * torch.tanh(scores / cap), -1)


@case(lambda: (r(2, 3, 5, 6), r(5, 4), r(5, 4)), lambda: (r(2, 8, 512, 64), r(512, 32), r(512, 32)))
def partial_rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    n = cos.shape[-1]
    return torch.cat([_rotated(x[..., :n], cos, sin), x[..., n:]], -1)


@case(
    lambda: (r(2, 5, 8), r(6, 8), r(3, 7), r(4)),
    lambda: (r(2, 256, 256), r(96, 256), r(64, 96), r(64)),
)
def low_rank_keys(x: Tensor, down: Tensor, up: Tensor, gain: Tensor) -> Tensor:
    """Keys and values of one compressed vector, as in multi-head latent attention."""
    c = x @ down.T
    kv, rope = c[..., : up.shape[1] - 3], c[..., up.shape[1] - 3 :]
    kv = kv * torch.rsqrt(kv.pow(2).mean(-1, keepdim=True) + 1e-6)
    return kv @ up[:, : kv.shape[-1]].T * rope.mean(-1, keepdim=True) + gain[: up.shape[0]]


@case(
    lambda: (r(2, 3, 5, 4), r(2, 3, 5, 4), r(2, 3, 5, 4), r(2, 3, 5, 4), r(2, 3, 5, 4), r(3)),
    lambda: (*(r(2, 4, 256, 32) for _ in range(4)), r(2, 4, 256, 64), r(4)),
)
def differential_attention(
    q1: Tensor, k1: Tensor, q2: Tensor, k2: Tensor, v: Tensor, lam: Tensor
) -> Tensor:
    scale = q1.shape[-1] ** -0.5
    a = F.softmax(q1 @ k1.transpose(-1, -2) * scale, -1)
    b = F.softmax(q2 @ k2.transpose(-1, -2) * scale, -1)
    out = (a - lam.exp()[:, None, None] * b) @ v
    return out * torch.rsqrt(out.pow(2).mean(-1, keepdim=True) + 1e-5)


@case(
    lambda: (r(2, 3, 5, 4), r(2, 3, 5, 4), r(2, 3, 5, 6)),
    lambda: (r(2, 4, 256, 32), r(2, 4, 256, 32), r(2, 4, 256, 32)),
)
def linear_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k = F.elu(q) + 1, F.elu(k) + 1
    mask = torch.ones(q.shape[2], q.shape[2], dtype=q.dtype).tril()
    out = (q @ k.transpose(-1, -2) * mask) @ v
    return out / ((q * k.cumsum(2)).sum(-1, keepdim=True) + 1e-6)


@case(
    lambda: (r(2, 5, 4), r(2, 5, 4), r(2, 5, 6), p(5)),
    lambda: (r(2, 256, 32), r(2, 256, 32), r(2, 256, 64), p(256)),
)
def retention(q: Tensor, k: Tensor, v: Tensor, decay: Tensor) -> Tensor:
    n = torch.arange(q.shape[1], dtype=q.dtype)
    mask = torch.where(n[:, None] >= n, 0.9 ** (n[:, None] - n).clamp(min=0), 0.0)
    return (q @ k.mT * mask * decay) @ v


@case(
    lambda: (r(2, 5, 3, 4), r(2, 7, 3, 4), r(2, 7, 3, 4), r(3)),
    lambda: (r(2, 256, 4, 32), r(2, 256, 4, 32), r(2, 256, 4, 32), r(4)),
)
def attention_with_sinks(q: Tensor, k: Tensor, v: Tensor, sinks: Tensor) -> Tensor:
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * 0.125
    sink = sinks.view(1, -1, 1, 1).expand(scores.shape[0], -1, scores.shape[2], 1)
    weights = torch.cat([scores, sink], -1).softmax(-1)[..., :-1]
    return torch.einsum("bhqk,bkhd->bqhd", weights, v)


@case(
    lambda: (r(2, 3, 5, 7), r(3, 11), torch.arange(5)[:, None] - torch.arange(7) + 6),
    lambda: (r(2, 8, 128, 128), r(8, 255), torch.arange(128)[:, None] - torch.arange(128) + 127),
)
def biased_scores(scores: Tensor, table: Tensor, distance: Tensor) -> Tensor:
    return (scores + table[:, distance]).softmax(-1)


@case(lambda: (r(2, 6, 5), r(5, 5), r(5, 5), r(5, 5)), lambda: (r(2, 256, 128), *[r(128, 128)] * 3))
def packed_heads(x: Tensor, wq: Tensor, wk: Tensor, wv: Tensor) -> Tensor:
    w = torch.cat([wq, wk, wv])
    q, k, v = (x @ w.T).split(wq.shape[0], -1)
    return F.softmax(q @ k.transpose(1, 2) / math.sqrt(q.shape[-1]), -1) @ v


@case(
    lambda: (r(2, 5, 4), r(6, 4), r(6, 4), r(4, 6)),
    lambda: (r(4, 256, 128), *[r(344, 128)] * 2, r(128, 344)),
)
def swiglu(x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    return (F.silu(x @ gate.T) * (x @ up.T)) @ down.T


@case(lambda: (r(2, 5, 4), r(12, 4), r(4, 6)), lambda: (r(4, 256, 128), r(688, 128), r(128, 344)))
def packed_geglu(x: Tensor, both: Tensor, down: Tensor) -> Tensor:
    gate, up = (x @ both.T).chunk(2, -1)
    return (F.gelu(gate, approximate="tanh") * up) @ down.T


@case(
    lambda: (r(5, 4), r(6, 4), r(2, 4), r(6, 2)),
    lambda: (r(1024, 256), r(256, 256), r(8, 256), r(256, 8)),
)
def lora(x: Tensor, w: Tensor, a: Tensor, b: Tensor, alpha: float = 16.0) -> Tensor:
    return x @ w.T + (x @ a.T) @ b.T * (alpha / a.shape[0])


@case(
    lambda: (r(5, 4), r(6, 4), r(2, 4), r(6, 2), p(6)),
    lambda: (r(1024, 256), r(256, 256), r(8, 256), r(256, 8), p(256)),
)
def dora(x: Tensor, w: Tensor, a: Tensor, b: Tensor, m: Tensor) -> Tensor:
    v = w + b @ a
    return x @ (m[:, None] * v / v.norm(dim=1, keepdim=True)).T


@case(lambda: (r(2, 5, 4), r(4)), lambda: (r(8, 256, 512), r(512)))
def gemma_rms_norm(x: Tensor, w: Tensor) -> Tensor:
    y = x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)
    return (y * (1.0 + w.float())).type_as(x)


@case(lambda: (r(2, 5, 4), r(4), r(4), r(1)), lambda: (r(8, 256, 512), r(512), r(512), r(1)))
def dynamic_tanh(x: Tensor, gain: Tensor, bias: Tensor, alpha: Tensor) -> Tensor:
    return torch.tanh(alpha * x) * gain + bias


@case(
    lambda: (r(3, 4), r(3, 4), r(3, 4), r(3, 4), p(4)),
    lambda: (*(r(256, 512) for _ in range(4)), p(512)),
)
def adaptive_norm(x: Tensor, shift: Tensor, scale: Tensor, gate: Tensor, w: Tensor) -> Tensor:
    y = F.layer_norm(x, x.shape[-1:]) * w
    return x + gate * (y * (1 + scale) + shift)


@case(
    lambda: (r(2, 5, 4), r(6, 4), ints(6, 2, 5), p(2, 5)),
    lambda: (r(4, 256, 64), r(8, 64), ints(8, 4, 256), p(4, 256)),
)
def routed(x: Tensor, w: Tensor, expert: Tensor, weight: Tensor) -> Tensor:
    p_ = (x @ w.T).softmax(-1)
    chosen = p_.gather(-1, expert.unsqueeze(-1)).squeeze(-1)
    return (chosen * weight).unsqueeze(-1) * x


@case(lambda: (r(7, 5), ints(5, 7)), lambda: (r(4096, 16), ints(16, 4096)))
def balance_loss(logits: Tensor, expert: Tensor) -> Tensor:
    p_ = logits.softmax(-1)
    share = F.one_hot(expert, logits.shape[-1]).float().mean(0)
    return logits.shape[-1] * (share * p_.mean(0)).sum()


@case(lambda: (r(7, 5),), lambda: (r(4096, 64),))
def router_z_loss(logits: Tensor) -> Tensor:
    return torch.logsumexp(logits, -1).pow(2).mean()


@case(
    lambda: (r(2, 3, 4), r(3, 2), r(2, 2), r(2, 2), r(3), p(2, 3)),
    lambda: (r(16, 64, 16), r(64, 16), r(16, 16), r(16, 16), r(64), p(16, 64)),
)
def mamba_step(h: Tensor, a_log: Tensor, b: Tensor, c: Tensor, d: Tensor, delta: Tensor) -> Tensor:
    a = -a_log.exp()
    n = a.shape[-1]
    state = h[..., :n] * torch.exp(delta[..., None] * a) + (delta[..., None] * b[:, None, :])
    return (state * c[:, None, :]).sum(-1) + d * delta


@case(lambda: (r(2, 3, 5, 4), r(6, 4)), lambda: (r(4, 16, 32, 32), r(64, 32)))
def squeeze_excite(x: Tensor, w: Tensor) -> Tensor:
    s = x.mean((2, 3))
    h = F.relu(s @ w[: s.shape[1], : s.shape[1]].T) if s.shape[1] <= w.shape[1] else s
    return x * torch.sigmoid(h)[:, :, None, None]


@case(lambda: (r(3, 4), r(6, 4)), lambda: (r(1024, 32), r(512, 32)))
def vector_quantised(z: Tensor, codes: Tensor, beta: float = 0.25) -> Tensor:
    d = z.pow(2).sum(1, keepdim=True) - 2 * z @ codes.T + codes.pow(2).sum(1)
    q = codes[d.argmin(1)]
    loss = (q - z.detach()).pow(2).mean() + beta * (q.detach() - z).pow(2).mean()
    return loss + (z + (q - z).detach()).sum() * 0.1


@case(lambda: (r(3, 5), p(1)), lambda: (r(512, 512), p(1)))
def lsq_quantised(x: Tensor, step: Tensor, low: int = -8, high: int = 7) -> Tensor:
    scale = 1.0 / math.sqrt(x.numel() * high)
    s = (step - step * scale).detach() + step * scale
    y = (x / s).clamp(low, high)
    return ((y.round() - y).detach() + y) * s


@case(lambda: (r(3, 5),), lambda: (r(512, 512),))
def ternary_weights(w: Tensor) -> Tensor:
    scale = w.abs().mean().clamp(min=1e-5)
    q = (w / scale).round().clamp(-1, 1) * scale
    return w + (q - w).detach()


@case(lambda: (r(3, 5), p(3, 5)), lambda: (r(512, 512), p(512, 512)))
def gumbel_softmax(logits: Tensor, noise: Tensor, tau: float = 0.7) -> Tensor:
    y = F.softmax((logits - torch.log(-torch.log(noise.clamp(1e-6, 1 - 1e-6)))) / tau, -1)
    return y * y.max(-1, keepdim=True)[0]


@case(lambda: (r(3, 4), r(3, 4), r(3, 4)), lambda: (r(512, 256), r(512, 256), r(512, 256)))
def reparametrised(mu: Tensor, logvar: Tensor, eps: Tensor) -> Tensor:
    z = mu + torch.exp(0.5 * logvar) * eps
    kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(1)
    return z.pow(2).sum(1) + kl


@case(lambda: (r(2, 5, 7), ints(7, 2, 5)), lambda: (r(4, 128, 512), ints(512, 4, 128)))
def token_log_probabilities(logits: Tensor, tokens: Tensor) -> Tensor:
    return torch.gather(logits.log_softmax(-1), 2, tokens.unsqueeze(2)).squeeze(2)


@case(lambda: (r(4), r(4), r(4), r(4)), lambda: tuple(r(4096) for _ in range(4)))
def dpo(
    chosen: Tensor, rejected: Tensor, ref_c: Tensor, ref_r: Tensor, beta: float = 0.1
) -> Tensor:
    return -F.logsigmoid(beta * ((chosen - rejected) - (ref_c - ref_r))).mean()


@case(lambda: (r(4), r(4), r(4), r(4)), lambda: tuple(r(4096) for _ in range(4)))
def smoothed_dpo(chosen: Tensor, rejected: Tensor, ref_c: Tensor, ref_r: Tensor) -> Tensor:
    logits = (chosen - rejected) - (ref_c - ref_r)
    return (-F.logsigmoid(0.1 * logits) * 0.9 - F.logsigmoid(-0.1 * logits) * 0.1).mean()


@case(lambda: (r(4), r(4), r(4), r(4)), lambda: tuple(r(4096) for _ in range(4)))
def ipo(chosen: Tensor, rejected: Tensor, ref_c: Tensor, ref_r: Tensor, tau: float = 0.1) -> Tensor:
    return ((chosen - rejected - (ref_c - ref_r)) - 1 / (2 * tau)).pow(2).mean()


@case(lambda: (r(4), r(4), r(5), r(5)), lambda: tuple(r(4096) for _ in range(4)))
def kto(
    chosen: Tensor, ref_c: Tensor, rejected: Tensor, ref_r: Tensor, beta: float = 0.1
) -> Tensor:
    good, bad = chosen - ref_c, rejected - ref_r
    kl = good.mean().clamp(min=0).detach()
    losses = torch.cat(
        [1 - torch.sigmoid(beta * (good - kl)), 1 - torch.sigmoid(beta * (kl - bad))]
    )
    return losses.mean()


@case(lambda: (r(4), r(4), p(4), p(4)), lambda: (r(4096), r(4096), p(4096), p(4096)))
def orpo(chosen: Tensor, rejected: Tensor, nc: Tensor, nr: Tensor) -> Tensor:
    c, j = -F.softplus(-chosen) - nc, -F.softplus(-rejected) - nr
    ratio = (c - j) - (torch.log1p(-torch.exp(c)) - torch.log1p(-torch.exp(j)))
    return -F.logsigmoid(ratio).mean() - c.mean()


@case(lambda: (r(4), r(4)), lambda: (r(4096), r(4096)))
def simpo(chosen: Tensor, rejected: Tensor, beta: float = 2.0, gamma: float = 1.0) -> Tensor:
    return -F.logsigmoid(beta * (chosen - rejected) - gamma).mean()


@case(
    lambda: (r(3, 5), r(3, 5), r(3, 5), r(3), ints(2, 3, 5).float()),
    lambda: (r(32, 512), r(32, 512), r(32, 512), r(32), ints(2, 32, 512).float()),
)
def grpo(new: Tensor, old: Tensor, ref: Tensor, reward: Tensor, mask: Tensor) -> Tensor:
    advantage = ((reward - reward.mean()) / (reward.std() + 1e-4)).unsqueeze(1)
    ratio = torch.exp(new - old.detach())
    gain = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
    kl = torch.exp(ref - new) - (ref - new) - 1
    per_token = -(gain - 0.04 * kl)
    return ((per_token * mask).sum(1) / mask.sum(1).clamp(min=1)).mean()


@case(
    lambda: (r(3, 5), r(3, 5), r(3, 5), r(3, 5), r(3, 5)),
    lambda: tuple(r(32, 512) for _ in range(5)),
)
def ppo(new: Tensor, old: Tensor, advantage: Tensor, value: Tensor, returns: Tensor) -> Tensor:
    ratio = (new - old).exp()
    policy = torch.max(-advantage * ratio, -advantage * ratio.clamp(0.8, 1.2)).mean()
    return policy + 0.5 * F.mse_loss(value, returns)


@case(lambda: (r(2, 5, 7), r(2, 5, 7)), lambda: (r(4, 128, 512), r(4, 128, 512)))
def distilled(student: Tensor, teacher: Tensor, t: float = 2.0) -> Tensor:
    s, q = F.log_softmax(student / t, -1), F.softmax(teacher / t, -1)
    return F.kl_div(s, q, reduction="batchmean") * t * t


@case(lambda: (r(2, 5, 7), r(2, 5, 7)), lambda: (r(4, 128, 512), r(4, 128, 512)))
def jensen_shannon(student: Tensor, teacher: Tensor, beta: float = 0.5) -> Tensor:
    s, q = F.log_softmax(student, -1), F.log_softmax(teacher, -1)
    both = torch.logsumexp(torch.stack([s + math.log(1 - beta), q + math.log(beta)]), 0)
    a = F.kl_div(both, q, reduction="none", log_target=True)
    b = F.kl_div(both, s, reduction="none", log_target=True)
    return (beta * a + (1 - beta) * b).sum(-1).mean()


@case(lambda: (r(6, 7), ints(7, 6)), lambda: (r(1024, 512), ints(512, 1024)))
def with_z_loss(logits: Tensor, target: Tensor) -> Tensor:
    lse = torch.logsumexp(logits, -1)
    return (lse - logits.gather(1, target[:, None]).squeeze(1)).mean() + 1e-4 * lse.pow(2).mean()


@case(lambda: (r(6, 7), ints(7, 6)), lambda: (r(1024, 512), ints(512, 1024)))
def focal(logits: Tensor, target: Tensor, gamma: float = 2.0) -> Tensor:
    ce = F.cross_entropy(logits, target, reduction="none")
    return ((1 - torch.exp(-ce)) ** gamma * ce).mean()


@case(lambda: (r(4, 3), r(4, 3)), lambda: (r(256, 128), r(256, 128)))
def clip_loss(a: Tensor, b: Tensor, scale: float = 14.3) -> Tensor:
    a, b = F.normalize(a, dim=-1), F.normalize(b, dim=-1)
    logits = scale * a @ b.T
    target = torch.arange(a.shape[0])
    return (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)) / 2


@case(lambda: (r(4, 3), r(4, 3), r(1), r(1)), lambda: (r(256, 128), r(256, 128), r(1), r(1)))
def siglip_loss(a: Tensor, b: Tensor, t: Tensor, bias: Tensor) -> Tensor:
    logits = F.normalize(a, dim=-1) @ F.normalize(b, dim=-1).T * t.exp() + bias
    labels = 2 * torch.eye(a.shape[0]) - 1
    return -F.logsigmoid(labels * logits).sum() / a.shape[0]


@case(lambda: (r(5, 3), r(5, 3)), lambda: (r(512, 256), r(512, 256)))
def barlow_twins(a: Tensor, b: Tensor) -> Tensor:
    a, b = (a - a.mean(0)) / a.std(0), (b - b.mean(0)) / b.std(0)
    c = a.T @ b / a.shape[0]
    on = (torch.diagonal(c) - 1).pow(2).sum()
    return on + 0.005 * (c.pow(2).sum() - torch.diagonal(c).pow(2).sum())


@case(lambda: (r(5, 3), r(5, 3)), lambda: (r(512, 128), r(512, 128)))
def vicreg(a: Tensor, b: Tensor) -> Tensor:
    def terms(x: Tensor) -> Tensor:
        x = x - x.mean(0)
        std = torch.sqrt(x.var(0) + 1e-4)
        cov = x.T @ x / (x.shape[0] - 1)
        off = cov.pow(2).sum() - cov.diagonal().pow(2).sum()
        return F.relu(1 - std).mean() + off / x.shape[1]

    return F.mse_loss(a, b) + terms(a) + terms(b)


@case(lambda: (r(4, 3), r(4, 3)), lambda: (r(256, 128), r(256, 128)))
def nt_xent(a: Tensor, b: Tensor) -> Tensor:
    z = F.normalize(torch.cat([a, b]), dim=1)
    s = (z @ z.T / 0.5).masked_fill(torch.eye(z.shape[0], dtype=torch.bool), float("-inf"))
    n = a.shape[0]
    return F.cross_entropy(s, torch.cat([torch.arange(n) + n, torch.arange(n)]))


@case(lambda: (r(6, 3), ints(3, 6)), lambda: (r(256, 64), ints(10, 256)))
def supervised_contrastive(x: Tensor, label: Tensor) -> Tensor:
    s = F.normalize(x, dim=1) @ F.normalize(x, dim=1).T / 0.1
    other = ~torch.eye(x.shape[0], dtype=torch.bool)
    same = (label[:, None] == label) & other
    logp = s - torch.logsumexp(s.masked_fill(~other, float("-inf")), 1, keepdim=True)
    return -((logp * same).sum(1) / same.sum(1).clamp(min=1)).mean()


@case(lambda: (r(4, 3), r(5, 3), ints(5, 4)), lambda: (r(256, 128), r(100, 128), ints(100, 256)))
def arc_face(x: Tensor, w: Tensor, label: Tensor, s: float = 30.0, m: float = 0.5) -> Tensor:
    cos = F.linear(F.normalize(x), F.normalize(w))
    sin = torch.sqrt((1.0 - cos.pow(2)).clamp(1e-9, 1))
    phi = cos * math.cos(m) - sin * math.sin(m)
    hot = F.one_hot(label, w.shape[0])
    return F.cross_entropy(s * (hot * phi + (1 - hot) * cos), label)


@case(lambda: (r(4, 3), r(4, 3), r(4, 3)), lambda: (r(512, 128), r(512, 128), r(512, 128)))
def multiple_negatives(a: Tensor, b: Tensor, hard: Tensor) -> Tensor:
    scores = 20 * F.normalize(a, dim=1) @ F.normalize(torch.cat([b, hard]), dim=1).T
    return F.cross_entropy(scores, torch.arange(a.shape[0]))


@case(lambda: (p(2, 3, 11, 9), p(2, 3, 11, 9)), lambda: (p(2, 3, 64, 64), p(2, 3, 64, 64)))
def ssim(x: Tensor, y: Tensor) -> Tensor:
    at = torch.arange(5, dtype=x.dtype) - 2
    g = torch.exp(-at.pow(2) / 2.0)
    g = g / g.sum()
    w = (g[:, None] * g).expand(x.shape[1], 1, 5, 5)

    def blurred(z: Tensor) -> Tensor:
        return F.conv2d(z, w, groups=x.shape[1])

    mx, my = blurred(x), blurred(y)
    vx, vy = blurred(x * x) - mx * mx, blurred(y * y) - my * my
    cov = blurred(x * y) - mx * my
    top = (2 * mx * my + 1e-4) * (2 * cov + 9e-4)
    return (top / ((mx * mx + my * my + 1e-4) * (vx + vy + 9e-4))).mean()


@case(lambda: (p(2, 3, 5, 6), p(2, 3, 5, 6)), lambda: (p(4, 8, 64, 64), p(4, 8, 64, 64)))
def soft_dice(logits: Tensor, target: Tensor) -> Tensor:
    q = torch.sigmoid(logits)
    inter = (q * target).sum((0, 2, 3))
    return 1 - ((2 * inter + 1) / (q.sum((0, 2, 3)) + target.sum((0, 2, 3)) + 1)).mean()


@case(lambda: (p(2, 3, 5), p(2, 3, 5)), lambda: (p(4, 8, 4096), p(4, 8, 4096)))
def tversky(logits: Tensor, target: Tensor, alpha: float = 0.3, beta: float = 0.7) -> Tensor:
    q = torch.softmax(logits, 1)
    tp = (q * target).sum((0, 2))
    fp, fn = (q * (1 - target)).sum((0, 2)), ((1 - q) * target).sum((0, 2))
    return (1 - (tp + 1e-6) / (tp + alpha * fp + beta * fn + 1e-6)).pow(0.75).sum()


def _boxes(n: int) -> Tensor:
    at = p(n, 2)
    return torch.cat([at, at + p(n + 1, 2)[:n] + 0.3], 1)


@case(lambda: (_boxes(5), _boxes(5) + 0.1), lambda: (_boxes(4096), _boxes(4096) + 0.1))
def ciou(a: Tensor, b: Tensor) -> Tensor:
    ax1, ay1, ax2, ay2 = a.unbind(-1)
    bx1, by1, bx2, by2 = b.unbind(-1)
    w = (torch.min(ax2, bx2) - torch.max(ax1, bx1)).clamp(min=0)
    h = (torch.min(ay2, by2) - torch.max(ay1, by1)).clamp(min=0)
    inter = w * h
    union = (ax2 - ax1) * (ay2 - ay1) + (bx2 - bx1) * (by2 - by1) - inter
    iou = inter / (union + 1e-7)
    cw = torch.max(ax2, bx2) - torch.min(ax1, bx1)
    ch = torch.max(ay2, by2) - torch.min(ay1, by1)
    d = ((ax1 + ax2 - bx1 - bx2) ** 2 + (ay1 + ay2 - by1 - by2) ** 2) / 4
    v = (
        4
        / math.pi**2
        * (torch.atan((bx2 - bx1) / (by2 - by1)) - torch.atan((ax2 - ax1) / (ay2 - ay1))) ** 2
    )
    with torch.no_grad():
        alpha = v / (1 - iou + v + 1e-7)
    return (1 - iou + d / (cw**2 + ch**2 + 1e-7) + alpha * v).mean()


@case(lambda: (_boxes(4), _boxes(5)), lambda: (_boxes(256), _boxes(256)))
def pairwise_iou(a: Tensor, b: Tensor) -> Tensor:
    area = (a[:, 2] - a[:, 0]) * (a[:, 3] - a[:, 1]), (b[:, 2] - b[:, 0]) * (b[:, 3] - b[:, 1])
    lt = torch.max(a[:, None, :2], b[:, :2])
    rb = torch.min(a[:, None, 2:], b[:, 2:])
    wh = (rb - lt).clamp(min=0)
    inter = wh[:, :, 0] * wh[:, :, 1]
    return inter / (area[0][:, None] + area[1] - inter)


@case(lambda: (r(2, 5, 6), r(2, 5, 6)), lambda: (r(4, 128, 128), r(4, 128, 128)))
def edge_aware_smoothness(depth: Tensor, image: Tensor) -> Tensor:
    d = depth / (depth.abs().mean((1, 2), keepdim=True) + 1e-7)
    dx, dy = (d[:, :, :-1] - d[:, :, 1:]).abs(), (d[:, :-1] - d[:, 1:]).abs()
    ix, iy = (image[:, :, :-1] - image[:, :, 1:]).abs(), (image[:, :-1] - image[:, 1:]).abs()
    return (dx * torch.exp(-ix)).mean() + (dy * torch.exp(-iy)).mean()


@case(lambda: (r(2, 3, 5, 6),), lambda: (r(4, 3, 64, 64),))
def total_variation(x: Tensor) -> Tensor:
    return (x[..., 1:, :] - x[..., :-1, :]).pow(2).sum() + (x[..., 1:] - x[..., :-1]).abs().sum()


@case(lambda: (r(2, 3, 8),), lambda: (r(4, 64, 1024),))
def patches(x: Tensor) -> Tensor:
    y = x.unfold(2, 4, 2)
    return (y - y.mean(-1, keepdim=True)).pow(2).mean(-1).sqrt()


@case(
    lambda: (r(5, 3), r(5, 3), ints(5, 8), ints(5, 8), r(3)),
    lambda: (r(512, 32), r(512, 32), ints(512, 4096), ints(512, 4096), r(32)),
)
def gatv2(left: Tensor, right: Tensor, source: Tensor, target: Tensor, a: Tensor) -> Tensor:
    score = F.leaky_relu(left[source] + right[target], 0.2) @ a
    e = torch.exp(score - score.max())
    total = torch.zeros_like(left[:, 0]).index_add(0, target, e)
    alpha = e / (total[target] + 1e-16)
    return torch.zeros_like(left).index_add(0, target, alpha[:, None] * left[source])


@case(
    lambda: (r(5, 3), r(5, 4), ints(5, 8), ints(5, 8), r(2, 9)),
    lambda: (r(512, 3), r(512, 32), ints(512, 4096), ints(512, 4096), r(16, 65)),
)
def egnn(x: Tensor, h: Tensor, source: Tensor, target: Tensor, w: Tensor) -> Tensor:
    gap = x[source] - x[target]
    d = gap.pow(2).sum(-1, keepdim=True)
    m = F.silu(torch.cat([h[source], h[target], d], -1) @ w.T).mean(-1, keepdim=True)
    return x + torch.zeros_like(x).index_add(0, target, gap * m)


@case(lambda: (r(8, 3), ints(5, 8)), lambda: (r(4096, 32), ints(512, 4096)))
def principal_aggregation(x: Tensor, index: Tensor, count: int = 512) -> Tensor:
    none = torch.zeros(count, x.shape[1], dtype=x.dtype)
    n = none[:, 0].index_add(0, index, torch.ones_like(x[:, 0])).clamp(min=1)[:, None]
    mean = none.index_add(0, index, x) / n
    square = none.index_add(0, index, x * x) / n
    std = torch.sqrt(F.relu(square - mean * mean) + 1e-5)
    return torch.cat([mean, std, std * torch.log(n + 1)], 1)


@case(lambda: (r(2, 5, 3), r(2, 6, 3)), lambda: (r(2, 256, 3), r(2, 256, 3)))
def chamfer(a: Tensor, b: Tensor) -> Tensor:
    d = (a[:, :, None] - b[:, None]).pow(2).sum(-1)
    return d.min(2)[0].mean() + d.min(1)[0].mean()


@case(lambda: (r(2, 3, 5, 4), r(2, 2, 5, 4)), lambda: (r(4, 16, 64, 64), r(4, 2, 64, 64)))
def warp_by_flow(x: Tensor, flow: Tensor) -> Tensor:
    h, w = x.shape[2:]
    rows, columns = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
    at = torch.stack([columns, rows]).to(x.dtype) + flow
    across, down = 2 * at[:, 0] / (w - 1) - 1, 2 * at[:, 1] / (h - 1) - 1
    grid = torch.stack([across, down], -1)
    return F.grid_sample(x, grid, padding_mode="border", align_corners=True)


@case(
    lambda: (r(2, 3, 4, 5, 6), p(2, 7, 3, 2, 2), r(2, 7, 3, 2)),
    lambda: (r(2, 8, 32, 20, 20), p(2, 100, 8, 4, 2), r(2, 100, 8, 4)),
)
def deformable_attention(value: Tensor, at: Tensor, weight: Tensor) -> Tensor:
    n, heads, width = value.shape[:3]
    grid = (2 * at - 1).transpose(1, 2).flatten(0, 1)
    samples = F.grid_sample(value.flatten(0, 1), grid, align_corners=False)
    scores = weight.softmax(-1).transpose(1, 2).flatten(0, 1)[:, None]
    return (samples * scores).sum(-1).view(n, heads * width, -1).transpose(1, 2)


@case(lambda: (r(5, 4),), lambda: (r(2048, 4),))
def quaternion_to_rotation(q: Tensor) -> Tensor:
    w, x, y, z = F.normalize(q, dim=-1).unbind(-1)
    rows = [
        1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y),
        2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x),
        2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y),
    ]  # fmt: skip
    return torch.stack(rows, -1).view(-1, 3, 3)


@case(lambda: (r(6), p(6), ints(2, 6).float()), lambda: (r(512), p(512), ints(2, 512).float()))
def cox_partial_likelihood(risk: Tensor, time: Tensor, event: Tensor) -> Tensor:
    at_risk = time[None] >= time[:, None]
    lse = torch.logsumexp(risk.masked_fill(~at_risk, float("-inf")), 1)
    return -((risk - lse) * event).sum() / event.sum().clamp(min=1)


@case(lambda: (r(3, 5), r(3, 1)), lambda: (r(512, 9), r(512, 1)))
def quantile_loss(pred: Tensor, y: Tensor) -> Tensor:
    q = (torch.arange(pred.shape[1]) + 0.5) / pred.shape[1]
    e = y - pred
    return torch.max(q * e, (q - 1) * e).mean()


@case(lambda: (r(3, 4), r(3, 4), p(3, 4), r(3)), lambda: (*[r(512, 8)] * 2, p(512, 8), r(512)))
def mixture_density(logits: Tensor, mu: Tensor, sigma: Tensor, y: Tensor) -> Tensor:
    z = (y[:, None] - mu) / sigma
    logp = -0.5 * z.pow(2) - sigma.log() - 0.5 * math.log(2 * math.pi)
    return -torch.logsumexp(F.log_softmax(logits, 1) + logp, 1).mean()


@case(lambda: (r(3, 5),), lambda: (r(64, 64),))
def newton_schulz(g: Tensor, steps: int = 2) -> Tensor:
    x = g / (g.norm() + 1e-7)
    for _ in range(steps):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x


@case(lambda: (r(2, 4), r(2, 4), r(2, 4)), lambda: (r(512, 256), r(512, 256), p(512, 256)))
def flow_matching(x0: Tensor, x1: Tensor, v: Tensor, t: float = 0.3) -> Tensor:
    xt = (1 - t) * x0 + t * x1
    return (v * torch.tanh(xt) - (x1 - x0)).pow(2).mean()


@case(lambda: (r(4, 5), r(4, 5), p(4)), lambda: (r(256, 512), r(256, 512), p(256)))
def min_snr_loss(pred: Tensor, target: Tensor, snr: Tensor, gamma: float = 5.0) -> Tensor:
    weight = torch.minimum(snr, torch.full_like(snr, gamma)) / snr
    return (F.mse_loss(pred, target, reduction="none").mean(1) * weight).mean()


class Mixer(nn.Module):
    """One block of an MLP mixer."""

    def __init__(self, tokens: int = 5, width: int = 4) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.tokens = nn.Linear(tokens, tokens)
        self.channels = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + F.gelu(self.tokens(self.norm(x).mT)).mT
        return x + F.gelu(self.channels(self.norm(x)))


add("trained.mixer", Mixer(), r(2, 5, 4))
TRAINED["mixer"] = Mixer(64, 128), lambda: (r(8, 64, 128),)
