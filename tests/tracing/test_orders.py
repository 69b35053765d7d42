"""Positions and truths that torch computes in each call: orders, extrema of all, buckets.

No derivative flows through them, so the derived code takes them as inputs.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import derive


def _lovasz(x, labels):
    errors, order = torch.sort(1 - x * (2.0 * labels - 1), dim=0, descending=True)
    truth = labels[order]
    inside, outside = (t.to(x.dtype).cumsum(0) for t in (truth, 1 - truth))
    jaccard = 1 - (truth.sum() - inside) / (truth.sum() + outside)
    jaccard[1:] = jaccard[1:] - jaccard[:-1]
    return F.relu(errors) @ jaccard


def _sparsemax(x, labels):
    ordered = x.sort(-1, descending=True).values
    sums, count = ordered.cumsum(-1), torch.arange(1, x.shape[-1] + 1)
    k = (1 + count * ordered > sums).sum(-1, keepdim=True)
    return (x - (sums.gather(-1, k - 1) - 1) / k).clamp(min=0)


def _router(x, labels):
    p = x.softmax(-1)
    weights, chosen = torch.topk(p, 2)
    mask = F.one_hot(chosen, x.shape[-1]).to(x.dtype)
    loss = (mask.sum(1).mean(0) * p.mean(0)).sum()
    dense = torch.zeros_like(p).scatter_(-1, chosen, weights / weights.sum(-1, keepdim=True))
    return dense, loss, chosen


def _nucleus(x, labels):
    p, order = x.softmax(-1).sort(-1, descending=True)
    kept = torch.zeros_like(x, dtype=torch.bool).scatter(-1, order, p.cumsum(-1) - p < 0.7)
    return x.masked_fill(~kept, -9.0).log_softmax(-1)


def _written(x, labels):
    """The order is of what was written before, and is itself changed later."""
    z = x.clone()
    z[:, 0] = 3 * labels[0]
    order = z.argsort(-1)
    first = x.gather(-1, order.clone())
    z.mul_(2)
    order.add_(1).remainder_(3)
    return first * torch.exp(z) * order + x.gather(-1, order.argsort(-1))


def _without_graph(x, labels):
    with torch.no_grad():
        least, chosen = (2 * x).topk(2, 0, largest=False, sorted=False)
    return x.gather(0, chosen).exp() * least


ORDERS = {
    "values and positions": lambda x, i: (
        x.sin().sort(0),
        x.cummax(-1),
        x.mode(-1).values * x[:, 0],
    ),
    "as many as a part of the size": lambda x, i: x.topk((x.shape[-1] + 1) // 2).values.exp(),
    "one of each row": lambda x, i: x.kthvalue(2).values.exp() * x.topk(1, 0).values[0, 0],
    "above the least of them": lambda x, i: torch.where(x < x.topk(3).values[:, -1:], 0, x).exp(),
    "positions at positions": lambda x, i: (
        x.gather(-1, x.argsort(-1).gather(-1, x.topk(2)[1])) ** 2
    ),
    "ranks": lambda x, i: x.exp() * x.argsort(-1).argsort(-1) * (x.argsort(0) == 1),
    "deviations": lambda x, i: (x - x.median()).abs().median(-1).values + x.msort()[-1, 0] ** 2,
    "equal values": lambda x, i: (x.round().topk(3)[0] * x[:, :3], x * x.round().median()),
    "of all": lambda x, i: x.flatten()[x.argmax()] * x * x[i].argmin(),
    "buckets": lambda x, i: x[
        :, torch.bucketize(x[0], torch.tensor([-0.5, 0.5]).to(x.dtype))
    ].exp(),
    "of integers": lambda x, i: x * i.sort().values[:, None] * torch.isin(i, i[:2])[:, None],
    "quantiles": lambda x, i: (
        torch.quantile(x, 0.3, -1, keepdim=True) * x,
        x.quantile(0.5) * x.exp().quantile(1.0, 0),
    ),
    "lovasz": _lovasz,
    "sparsemax": _sparsemax,
    "a router": _router,
    "a nucleus": _nucleus,
    "written": _written,
    "without a graph": _without_graph,
}


def _inputs(rows: int, columns: int, dtype: torch.dtype = torch.float64) -> tuple:
    x = torch.randn(rows, columns, dtype=torch.float64).to(dtype).requires_grad_()
    return x, torch.arange(rows) % 2


def _first_and_second(f, x, labels):
    """Return the outputs, the gradient of a weighted sum of them, and its own."""
    found = [t for t in torch.utils._pytree.tree_leaves(f(x, labels))]
    floats = [t for t in found if t.requires_grad]
    total = sum(
        (t * torch.linspace(-1, 2 + n, t.numel()).view(t.shape)).sum() for n, t in enumerate(floats)
    )
    (first,) = torch.autograd.grad(total, x, create_graph=True)
    second = torch.autograd.grad(first.sin().sum(), x)[0] if first.requires_grad else first
    return found, first, second


@pytest.mark.parametrize("f", ORDERS.values(), ids=ORDERS)
def test_positions_are_those_of_torch(f):
    if f is _lovasz:
        f = lambda x, i: _lovasz(x[:, 0], i)  # noqa: E731
    ours = derive.differentiate(f, time=1e9, memory=1e9)
    for rows, columns in ((4, 7), (6, 5), (4, 7)):
        given = _inputs(rows, columns)
        torch.testing.assert_close(_first_and_second(ours, *given), _first_and_second(f, *given))
    assert all(ours.known.made.values())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_positions_in_the_dtype_of_the_call(dtype):
    ours, (x, labels) = derive.differentiate(_router, time=1e9), _inputs(5, 4, dtype)
    have, want = ours(x, labels), _router(x, labels)
    torch.testing.assert_close(have, want, rtol=2e-2, atol=2e-2)
    assert torch.equal(have[2], want[2]) and ours.known.made.popitem()[1]


def scaled(x, scale=0.5, eps=1e-3):
    values = (x.sin() * scale).topk(2).values
    return values / (values.sum(-1, keepdim=True) ** 2 + eps)


def test_a_number_that_positions_depend_on_is_a_constant():
    f, x = derive.differentiate(scaled, time=1e9), _inputs(3, 5)[0]
    for number in (0.5, -0.7, 0.5):
        for eps in (1e-3, 0.2):
            torch.testing.assert_close(f(x, number, eps), scaled(x, number, eps))
    (made,) = f.known.made.values()
    assert [(m.constants, m.numbers) for m in made] == [
        ({"scale": 0.5}, ("eps",)),
        ({"scale": -0.7}, ("eps",)),
    ]


def test_a_quantile_has_its_number_as_a_parameter_and_is_nan_beside_nan():
    def clipped(x, q=0.75):
        return x / torch.quantile(x.abs(), q, dim=-1, keepdim=True)

    f, x = derive.differentiate(clipped, time=1e9), _inputs(3, 6)[0]
    for q in (0.75, 0.4, 0.99):
        torch.testing.assert_close(f(x, q), clipped(x, q))
    x = x.detach()
    x[1, 2] = torch.nan
    torch.testing.assert_close(f(x), clipped(x), equal_nan=True)
    ((made,),) = f.known.made.values()
    assert made.numbers == ("q",)


class Router(nn.Module):
    """A router whose bias decides the experts and is no part of their weights."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(4, 6, bias=False).double()
        self.register_buffer("bias", torch.randn(6, dtype=torch.float64))

    def forward(self, x):
        scores = self.gate(x).sigmoid()
        chosen = (scores + self.bias).topk(2).indices
        weights = scores.gather(-1, chosen)
        return torch.zeros_like(scores).scatter(-1, chosen, weights / weights.sum(-1, keepdim=True))


def test_positions_are_of_the_tensors_of_each_call():
    plain = Router()
    model, x = derive.replace(Router(), time=1e9), torch.randn(5, 4, dtype=torch.float64)
    model.load_state_dict(plain.state_dict())
    for _ in range(3):
        y = model(x)
        torch.testing.assert_close(y, plain(x))
        for m in (model, plain):
            m.bias.add_(torch.arange(6.0)).remainder_(2)
    assert type(y.grad_fn).__name__ == "_RouterBackward"


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_positions_within_transforms_and_compile():
    f, (x, labels) = derive.differentiate(_nucleus, time=1e9), _inputs(3, 5)
    f(x, labels)
    many = torch.randn(2, 4, 5, dtype=torch.float64)
    for run in (
        lambda f: torch.vmap(lambda x: f(x, None))(many),
        lambda f: torch.vmap(torch.func.grad(lambda x: (f(x, None) ** 2).sum()))(many),
        lambda f: torch.compile(f, backend="aot_eager", fullgraph=True)(many[0], labels),
    ):
        torch.testing.assert_close(run(f), run(_nucleus))


def test_random_positions_are_left_to_the_function():
    f = derive.differentiate(lambda x: x[torch.randperm(x.shape[0])].exp())
    with pytest.warns(derive.DeriveWarning, match="randperm is not supported"):
        f(_inputs(3, 5)[0])
