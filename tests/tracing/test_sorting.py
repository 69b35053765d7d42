"""Functions that sort, read by the rank of each element."""

import pytest
import torch
from kit.reads import assert_read
from tracing.test_orders import _lovasz, _nucleus, _router, _sparsemax

import derive


def _winners(x, labels):
    best = x.kthvalue(3, 0, keepdim=True).values
    return (x - best).relu().sum(0) + x.median() + x.exp().median(1).values.sum()


def _ordered_pairs(x, labels):
    order = x[:, 0].argsort(descending=True)
    return (x[order[:-1]] - x[order[1:]]).square().sum(1) * x.msort()[0, 0]


def _interpolated(x, labels):
    return (x - torch.quantile(x, 0.3, -1, keepdim=True)) * x.quantile(0.5)


def _running(x, labels):
    (high, places), low = x.cummax(1), x.cummin(0)
    return high.exp() * low.values * places + x.gather(0, low.indices)


def _at_the_least(x, labels):
    return x.flatten()[x.argmin()] * x * x.argmax(keepdim=True)


FUNCTIONS = {
    "one of each row": _winners,
    "by an order": _ordered_pairs,
    "quantiles": _interpolated,
    "an extremum of all": _at_the_least,
    "running extrema": _running,
    "ranks": lambda x, i: x.exp() * x.argsort(-1).argsort(-1) * (x.argsort(0) == 1),
    "half of them": lambda x, i: x.topk((x.shape[-1] + 1) // 2, largest=False).values.exp(),
    "axes of size 1": lambda x, i: x[:, None].sort(1).values * x[:, None].topk(1, 1).indices + x,
    "lovasz": lambda x, i: _lovasz(x[:, 0], i),
    "sparsemax": _sparsemax,
    "a router": lambda x, i: _router(x, i)[:2],
    "a nucleus": _nucleus,
}


@pytest.mark.parametrize("f", FUNCTIONS.values(), ids=FUNCTIONS)
def test_a_spec_has_the_values_and_gradients(f):
    def inputs(rows, columns):
        x = torch.randn(rows, columns, dtype=torch.float64)
        return x.requires_grad_(), torch.arange(rows) % 2

    op = derive.read_torch(f, *inputs(4, 7), name="f")
    ours = derive.load(op)
    for rows, columns in ((4, 7), (6, 5)):
        x, labels = inputs(rows, columns)
        given = (x, labels) if len(op.inputs) > 1 else (x,)
        found = [], []
        for results, made in zip(found, (ours(*given), f(x, labels)), strict=True):
            leaves = made if isinstance(made, tuple) else (made,)
            total = sum((t * torch.linspace(-1, 2, t.numel()).view(t.shape)).sum() for t in leaves)
            results += [*leaves, *torch.autograd.grad(total, x)]
        torch.testing.assert_close(*found)


def best(x):
    values, where = x.topk(2)
    return values.sum(-1), where


def best_groups(x):
    """The best elements of the best groups, as experts are chosen."""
    parts = x.view(x.shape[0], -1, 2)
    of_group = parts.topk(1).values.sum(-1)
    chosen = torch.topk(of_group, 2, sorted=False).indices
    kept = torch.zeros_like(of_group).scatter_(1, chosen, 1).unsqueeze(-1).bool()
    values, places = parts.masked_fill(~kept, 0.0).flatten(1).topk(3, sorted=False)
    return torch.zeros_like(x).scatter(1, places, values)


def test_the_elements_of_groups_are_sorted():
    assert_read(best_groups, [(4, 6)], [(5, 8)])
    assert_read(lambda x: x.unflatten(-1, (2, -1)).topk(2).values.exp(), [(4, 6)], [(5, 8)])


def by_experts(x, expert):
    order = expert.argsort(stable=True)
    y = torch.zeros_like(x)
    y[order] = x[order].exp()
    return y


def test_the_elements_are_written_back_in_the_order_of_a_sort():
    assert_read(by_experts, [(4, 3), torch.tensor([2, 0, 2, 1])])


def test_the_rank_counts_who_comes_before():
    x = torch.randn(3, 5)
    assert str(derive.read_torch(best, x)) == (
        "op best(x[n, c]; size(k)=2) -> y, order\n"
        "rank[n, c] = sum[c2]([x[n, c2] > x[n, c] or x[n, c2] == x[n, c] and c2 < c])\n"
        "order[n, k] = sum[c | rank[n, c] == k](c)\n"
        "ordered[n, k] = sum[c | rank[n, c] == k](x[n, c])\n"
        "y[n] = sum[k](ordered[n, k])"
    )


def test_the_place_among_boundaries_is_a_count():
    def table(x, edges, values):
        i = torch.searchsorted(edges, x).clamp(1, edges.shape[0] - 1)
        return torch.lerp(values[i - 1], values[i], (x - edges[i - 1]) / (edges[i] - edges[i - 1]))

    def rows(x, edges, values):
        inner = edges[1:-1].expand(x.shape[0], -1).contiguous()
        return values[torch.searchsorted(inner, x, right=True)] * x

    def buckets(x, edges, values):
        i = torch.bucketize(x, edges[1:], right=True, out_int32=True)
        i = i + torch.bucketize(0.5, edges[:-1])
        return values[i.clamp(max=values.shape[0] - 1)] * x.exp()

    def scaled(x, edges, values):
        return torch.bucketize(x, 2 * edges - 1) * x + values.sum()

    def among_their_own(x, edges, values):
        shares = torch.softmax(values, 0).cumsum(0)
        return values[torch.searchsorted(shares, x.sigmoid(), side="right").clamp(max=3)] + edges[0]

    def given(n, m, k):
        edges = torch.rand(k, dtype=torch.float64).sort().values
        return torch.rand(n, m, dtype=torch.float64), edges, torch.randn(k, dtype=torch.float64)

    for f in (table, rows, buckets, scaled, among_their_own):
        op = derive.read_torch(f, *given(3, 4, 6))
        assert "place[" in str(op) and "sum[" in str(op)
        ours = derive.load(op)
        for sizes in ((3, 4, 6), (7, 2, 60)):
            own = [x.requires_grad_() for x in given(*sizes)]
            have, want = ours(*own), f(*own)
            torch.testing.assert_close(have, want)
            of = (
                torch.autograd.grad(y.square().sum(), own, materialize_grads=True)
                for y in (have, want)
            )
            torch.testing.assert_close(*of)


def test_boundaries_may_ascend_along_any_axis():
    def places(x, edges):
        return torch.searchsorted(edges.mT.contiguous(), x.mT.contiguous()).mT * x

    x, edges = torch.randn(4, 3), torch.randn(6, 3).sort(0).values
    op = derive.read_torch(places, x, edges)
    torch.testing.assert_close(derive.load(op)(x, edges), places(x, edges))
