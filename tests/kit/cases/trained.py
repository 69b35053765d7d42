"""What people train with and torch lacks, beside a composition of torch's operations."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from kit.cases.case import Case, distinct, uniform
from kit.cases.pointwise_losses import REDUCTIONS, reduced
from torch import Tensor
from torch.distributions import NegativeBinomial, Normal
from torch.nn import functional as F

attend = F.scaled_dot_product_attention


def mask_of(*lengths: int, size: int) -> Tensor:
    """The first of each row."""
    return torch.arange(size) < torch.tensor(lengths)[:, None]


def dpo(p: Tensor, q: Tensor, r: Tensor, s: Tensor, beta: float, label_smoothing: float,
        reduction: str) -> Tensor:  # fmt: skip
    right = torch.full_like(p, 1 - label_smoothing)
    logits = beta * ((p - q) - (r - s))
    return F.binary_cross_entropy_with_logits(logits, right, reduction=reduction)


def kto(policy: Tensor, reference: Tensor, unrelated: Tensor, unrelated_reference: Tensor,
        desirable: Tensor, beta: float, reduction: str, **weights: float) -> Tensor:  # fmt: skip
    divergence = (unrelated - unrelated_reference).mean().detach().clamp(min=0)
    ratio = policy - reference
    gains = 1 - torch.sigmoid(beta * (ratio - divergence))
    losses = 1 - torch.sigmoid(beta * (divergence - ratio))
    a, b = weights["desirable_weight"], weights["undesirable_weight"]
    return reduced(torch.where(desirable, a * gains, b * losses), reduction)


def grpo(logprob: Tensor, old: Tensor, reference: Tensor, reward: Tensor, mask: Tensor,
         clip: float, beta: float, eps: float) -> Tensor:  # fmt: skip
    spread = reward.std(1, keepdim=True) + eps
    advantage = ((reward - reward.mean(1, keepdim=True)) / spread).detach()[..., None]
    ratio = (logprob - old).exp()
    gain = torch.min(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage)
    divergence = (reference - logprob).exp() - (reference - logprob) - 1
    each = (beta * divergence - gain) * mask
    return (each.sum(-1) / mask.sum(-1)).mean()


def simpo(chosen: Tensor, rejected: Tensor, chosen_mask: Tensor, rejected_mask: Tensor,
          beta: float, gamma: float, reduction: str) -> Tensor:  # fmt: skip
    better = (chosen * chosen_mask).sum(1) / chosen_mask.sum(1)
    worse = (rejected * rejected_mask).sum(1) / rejected_mask.sum(1)
    return reduced(F.softplus(gamma - beta * (better - worse)), reduction)


def cox(log_hazard: Tensor, time: Tensor, event: Tensor) -> Tensor:
    terms = [
        log_hazard[time >= time[n]].logsumexp(0) - log_hazard[n]
        for n in range(len(time))
        if event[n]
    ]
    return torch.stack(terms).mean()


def listmle(scores: Tensor, labels: Tensor) -> Tensor:
    rows = zip(scores.flatten(0, -2), labels.flatten(0, -2), strict=True)
    terms = [row[own <= own[n]].logsumexp(0) - row[n] for row, own in rows for n in range(len(own))]
    return torch.stack(terms).reshape(scores.shape).sum(-1)


def zinb(mean: Tensor, dispersion: Tensor, logits: Tensor, counts: Tensor, eps: float,
         reduction: str) -> Tensor:  # fmt: skip
    counted = NegativeBinomial(dispersion, logits=mean.log() - dispersion.log()).log_prob(
        counts.to(mean)
    )
    some = F.logsigmoid(-logits) + counted
    either = some.logaddexp(F.logsigmoid(logits))
    return -reduced(torch.where(counts > 0, some, either), reduction)


def crps(loc: Tensor, scale: Tensor, target: Tensor, reduction: str) -> Tensor:
    normal, z = Normal(0.0, 1.0), (target - loc) / scale
    density = normal.log_prob(z).exp()
    score = z * (2 * normal.cdf(z) - 1) + 2 * density - 1 / math.sqrt(math.pi)
    return reduced(scale * score, reduction)


def ensemble_crps(ensemble: Tensor, target: Tensor, reduction: str) -> Tensor:
    near = (ensemble - target[:, None]).abs().mean(1)
    spread = (ensemble[:, :, None] - ensemble[:, None]).abs().mean((1, 2))
    return reduced(near - spread / 2, reduction)


def ciou(a: Tensor, b: Tensor, eps: float, reduction: str) -> Tensor:
    """As torchvision.ops.complete_box_iou_loss has it."""
    low, high = torch.maximum(a[:, :2], b[:, :2]), torch.minimum(a[:, 2:], b[:, 2:])
    common = (high - low).clamp(min=0).prod(1)
    (wa, ha), (wb, hb) = ((x[:, 2:] - x[:, :2]).unbind(1) for x in (a, b))
    iou = common / (wa * ha + wb * hb - common + eps)
    hull = torch.maximum(a[:, 2:], b[:, 2:]) - torch.minimum(a[:, :2], b[:, :2])
    centres = (a[:, :2] + a[:, 2:] - b[:, :2] - b[:, 2:]) / 2
    apart = centres.square().sum(1) / (hull.square().sum(1) + eps)
    v = (torch.atan(wb / hb) - torch.atan(wa / ha)).square() * 4 / math.pi**2
    alpha = (v / (1 - iou + v + eps)).detach()
    return reduced(1 - iou + apart + alpha * v, reduction)


def siglip(image: Tensor, text: Tensor, log_scale: Tensor, bias: Tensor) -> Tensor:
    cosines = F.normalize(image, dim=1) @ F.normalize(text, dim=1).T
    labels = 2 * torch.eye(len(image), dtype=image.dtype) - 1
    return F.softplus(-labels * (log_scale.exp() * cosines + bias)).sum(1).mean()


def barlow_twins(first: Tensor, second: Tensor, weight: float, eps: float) -> Tensor:
    x, y = (F.batch_norm(z, None, None, training=True, eps=eps) for z in (first, second))
    c = x.T @ y / len(x)
    off = c - torch.diag(c.diagonal())
    return (c.diagonal() - 1).square().sum() + weight * off.square().sum()


def vicreg(first: Tensor, second: Tensor, invariance: float, variance: float, covariance: float,
           eps: float) -> Tensor:  # fmt: skip
    near = F.mse_loss(first, second)
    spread = sum(F.relu(1 - (x.var(0) + eps).sqrt()).mean() for x in (first, second)) / 2
    each = [torch.cov(x.T) for x in (first, second)]
    off = [(c - torch.diag(c.diagonal())).square().sum() / len(c) for c in each]
    return invariance * near + variance * spread + covariance * sum(off)


def latent(
    q: Tensor, turned: Tensor, c: Tensor, key: Tensor, Wk: Tensor, Wv: Tensor, scale: float
) -> Tensor:
    K, V = (torch.einsum("hdl,bjl->bhjd", W, c) for W in (Wk, Wv))
    shared = key[:, None].expand(-1, q.shape[1], -1, -1)
    queries, keys = torch.cat((q, turned), -1), torch.cat((K, shared), -1)
    mask = torch.ones(q.shape[2], key.shape[1], dtype=torch.bool).tril()
    return attend(queries, keys, V, mask, scale=scale)


def differential(
    q1: Tensor, k1: Tensor, q2: Tensor, k2: Tensor, v: Tensor, weight: Tensor
) -> Tensor:
    mask = torch.ones(q1.shape[-2], k1.shape[-2], dtype=torch.bool).tril()
    return attend(q1, k1, v, mask) - weight * attend(q2, k2, v, mask)


def response_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    norm = torch.linalg.vector_norm(x, dim=tuple(range(1, x.dim() - 1)), keepdim=True)
    return weight * (x * (norm / (norm.mean(-1, keepdim=True) + eps))) + bias + x


def lora(
    x: Tensor, weight: Tensor, A: Tensor, B: Tensor, bias: Tensor | None, alpha: float
) -> Tensor:
    return F.linear(x, weight + alpha / len(A) * (B @ A), bias)


def dora(x: Tensor, weight: Tensor, A: Tensor, B: Tensor, magnitude: Tensor, bias: Tensor | None,
         alpha: float) -> Tensor:  # fmt: skip
    V = weight + alpha / len(A) * (B @ A)
    return F.linear(x, magnitude[:, None] * V / V.norm(dim=1, keepdim=True).detach(), bias)


def ssim(first: Tensor, second: Tensor, window: Tensor, data_range: float) -> Tensor:
    channels = first.shape[1]

    def blurred(x: Tensor) -> Tensor:
        return F.conv2d(x, window.expand(channels, 1, *window.shape), groups=channels)

    m, k = blurred(first), blurred(second)
    s, t, both = (
        blurred(x * y) - p * q
        for x, y, p, q in ((first, first, m, m), (second, second, k, k), (first, second, m, k))
    )
    c1, c2 = (0.01 * data_range) ** 2, (0.03 * data_range) ** 2
    light = (2 * m * k + c1) / (m * m + k * k + c1)
    return 1 - (light * (2 * both + c2) / (s + t + c2)).mean()


def lennard_jones(x: Tensor, sigma: float, epsilon: float) -> Tensor:
    n, m = torch.triu_indices(len(x), len(x), 1)
    r = sigma / (x[n] - x[m]).norm(dim=1)
    return 4 * epsilon * (r**12 - r**6).sum()


def kuramoto(theta: Tensor, omega: Tensor, coupling: Tensor) -> Tensor:
    apart = theta[:, None] - theta[..., None]
    return omega + (coupling * apart.sin()).mean(-1)


def bound(x: Tensor, y: Tensor) -> Tensor:
    return torch.stack([(x * y.flip(-1).roll(n + 1, -1)).sum(-1) for n in range(x.shape[-1])], -1)


def covariance(quaternion: Tensor, scale: Tensor) -> Tensor:
    w, x, y, z = F.normalize(quaternion, dim=1).unbind(1)
    rows = (
        (1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)),
        (2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)),
        (2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)),
    )
    M = torch.stack([torch.stack(row, -1) for row in rows], 1) * scale[:, None]
    return M @ M.mT


def rendered(density: Tensor, colour: Tensor, length: Tensor) -> Tensor:
    alpha = 1 - torch.exp(-density * length)
    passed = torch.cumprod(1 - alpha, 1)
    before = torch.cat((torch.ones_like(passed[:, :1]), passed[:, :-1]), 1)
    return torch.einsum("rs,rsc->rc", alpha * before, colour)


def lsq(x: Tensor, step: Tensor, qmin: float, qmax: float, gradient_scale: float) -> Tensor:
    s = step * gradient_scale + (step - step * gradient_scale).detach()
    v = (x / s).clamp(qmin, qmax)
    return (v + (v.round() - v).detach()) * s


def nearest(x: Tensor, codebook: Tensor, commitment: float) -> Tensor:
    code = codebook[(x[:, None] - codebook).norm(dim=2).argmin(1)]
    return F.mse_loss(code, x.detach()) + commitment * F.mse_loss(x, code.detach())


OWN: dict[str, Callable[..., Any]] = {
    "dpo_loss": dpo,
    "kto_loss": kto,
    "grpo_loss": grpo,
    "simpo_loss": simpo,
    "cox_loss": cox,
    "listmle_loss": listmle,
    "zinb_loss": zinb,
    "gaussian_crps": crps,
    "ensemble_crps": ensemble_crps,
    "ciou_loss": ciou,
    "siglip_loss": siglip,
    "barlow_twins_loss": barlow_twins,
    "vicreg_loss": vicreg,
    "ssim_loss": ssim,
    "latent_attention": latent,
    "differential_attention": differential,
    "global_response_norm": response_norm,
    "lora_linear": lora,
    "dora_linear": dora,
    "lennard_jones": lennard_jones,
    "kuramoto": kuramoto,
    "circular_convolution": bound,
    "covariance_of_quaternion": covariance,
    "volume_rendering": rendered,
    "lsq_quantize": lsq,
    "vector_quantize": nearest,
}


def several(*shapes: tuple[int, ...], low: float = -1, high: float = 1) -> list[Tensor]:
    return [uniform(shape, low, high, seed) for seed, shape in enumerate(shapes)]


def boxes(seed: int) -> Tensor:
    """Some that meet those of another seed, and some that do not."""
    at = uniform((5, 2), 0, 2, seed)
    return torch.cat((at, at + uniform((5, 2), 0.5, 1.5, seed + 1)), 1)


def of_each_reduction() -> Iterator[Case]:
    counts = torch.tensor([[0, 2, 5, 0], [1, 0, 0, 7], [3, 1, 0, 0]])
    answers = [
        torch.tensor([True, False, True]),
        mask_of(3, 1, 4, size=4),
        mask_of(2, 5, 1, size=5),
    ]
    zeros = [uniform((3, 4), 0.3, 3, n) for n in range(2)]
    for reduction in REDUCTIONS:
        for name, tensors, options, opaque in (
            ("dpo_loss", several(*[(5,)] * 4), {"beta": 0.7, "label_smoothing": 0.2}, ()),
            (
                "kto_loss",
                [*several((3,), (3,)), uniform((5,), 0, 1, 5), uniform((5,), -1, 0, 6), answers[0]],
                {"beta": 0.7, "desirable_weight": 1.3, "undesirable_weight": 0.6},
                (2, 3),
            ),
            (
                "simpo_loss",
                [*several((3, 4), (3, 5)), *answers[1:]],
                {"beta": 1.6, "gamma": 0.4},
                (),
            ),
            ("zinb_loss", [*zeros, uniform((3, 4), -1, 1, 3), counts], {"eps": 1e-14}, ()),
            ("ciou_loss", [boxes(0), boxes(7)], {"eps": 1e-7}, ()),
            (
                "gaussian_crps",
                [uniform((3, 4), -1, 1), uniform((3, 4), 0.4, 2, 1), uniform((3, 4), -1, 1, 2)],
                {},
                (),
            ),
            ("ensemble_crps", [distinct((3, 4)), uniform((3,), -1, 1, 2)], {}, ()),
        ):
            yield Case(
                name,
                reduction,
                list(tensors),
                {**options, "reduction": reduction},
                opaque=frozenset(opaque),
            )


def trained() -> Iterator[Case]:
    tokens = mask_of(4, 2, 3, 1, 4, 3, size=4).unflatten(0, (2, 3))
    window = uniform((2, 3), 0.1, 1, 2)
    ranks = torch.arange(24.0).double().remainder(5).reshape(2, 3, 4)
    event = torch.tensor([True, False, True, True, False])
    for name, tensors, options, opaque in (
        (
            "grpo_loss",
            [*several(*[(2, 3, 4)] * 3, high=-0.5), uniform((2, 3), 0, 1, 4), tokens],
            {"clip": 0.1, "beta": 0.3, "eps": 1e-3},
            (3,),
        ),
        ("cox_loss", [uniform((5,), -1, 1), distinct((5,), 1), event], {}, (1,)),
        ("listmle_loss", [uniform((2, 5), -1, 1), distinct((2, 5), 1)], {}, (1,)),
        ("listmle_loss", [uniform((2, 3, 4), -1, 1), ranks], {}, (1,)),
        ("siglip_loss", several((3, 4), (3, 4), (), ()), {}, ()),
        ("barlow_twins_loss", several((5, 3), (5, 3)), {"weight": 0.3, "eps": 1e-5}, ()),
        (
            "ssim_loss",
            [*several((2, 3, 4, 5), (2, 3, 4, 5), low=0), window / window.sum()],
            {"data_range": 1.0},
            (),
        ),
        (
            "vicreg_loss",
            several((5, 3), (5, 3)),
            {"invariance": 2.0, "variance": 3.0, "covariance": 0.7, "eps": 1e-4},
            (),
        ),
        (
            "latent_attention",
            several((2, 3, 4, 5), (2, 3, 4, 6), (2, 4, 7), (2, 4, 6), (3, 5, 7), (3, 8, 7)),
            {"scale": 0.7},
            (),
        ),
        ("differential_attention", several(*[(2, 4, 5)] * 4, (2, 4, 6), ()), {}, ()),
        ("global_response_norm", several((2, 3, 4, 5), (5,), (5,)), {"eps": 1e-3}, ()),
        ("lora_linear", [*several((2, 3, 5), (6, 5), (4, 5), (6, 4)), None], {"alpha": 1.5}, ()),
        ("lora_linear", several((3, 5), (6, 5), (4, 5), (6, 4), (6,)), {"alpha": 1.5}, ()),
        ("dora_linear", [*several((3, 5), (6, 5), (4, 5), (6, 4), (6,)), None], {"alpha": 1.5}, ()),
        ("lennard_jones", [distinct((5, 3), 1)], {"sigma": 0.4, "epsilon": 1.3}, ()),
        ("kuramoto", several((3, 5), (5,), (5, 5)), {}, ()),
        ("circular_convolution", several((5,), (5,)), {}, ()),
        ("circular_convolution", several((2, 3, 4), (2, 3, 4)), {}, ()),
        ("covariance_of_quaternion", [uniform((5, 4), -1, 1), uniform((5, 3), 0.3, 2, 1)], {}, ()),
        ("volume_rendering", several((3, 4), (3, 4, 2), (3, 4), low=0.1), {}, ()),
        (
            "lsq_quantize",
            [distinct((4, 5), 2), torch.tensor(0.21, dtype=torch.float64)],
            {"qmin": -3.0, "qmax": 2.0, "gradient_scale": 0.4},
            (),
        ),
        ("vector_quantize", several((5, 3), (4, 3)), {"commitment": 0.4}, ()),
    ):
        given = [0 if x is None else list(x.shape) for x in tensors]
        yield Case(
            name,
            f"{given[0]} bias" if given[-1] == [6] else str(given[0]),
            list(tensors),
            options,
            opaque=frozenset(opaque),
        )
