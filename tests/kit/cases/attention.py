"""Attention, beside torch.nn.functional where it has it."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from kit.cases.case import Case, distinct, positions, uniform
from torch import Tensor
from torch.nn import functional as F

attend = F.scaled_dot_product_attention


def causal(rows: int, columns: int) -> Tensor:
    return torch.ones(rows, columns, dtype=torch.bool).tril()


def sliding(q: Tensor, k: Tensor, v: Tensor, window: int) -> Tensor:
    mask = causal(q.shape[-2], k.shape[-2]).triu(1 - window)
    return attend(q, k, v, mask)


def masked(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """Rows without a position to attend to are 0."""
    output = attend(q, k, v, mask | ~mask.any(-1, keepdim=True))
    return output.where(mask.any(-1, keepdim=True), 0)


def alibi(q: Tensor, k: Tensor, v: Tensor, slopes: Tensor) -> Tensor:
    rows, columns = q.shape[-2], k.shape[-2]
    distance = torch.arange(columns) - torch.arange(rows)[:, None]
    bias = (slopes[:, None, None] * distance).masked_fill(~causal(rows, columns), -torch.inf)
    return attend(q, k, v, bias.expand(*q.shape[:-2], rows, columns))


def relative(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, buckets: Tensor) -> Tensor:
    added = bias[buckets].permute(2, 0, 1).expand(*q.shape[:-1], k.shape[-2])
    return attend(q, k, v, added, scale=1.0)


def multi_head(
    query: Tensor, key: Tensor, value: Tensor, Wq: Tensor, Wk: Tensor, Wv: Tensor, Wo: Tensor,
    bq: Tensor | None, bk: Tensor | None, bv: Tensor | None, bo: Tensor | None, num_heads: int,
) -> Tensor:  # fmt: skip
    def heads(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return F.linear(x, weight, bias).unflatten(-1, (num_heads, -1)).transpose(1, 2)

    joined = attend(heads(query, Wq, bq), heads(key, Wk, bk), heads(value, Wv, bv))
    return F.linear(joined.transpose(1, 2).flatten(2), Wo, bo)


def torch_multi_head(
    query: Tensor, key: Tensor, value: Tensor, Wq: Tensor, Wk: Tensor, Wv: Tensor, Wo: Tensor,
    bq: Tensor, bk: Tensor, bv: Tensor, bo: Tensor, num_heads: int,
) -> Tensor:  # fmt: skip
    """torch's own has the batch second, and wants every bias."""
    output, _ = F.multi_head_attention_forward(
        *(x.transpose(0, 1) for x in (query, key, value)),
        embed_dim_to_check=query.shape[-1],
        num_heads=num_heads,
        in_proj_weight=None,
        in_proj_bias=torch.cat((bq, bk, bv)),
        bias_k=None,
        bias_v=None,
        add_zero_attn=False,
        dropout_p=0.0,
        out_proj_weight=Wo,
        out_proj_bias=bo,
        need_weights=False,
        use_separate_proj_weight=True,
        q_proj_weight=Wq,
        k_proj_weight=Wk,
        v_proj_weight=Wv,
    )
    return output.transpose(0, 1)


def causal_self(x: Tensor, Wq: Tensor, Wk: Tensor, Wv: Tensor) -> Tensor:
    return attend(F.linear(x, Wq), F.linear(x, Wk), F.linear(x, Wv), is_causal=True)


def cross(x: Tensor, m: Tensor, Wq: Tensor, Wk: Tensor, Wv: Tensor, Wo: Tensor) -> Tensor:
    return F.linear(attend(F.linear(x, Wq), F.linear(m, Wk), F.linear(m, Wv)), Wo)


def linear(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = (F.elu(q) + 1) @ (F.elu(k) + 1).mT
    return scores / scores.sum(-1, keepdim=True) @ v


def causal_linear(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = ((F.elu(q) + 1) @ (F.elu(k) + 1).mT).tril()
    return scores / scores.sum(-1, keepdim=True) @ v


def of_graph(
    x: Tensor, weight: Tensor, att_source: Tensor, att_target: Tensor, source: Tensor,
    target: Tensor, negative_slope: float = 0.2,
) -> Tensor:  # fmt: skip
    """Node by node."""
    projected = F.linear(x, weight).unflatten(-1, att_source.shape)
    asked = (projected[source] * att_source + projected[target] * att_target).sum(-1)
    scores = F.leaky_relu(asked, negative_slope)
    rows = []
    for n in range(len(x)):
        into = target == n
        shares = torch.softmax(scores[into], 0)
        rows.append((shares[..., None] * projected[source[into]]).sum(0).flatten())
    return torch.stack(rows)


def rotary(x: Tensor, base: float = 10000) -> Tensor:
    """As complex numbers, multiplied by exp(i·angle)."""
    half = x.shape[-1] // 2
    rates = base ** (-torch.arange(half, dtype=x.dtype) / half)
    angle = torch.arange(x.shape[-2], dtype=x.dtype)[:, None] * rates
    turned = torch.complex(x[..., :half], x[..., half:]) * torch.polar(
        torch.ones_like(angle), angle
    )
    return torch.cat((turned.real, turned.imag), -1)


OWN: dict[str, Callable[..., Any]] = {
    "scaled_dot_product_attention": attend,
    "masked_attention": masked,
    "causal_attention": lambda q, k, v: attend(q, k, v, is_causal=True),
    "sliding_window_attention": sliding,
    "alibi_attention": alibi,
    "relative_attention": relative,
    "grouped_query_attention": lambda q, k, v: attend(q, k, v, enable_gqa=True),
    "multi_head_attention": multi_head,
    "causal_self_attention": causal_self,
    "cross_attention": cross,
    "linear_attention": linear,
    "causal_linear_attention": causal_linear,
    "graph_attention": of_graph,
    "rotary_embedding": rotary,
}
ROWS, COLUMNS, FEATURES, VALUES = 3, 5, 4, 2
"""The sizes of i, j, d and e."""


def triple(*batch: int, rows: int = ROWS) -> list[Tensor]:
    """query, key and value."""
    return [
        uniform((*batch, rows, FEATURES), -1, 1),
        uniform((*batch, COLUMNS, FEATURES), -1, 1, 1),
        uniform((*batch, COLUMNS, VALUES), -1, 1, 2),
    ]


def graphs() -> Iterator[Case]:
    edges = torch.tensor([[0, 4, 2, 2, 1, 0, 3], [1, 1, 0, 2, 1, 3, 3]])
    for label, given in (("typical", {}), ("negative_slope=0.5", {"negative_slope": 0.5})):
        yield Case(
            "graph_attention",
            label,
            [
                uniform((5, 4), -1, 1),
                uniform((6, 4), -1, 1, 1),
                uniform((3, 2), -1, 1, 2),
                uniform((3, 2), -1, 1, 3),
                *edges,
            ],
            given,
        )


def attention() -> Iterator[Case]:
    plain = ("causal_attention", "linear_attention", "causal_linear_attention")
    for name in ("scaled_dot_product_attention", *plain):
        for batch in ((6,), (), (2, 6)):
            label = "typical" if batch == (6,) else f"{list(batch)}"
            yield Case(name, label, triple(*batch))
    for name in plain:
        yield Case(name, "7 rows", triple(2, rows=7))
    mask = torch.tensor([[1, 0, 1, 1, 0], [0, 0, 0, 0, 0], [0, 1, 0, 0, 0]], dtype=torch.bool)
    for batch in ((), (6,)):
        shape = "typical" if batch else f"{list(batch)}"
        added = uniform((ROWS, COLUMNS), -1, 1, 4)
        yield Case("scaled_dot_product_attention", f"{shape} with a mask", [*triple(*batch), added])
        yield Case("masked_attention", shape, [*triple(*batch), mask])
        for window in (1, 2, 9):
            yield Case(
                "sliding_window_attention",
                f"{shape} window={window}",
                triple(*batch),
                {"window": window},
            )
    for batch in ((), (1,), (1, 2)):
        label = "typical" if batch == (1,) else f"{list(batch)}"
        yield Case("alibi_attention", label, [*triple(*batch, 7), uniform((7,), 0.1, 0.9, 3)])
        yield Case(
            "relative_attention",
            label,
            [*triple(*batch, 7), uniform((6, 7), -1, 1, 3), positions(ROWS, COLUMNS, below=6)],
        )
        yield Case(
            "grouped_query_attention",
            label,
            [uniform((*batch, 14, ROWS, FEATURES), -1, 1), *triple(*batch, 7)[1:]],
        )


def projected_attention() -> Iterator[Case]:
    shapes = [(2, 3, 4), (2, 5, 4), (2, 5, 4), (6, 4), (6, 4), (6, 4), (7, 6)]
    biases = [(6,), (6,), (6,), (7,)]
    inputs = [uniform(shape, -1, 1, n) for n, shape in enumerate(shapes)]
    given = [uniform(shape, -1, 1, 7 + n) for n, shape in enumerate(biases)]
    for num_heads, biased in ((2, True), (3, False), (1, False)):
        yield Case(
            "multi_head_attention",
            f"{'typical' if biased else 'without bias,'} {num_heads} heads",
            [*inputs, *(given if biased else (None,) * 4)],
            {"num_heads": num_heads},
            multi_head,
        )
    # torch's own has as many features inside as outside.
    square = [uniform((4, 4), -1, 1, n) for n in range(4)]
    vectors = [uniform((4,), -1, 1, n) for n in range(4)]
    yield Case(
        "multi_head_attention",
        "torch.nn.MultiheadAttention",
        [*inputs[:3], *square, *vectors],
        {"num_heads": 2},
        torch_multi_head,
    )
    yield Case(
        "causal_self_attention",
        "typical",
        [
            *(uniform((2, 5, 3), -1, 1), uniform((4, 3), -1, 1, 1)),
            *(uniform((4, 3), -1, 1, 2), uniform((6, 3), -1, 1, 3)),
        ],
        {},
        causal_self,
    )
    for batch in ((), (2,)):
        yield Case(
            "cross_attention",
            "typical" if batch else "[]",
            [
                *(uniform((*batch, 3, 4), -1, 1), uniform((*batch, 5, 6), -1, 1, 1)),
                *(uniform((7, 4), -1, 1, 2), uniform((7, 6), -1, 1, 3)),
                *(uniform((8, 6), -1, 1, 4), uniform((9, 8), -1, 1, 5)),
            ],
            {},
            cross,
        )
    for shape in ((3, 4), (2, 5, 6), (2, 3, 5, 4)):
        label = "typical" if len(shape) == 3 else f"{list(shape)}"
        yield Case("rotary_embedding", label, [distinct(shape)], {}, rotary)
        yield Case(
            "rotary_embedding", f"{list(shape)} base=7", [distinct(shape)], {"base": 7}, rotary
        )
