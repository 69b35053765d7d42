"""Matrix products, distances and kernels, cells, attention, convolutions and pools."""

import math

import torch
from kit.race.row import Draw, Row
from kit.race.rows.elementwise import two
from torch import Tensor
from torch.nn import functional as F

attend = F.scaled_dot_product_attention


def layer(draw: Draw, rows: int, inner: int, columns: int) -> list[Tensor | None]:
    return [draw.normal(rows, inner), draw.normal(columns, inner), draw.normal(columns)]


def sets(draw: Draw, rows: int, inner: int) -> list[Tensor | None]:
    return [draw.normal(rows, inner), draw.normal(rows, inner)]


def cell(draw: Draw, rows: int, inner: int, gates: int, states: int) -> list[Tensor | None]:
    weights = [draw.normal(gates * inner, inner) / inner**0.5 for _ in range(2)]
    biases = [draw.normal(gates * inner) for _ in range(2)]
    return [*(draw.normal(rows, inner) for _ in range(1 + states)), *weights, *biases]


def heads(draw: Draw, batch: int, rows: int, inner: int) -> list[Tensor | None]:
    return [draw.normal(batch, rows, inner) for _ in range(3)]


def model(draw: Draw, batch: int, rows: int, inner: int) -> list[Tensor | None]:
    weights = [draw.normal(inner, inner) / inner**0.5 for _ in range(4)]
    biases = [draw.normal(inner) for _ in range(3)]
    # A bias of the key changes no share: its gradient is rounding errors.
    return [*heads(draw, batch, rows, inner), *weights, biases[0], None, *biases[1:]]


def kernel(draw: Draw, *shape: int) -> list[Tensor | None]:
    """Input, weight of as many channels, bias."""
    weight = (shape[1], shape[1], *(3,) * (len(shape) - 2))
    return [draw.normal(*shape), draw.normal(*weight), draw.normal(shape[1])]


def of_each_channel(draw: Draw, *shape: int) -> list[Tensor | None]:
    """Input, a weight for each channel, bias."""
    weight = (shape[1], *(3,) * (len(shape) - 2))
    return [draw.normal(*shape), draw.normal(*weight), draw.normal(shape[1])]


def squares(x: Tensor, y: Tensor) -> Tensor:
    return (x[:, None] - y[None]).square().sum(-1)


def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    return torch.softmax(scores, -1) @ value


def causal_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
    return torch.softmax(scores.masked_fill(later, -torch.inf), -1) @ value


def masked_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    return torch.softmax(scores.masked_fill(~mask, -torch.inf), -1) @ value


def linear_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    phi, psi = F.elu(query) + 1, F.elu(key) + 1
    return phi @ (psi.mT @ value) / (phi @ psi.sum(-2).unsqueeze(-1))


def multi_head(
    query: Tensor, key: Tensor, value: Tensor, Wq: Tensor, Wk: Tensor, Wv: Tensor, Wo: Tensor,
    bq: Tensor, bk: Tensor | None, bv: Tensor, bo: Tensor,
) -> Tensor:  # fmt: skip
    def split(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return F.linear(x, weight, bias).unflatten(-1, (4, -1)).transpose(1, 2)

    joined = attend(split(query, Wq, bq), split(key, Wk, bk), split(value, Wv, bv))
    return F.linear(joined.transpose(1, 2).flatten(2), Wo, bo)


def rotary(x: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    rates = 10000 ** (-torch.arange(half, dtype=x.dtype, device=x.device) / half)
    angle = torch.arange(x.shape[-2], dtype=x.dtype, device=x.device)[:, None] * rates
    left, right, cos, sin = x[..., :half], x[..., half:], angle.cos(), angle.sin()
    return torch.cat((left * cos - right * sin, right * cos + left * sin), -1)


def lstm(
    x: Tensor, hx: Tensor, cx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor
) -> tuple[Tensor, Tensor]:
    i, f, g, o = (F.linear(x, w_ih, b_ih) + F.linear(hx, w_hh, b_hh)).chunk(4, 1)
    c = torch.sigmoid(f) * cx + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def gru(x: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor) -> Tensor:
    r, z, n = F.linear(x, w_ih, b_ih).chunk(3, 1)
    hr, hz, hn = F.linear(hx, w_hh, b_hh).chunk(3, 1)
    z = torch.sigmoid(z + hz)
    return (1 - z) * torch.tanh(n + torch.sigmoid(r + hr) * hn) + z * hx


HEADS = {"small": (2, 8, 8), "large": (8, 512, 64)}
IMAGES = {"small": (2, 4, 8, 8), "large": (8, 16, 64, 64)}
SEQUENCES = {"small": (2, 4, 8), "large": (16, 32, 2048)}
POINTS = {"small": (8, 4), "large": (1024, 16), "huge": (4096, 16)}

ROWS = (
    Row("matmul", two, torch.matmul, large=(512, 512), huge=(4096, 4096)),
    Row(
        "linear",
        layer,
        F.linear,
        lambda x, w, b: x @ w.mT + b,
        small=(8, 8, 8),
        large=(1024, 256, 1024),
    ),
    Row(
        "addmm",
        lambda d, n: [d.normal(n, n) for _ in range(3)],
        torch.addmm,
        lambda x, a, b: x + a @ b,
        small=(8,),
        large=(512,),
        huge=(4096,),
    ),
    Row(
        "baddbmm",
        lambda d, m, n: [d.normal(m, n, n) for _ in range(3)],
        torch.baddbmm,
        lambda x, a, b: x + a @ b,
        small=(2, 8),
        large=(8, 256),
    ),
    Row(
        "dot",
        lambda d, n: [d.normal(n), d.normal(n)],
        torch.dot,
        lambda a, b: (a * b).sum(),
        small=(8,),
        large=(2**20,),
    ),
    Row("mv", lambda d, n, k: [d.normal(n, k), d.normal(k)], torch.mv, lambda a, b: (a * b).sum(1)),
    Row(
        "outer",
        lambda d, n, k: [d.normal(n), d.normal(k)],
        torch.outer,
        lambda a, b: a[:, None] * b,
    ),
    Row("kron", two, torch.kron, large=(32, 32), huge=(128, 32)),
    Row(
        "multi_dot",
        lambda d, n: [d.normal(n, n) for _ in range(3)],
        lambda *x: torch.linalg.multi_dot(x),
        lambda a, b, c: a @ b @ c,
        small=(8,),
        large=(512,),
        huge=(4096,),
    ),
    Row(
        "bilinear",
        lambda d, n, k: [d.normal(n, k), d.normal(n, k), d.normal(k, k, k)],
        F.bilinear,
        lambda x, y, w: torch.einsum("ni,oij,nj->no", x, w, y),
        large=(1024, 32),
    ),
    Row("cdist", sets, torch.cdist, lambda x, y: squares(x, y).sqrt(), **POINTS),
    Row(
        "cdist_manhattan",
        sets,
        lambda x, y: torch.cdist(x, y, 1),
        lambda x, y: (x[:, None] - y[None]).abs().sum(-1),
        **POINTS,
    ),
    Row("rbf_kernel", sets, composite=lambda x, y: torch.exp(-squares(x, y)), **POINTS),
    Row("polynomial_kernel", sets, composite=lambda x, y: (x @ y.mT + 1) ** 3, **POINTS),
    Row("pairwise_distance", two, F.pairwise_distance, lambda x, y: (x - y + 1e-6).norm(dim=-1)),
    Row(
        "cosine_similarity",
        two,
        F.cosine_similarity,
        lambda x, y: (x * y).sum(1) / (x.norm(dim=1) * y.norm(dim=1)),
    ),
    Row(
        "lstm_cell",
        lambda d, *s: cell(d, *s, 4, 2),
        lambda x, h, c, *weights: torch.lstm_cell(x, (h, c), *weights),
        lstm,
        large=(256, 256),
    ),
    Row("gru_cell", lambda d, *s: cell(d, *s, 3, 1), torch.gru_cell, gru, large=(256, 256)),
    Row(
        "rnn_tanh_cell",
        lambda d, *s: cell(d, *s, 1, 1),
        torch.rnn_tanh_cell,
        lambda x, h, w, u, b, c: torch.tanh(F.linear(x, w, b) + F.linear(h, u, c)),
        large=(256, 512),
    ),
    Row("scaled_dot_product_attention", heads, attend, attention, **HEADS),
    Row(
        "causal_attention",
        heads,
        lambda q, k, v: attend(q, k, v, is_causal=True),
        causal_attention,
        **HEADS,
    ),
    Row(
        "masked_attention",
        lambda d, *s: [*heads(d, *s), d.coin(s[1], s[1])],
        attend,
        masked_attention,
        **HEADS,
    ),
    Row(
        "grouped_query_attention",
        lambda d, *s: [d.normal(s[0], 4, *s[1:]), *(d.normal(s[0], 2, *s[1:]) for _ in range(2))],
        lambda q, k, v: attend(q, k, v, enable_gqa=True),
        small=(2, 8, 8),
        large=(2, 512, 64),
    ),
    Row("linear_attention", heads, composite=linear_attention, **HEADS),
    Row(
        "multi_head_attention",
        model,
        composite=multi_head,
        given={"num_heads": 4},
        small=(2, 8, 8),
        large=(4, 256, 128),
    ),
    Row(
        "rotary_embedding",
        lambda d, *s: [d.normal(*s)],
        composite=rotary,
        small=(2, 8, 8),
        large=(16, 512, 128),
    ),
    Row("conv1d", kernel, F.conv1d, **SEQUENCES),
    Row("conv2d", kernel, F.conv2d, **IMAGES),
    Row(
        "same_conv1d",
        kernel,
        lambda x, w, b: F.conv1d(x, w, b, padding=1),
        given={"padding": 1},
        **SEQUENCES,
    ),
    Row(
        "causal_conv1d",
        kernel,
        composite=lambda x, w, b: F.conv1d(F.pad(x, (2, 0)), w.flip(-1), b),
        **SEQUENCES,
    ),
    Row(
        "grouped_conv1d",
        lambda d, *s: [d.normal(*s), d.normal(s[1], s[1] // 2, 3), d.normal(s[1])],
        lambda x, w, b: F.conv1d(x, w, b, groups=2),
        given={"groups": 2},
        **SEQUENCES,
    ),
    Row(
        "depthwise_conv1d",
        of_each_channel,
        lambda x, w, b: F.conv1d(x, w.unsqueeze(1), b, groups=len(b)),
        **SEQUENCES,
    ),
    Row(
        "depthwise_conv2d",
        of_each_channel,
        lambda x, w, b: F.conv2d(x, w.unsqueeze(1), b, groups=len(b)),
        **IMAGES,
    ),
    Row("conv_transpose1d", kernel, F.conv_transpose1d, **SEQUENCES),
    Row(
        "avg_pool1d",
        lambda d, *s: [d.normal(*s)],
        lambda x: F.avg_pool1d(x, 2, 2),
        given={"kernel_size": 2, "stride": 2},
        **SEQUENCES,
    ),
    Row(
        "max_pool1d",
        lambda d, *s: [d.normal(*s)],
        lambda x: F.max_pool1d(x, 2, 2),
        given={"kernel_size": 2, "stride": 2},
        **SEQUENCES,
    ),
    Row(
        "lp_pool1d",
        lambda d, *s: [d.between(0.5, 2, *s)],
        lambda x: F.lp_pool1d(x, 3, 2, 2),
        given={"norm_type": 3, "kernel_size": 2, "stride": 2},
        **SEQUENCES,
    ),
    Row(
        "global_avg_pool",
        lambda d, *s: [d.normal(*s)],
        lambda x: F.adaptive_avg_pool2d(x, 1)[..., 0, 0],
        lambda x: x.mean((2, 3)),
        **IMAGES,
    ),
    Row(
        "global_max_pool",
        lambda d, *s: [d.normal(*s)],
        lambda x: F.adaptive_max_pool2d(x, 1)[..., 0, 0],
        lambda x: x.amax((2, 3)),
        **IMAGES,
    ),
    Row(
        "avg_pool2d",
        lambda d, *s: [d.normal(*s)],
        lambda x: F.avg_pool2d(x, 2, 2),
        lambda x: x.unfold(2, 2, 2).unfold(3, 2, 2).mean((-2, -1)),
        {"kernel_size": 2, "stride": 2},
        **IMAGES,
    ),
    Row(
        "max_pool2d",
        lambda d, *s: [d.normal(*s)],
        lambda x: F.max_pool2d(x, 2, 2),
        lambda x: x.unfold(2, 2, 2).unfold(3, 2, 2).amax((-2, -1)),
        {"kernel_size": 2, "stride": 2},
        **IMAGES,
    ),
)
