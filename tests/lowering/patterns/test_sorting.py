"""Ranks are sorts, partial ones where an operation asks for the first ranks alone."""

import pytest
import torch
from kit.each import each_row
from kit.lines import defined

import derive
from derive.algebra.expr import Param, num
from derive.calculus.ranks import asked_ranks

LEAST = "rank[n,c] = sum[k]([x[n,k] < x[n,c] or x[n,k] == x[n,c] and k < c])\n"
LARGEST = "rank[n,c] = sum[k]([k < c and x[n,c] == x[n,k] or x[n,c] < x[n,k]])\n"
BY_VALUE = "z[n,c] = x[n,c]*w[c]\n" + LEAST.replace("x", "z")
PLACED = "y[n,r] = sum[c | rank[n,c] == r](x[n,c])"
ALONG_FIRST = "rank[n,c] = sum[m]([x[m,c] < x[n,c] or x[m,c] == x[n,c] and m < n])\n"

SORTS = (
    ("op f(x[n,c]; size(r)=size(c)) -> y\n" + LEAST + PLACED, "sort_ranks(x, 1)"),
    (
        f"op f(x[n,c]; size(r)=3) -> y, order\n{LARGEST}{PLACED}\n"
        "order[n,r] = sum[c | rank[n,c] == r](c)",
        "first_ranks(x, 1, 3, descending=True)",
    ),
    (
        f"op f(x[n,c], w[c]; p=2) -> y\n{BY_VALUE}y[n] = sum[c | rank[n,c] <= p](z[n,c]**2)",
        "first_ranks(z, 1, p + 1)",
    ),
    (
        f"op f(x[n,c]) -> y\n{ALONG_FIRST}y[c] = sum[n | rank[n,c] == (size(n) - 1)//2](x[n,c])",
        "first_ranks(x, 0, (x.shape[0] - 1) // 2 + 1)",
    ),
    (f"op f(x[n,c]) -> y, rank\n{ALONG_FIRST}y[n,c] = x[n,c]*rank[n,c]", "sort_ranks(x, 0)"),
)
"""An operation, and the call that ranks."""


def given(kind, sizes, seed):
    """Random values of these sizes; many are equal if they are whole or one-sided."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(sizes, dtype=torch.float64, generator=generator)
    return {"distinct": x, "whole": x.round(), "one-sided": x.relu()}[kind].requires_grad_()


@pytest.mark.parametrize("kind", ["distinct", "whole", "one-sided"])
@each_row("text, call", SORTS)
def test_ranks_are_those_of_a_stable_sort(text, call, kind):
    op = derive.parse(text)
    assert f"rt.{call}" in derive.source(op, standalone=False)
    f = derive.load(op)
    for sizes in ((4, 60), (60, 4), (3, 5), (7, 1), (1, 40)):
        if sizes[1] < 3 and "size(r)=3" in text:
            continue
        own = [given(kind, sizes, 1), given(kind, sizes[1:], 2)][: len(op.inputs)]
        have, want = f(*own), defined(op)(*own)
        torch.testing.assert_close(have, want)
        of = (y[0] if isinstance(y, tuple) else y for y in (have, want))
        torch.testing.assert_close(*(torch.autograd.grad(y.square().sum(), own) for y in of))


def test_a_rank_is_saved_and_is_a_position():
    code = derive.source(derive.parse(SORTS[0][0]), standalone=False)
    assert "ctx.save_for_backward(rank)" in code and "grad_x = G.gather(1, rank)" in code


OTHERS = (
    "[x[n,l] < x[n,k] or x[n,l] == 2*x[n,k] and l < k]",
    "[x[n,l] < x[n,k] or x[n,l] == x[n,k] and k < l]",
    "[x[n,l] < x[n,k] or x[n,l] == x[n,k]]",
    "[x[n,l] < x[n,k]**2 or x[n,l] == x[n,k]**2 and l < k]",
    "[b[l] and (x[n,l] < x[n,k] or x[n,l] == x[n,k] and l < k)]",
    "[x[n,l] < x[n,k] or x[n,k] == x[n,l] and l < n]",
)


@pytest.mark.parametrize("summand", OTHERS)
def test_no_other_count_is_a_rank(summand):
    op = derive.parse(
        "op f(x[n,k], b[k]: bool) -> y\n"
        f"r[n,k] = sum[l]({summand})\n"
        "y[n,k] = r[n,k]*x[n,k] + [b[k]]"
    )
    assert "_ranks(" not in derive.source(op, standalone=False)
    x, b = torch.tensor([[0.5, 1.0, 0.5], [2.0, -1.0, 1.0]]), torch.tensor([True, False, True])
    torch.testing.assert_close(derive.load(op)(x, b), defined(op)(x, b))


P = Param("p")
ASKED = {
    "y[n] = sum[c | rank[n,c] < 3](x[n,c])": num(3),
    "y[n] = sum[c | not rank[n,c] >= p](x[n,c])": P,
    "y[n] = sum[c | p >= rank[n,c]](x[n,c])": P + num(1),
    "y[n] = sum[c | rank[n,c] == 2](x[n,c]) + sum[c | rank[n,c] != 2](x[n,c]**2)": num(2) + num(1),
    "y[n] = sum[c | rank[n,c] < 3](x[n,c]) + sum[c | rank[n,c] < 2](x[n,c])": None,
    "y[n] = sum[c | rank[n,c] < 3](x[n,c]*rank[n,c])": None,
    "y[n] = sum[c | rank[n,c] < c](x[n,c])": None,
    "y[n] = sum[c | rank[n,c] < 3](x[n,rank[n,c]])": None,
}


@pytest.mark.filterwarnings("ignore:parameter p is not used")
@pytest.mark.parametrize(("reader", "asked"), ASKED.items())
def test_how_many_first_ranks_an_operation_distinguishes(reader, asked):
    op = derive.parse(f"op f(x[n,c]; p=2) -> y\n{LEAST}{reader}")
    assert asked_ranks(op) == ({} if asked is None else {"rank": asked})


@pytest.mark.parametrize("sign", "<>")
def test_what_is_not_compared_with_itself_is_no_rank(sign):
    equation = f"r[k] = sum[l]([x[l,l] {sign} x[k,l] or x[l,l] == x[k,l] and l < k])"
    op = derive.parse(f"op f(x[k,l]) -> r\n{equation}")
    assert "_ranks(" not in derive.source(op, standalone=False)
    x, at = torch.tensor([[0.0, 1.0, 2.0], [3.0, 1.0, 1.0], [2.0, 0.0, 2.0]]), torch.arange(3)
    own = x.diagonal()
    before = own < x if sign == "<" else own > x
    counted = (before | (own == x) & (at < at[:, None])).sum(1)
    assert derive.load(op)(x).equal(counted)


@pytest.mark.parametrize("bound", [-torch.inf, -1, 0.5, 3, torch.inf, torch.nan])
def test_any_number_of_first_ranks_may_be_asked(bound):
    f = derive.load(
        derive.parse(f"op f(x[n,c]; p) -> y\n{LEAST}y[n] = sum[c | rank[n,c] < p](x[n,c])")
    )
    x = given("whole", (3, 60), 1)
    places = torch.arange(60, dtype=x.dtype)
    torch.testing.assert_close(f(x, bound), (x.sort(dim=1).values * (places < bound)).sum(1))
