"""Matrix products, distances and kernels, cells, attention, convolutions and pools."""

import math

import torch
from kit.race.row import Draw, Function, Row, of, of_torch
from kit.race.rows.elementwise import normal, positive, two
from torch import Tensor
from torch.nn import functional as F

attend = F.scaled_dot_product_attention


def cell(draw: Draw, rows: int, inner: int, gates: int, states: int) -> list[Tensor | None]:
    weights = [draw.normal(gates * inner, inner) / inner**0.5 for _ in range(2)]
    biases = [draw.normal(gates * inner) for _ in range(2)]
    return [*(draw.normal(rows, inner) for _ in range(1 + states)), *weights, *biases]


heads = of("bnd bnd bnd")


def model(draw: Draw, batch: int, rows: int, inner: int) -> list[Tensor | None]:
    weights = [draw.normal(inner, inner) / inner**0.5 for _ in range(4)]
    biases = [draw.normal(inner) for _ in range(3)]
    # A bias of the key changes no share: its gradient is rounding errors.
    return [*heads(draw, batch, rows, inner), *weights, biases[0], None, *biases[1:]]


def kernel(draw: Draw, *shape: int, groups: int = 1) -> list[Tensor | None]:
    """Input, weight of as many channels, bias."""
    weight = (shape[1], shape[1] // groups, *(3,) * (len(shape) - 2))
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
POOL = {"kernel_size": 2, "stride": 2}


def pieces(x: Tensor) -> Tensor:
    return x.unfold(2, 2, 2).unfold(3, 2, 2)


def global_pool(pool: Function) -> Function:
    return lambda x: pool(x, 1)[..., 0, 0]


ROWS = (
    of_torch("matmul", two, large=(512, 512), huge=(4096, 4096)),
    of_torch("linear", of("nk ok o"), lambda x, w, b: x @ w.mT + b, large=(1024, 256, 1024)),
    of_torch("addmm", of("nn nn nn"), lambda x, a, b: x + a @ b, large=(512,), huge=(4096,)),
    of_torch("baddbmm", of("mnn mnn mnn"), lambda x, a, b: x + a @ b, small=(2, 8), large=(8, 256)),
    of_torch("dot", of("n n"), lambda a, b: (a * b).sum(), large=(2**20,)),
    of_torch("mv", of("nk k"), lambda a, b: (a * b).sum(1)),
    of_torch("outer", of("n k"), lambda a, b: a[:, None] * b),
    of_torch("kron", two, large=(32, 32), huge=(128, 32)),
    of_torch("multi_dot", of("nn nn nn"), lambda a, b, c: a @ b @ c, large=(512,), huge=(4096,)),
    of_torch(
        "bilinear",
        of("nk nk kkk"),
        lambda x, y, w: torch.einsum("ni,oij,nj->no", x, w, y),
        large=(1024, 32),
    ),
    of_torch("cdist", two, lambda x, y: squares(x, y).sqrt(), **POINTS),
    of_torch("cdist_manhattan", two, lambda x, y: (x[:, None] - y[None]).abs().sum(-1), **POINTS),
    Row("rbf_kernel", two, composite=lambda x, y: torch.exp(-squares(x, y)), **POINTS),
    Row("polynomial_kernel", two, composite=lambda x, y: (x @ y.mT + 1) ** 3, **POINTS),
    of_torch("pairwise_distance", two, lambda x, y: (x - y + 1e-6).norm(dim=-1)),
    of_torch(
        "cosine_similarity", two, lambda x, y: (x * y).sum(1) / (x.norm(dim=1) * y.norm(dim=1))
    ),
    of_torch("lstm_cell", lambda d, *s: cell(d, *s, 4, 2), lstm, large=(256, 256)),
    of_torch("gru_cell", lambda d, *s: cell(d, *s, 3, 1), gru, large=(256, 256)),
    of_torch(
        "rnn_tanh_cell",
        lambda d, *s: cell(d, *s, 1, 1),
        lambda x, h, w, u, b, c: torch.tanh(F.linear(x, w, b) + F.linear(h, u, c)),
        large=(256, 512),
    ),
    of_torch("scaled_dot_product_attention", heads, attention, **HEADS),
    of_torch("causal_attention", heads, causal_attention, **HEADS),
    Row(
        "masked_attention",
        lambda d, *s: [*heads(d, *s), d.coin(s[1], s[1])],
        attend,
        masked_attention,
        **HEADS,
    ),
    of_torch(
        "grouped_query_attention",
        lambda d, *s: [d.normal(s[0], 4, *s[1:]), *(d.normal(s[0], 2, *s[1:]) for _ in range(2))],
        small=(2, 8, 8),
        large=(2, 512, 64),
    ),
    Row("linear_attention", heads, composite=linear_attention, **HEADS),
    Row(
        "multi_head_attention", model, None, multi_head, {"num_heads": 4}, (2, 8, 8), (4, 256, 128)
    ),
    Row("rotary_embedding", normal, None, rotary, small=(2, 8, 8), large=(16, 512, 128)),
    of_torch("conv1d", kernel, **SEQUENCES),
    of_torch("conv2d", kernel, **IMAGES),
    Row(
        "same_conv1d",
        kernel,
        lambda x, w, b: F.conv1d(x, w, b, padding=1),
        None,
        {"padding": 1},
        **SEQUENCES,
    ),
    Row(
        "causal_conv1d",
        kernel,
        composite=lambda x, w, b: F.conv1d(F.pad(x, (2, 0)), w.flip(-1), b),
        **SEQUENCES,
    ),
    of_torch(
        "grouped_conv1d", lambda d, *s: kernel(d, *s, groups=2), None, {"groups": 2}, **SEQUENCES
    ),
    of_torch("depthwise_conv1d", of_each_channel, **SEQUENCES),
    of_torch("depthwise_conv2d", of_each_channel, **IMAGES),
    of_torch("conv_transpose1d", kernel, **SEQUENCES),
    of_torch("avg_pool1d", normal, None, POOL, **SEQUENCES),
    of_torch("max_pool1d", normal, None, POOL, **SEQUENCES),
    of_torch("lp_pool1d", positive, None, {"norm_type": 3, **POOL}, **SEQUENCES),
    Row(
        "global_avg_pool",
        normal,
        global_pool(F.adaptive_avg_pool2d),
        lambda x: x.mean((2, 3)),
        **IMAGES,
    ),
    Row(
        "global_max_pool",
        normal,
        global_pool(F.adaptive_max_pool2d),
        lambda x: x.amax((2, 3)),
        **IMAGES,
    ),
    of_torch("avg_pool2d", normal, lambda x: pieces(x).mean((-2, -1)), POOL, **IMAGES),
    of_torch("max_pool2d", normal, lambda x: pieces(x).amax((-2, -1)), POOL, **IMAGES),
)
