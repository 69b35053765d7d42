"""Functions as people write them, read by ``derive.differentiate``; the composite is the function.

As they stand in transformers (LlamaRMSNorm, LlamaMLP, apply_rotary_pos_emb), torchvision
(sigmoid_focal_loss) and torch_geometric (GCNConv, with the edges normalised before).
"""

from typing import Any

import torch
import torch.nn.functional as F
from kit.race.row import Draw, Function, Make, Row, of
from torch import Tensor

import derive


def llama_rms_norm(hidden_states: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
    variance = hidden_states.pow(2).mean(-1, keepdim=True)
    hidden_states = hidden_states * torch.rsqrt(variance + eps)
    return weight * hidden_states


def swiglu_mlp(x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    return F.linear(F.silu(F.linear(x, gate)) * F.linear(x, up), down)


def rotate_half(x: Tensor) -> Tensor:
    x1 = x[..., : x.shape[-1] // 2]
    x2 = x[..., x.shape[-1] // 2 :]
    return torch.cat((-x2, x1), dim=-1)


def rotary(q: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return q * cos + rotate_half(q) * sin


def focal_loss(inputs: Tensor, targets: Tensor, alpha: float = 0.25, gamma: float = 2) -> Tensor:
    p = torch.sigmoid(inputs)
    ce = F.binary_cross_entropy_with_logits(inputs, targets, reduction="none")
    p_t = p * targets + (1 - p) * (1 - targets)
    loss = ce * ((1 - p_t) ** gamma)
    alpha_t = alpha * targets + (1 - alpha) * (1 - targets)
    return (alpha_t * loss).mean()


def gcn_conv(x: Tensor, weight: Tensor, bias: Tensor, source: Tensor, norm: Tensor) -> Tensor:
    """Of nodes with as many edges each: those of node n come from source[n]."""
    h = x @ weight
    return (h[source] * norm[..., None]).sum(1) + bias


def _edges(draw: Draw, n: int, d: int, k: int = 5) -> list[Tensor | None]:
    x, weight, bias = draw.normal(n, d), draw.normal(d, d), draw.normal(d)
    return [x, weight, bias, draw.below(n, n, k), draw.between(0.1, 1, n, k)]


def _layers(draw: Draw, n: int, d: int) -> list[Tensor | None]:
    shapes = (2 * d, d), (2 * d, d), (d, 2 * d)
    return [draw.normal(n, d), *(draw.between(-0.1, 0.1, *shape) for shape in shapes)]


def read(name: str, make: Make, function: Function, **more: Any) -> Row:
    ours = derive.differentiate(function)
    return Row(f"read: {name}", make, None, function, ours=ours, **more)


ROWS = (
    read("LlamaRMSNorm", of("nd d"), llama_rms_norm),
    read("SwiGLU MLP", _layers, swiglu_mlp, large=(1024, 256)),
    read(
        "rotary embedding",
        lambda draw, n, d: of("nkd kd kd")(draw, n, 7, d),
        rotary,
        large=(1024, 128),
        fixed=(1, 2),
    ),
    read("focal loss", lambda d, *s: [d.normal(*s), d.coin(*s).float()], focal_loss, fixed=(1,)),
    read("GCNConv", _edges, gcn_conv, large=(2048, 128), fixed=(4,)),
)
