"""The forward that is written over what it made itself, and where it is not."""

import pytest
import torch

import derive

READ_AGAIN = (
    "op f(x[i,j], w[i,j]) -> y; u[i,j] = 1 - x[i,j]; y[i,j] = exp(3*u[i,j])*w[i,j] + u[i,j]"
)


def body(text: str) -> str:
    source = derive.source(derive.parse(text))
    return source.partition("def forward(")[2].partition("def setup_context")[0]


def test_what_is_read_again_stays():
    assert "reuse.add(reuse.mul(reuse.exp(3 * u), w), u)" in body(READ_AGAIN)


def test_a_forward_with_nothing_to_save_reuses_nothing():
    assert "reuse" not in body("op f(x[i,j]) -> y; y[i,j] = exp(x[i,j])")


@pytest.mark.parametrize(
    "text, has",
    [
        ("op f(x[i,j], b[j]=0) -> y; y[i,j] = exp(x[i,j]) + b[j]", False),
        ("op f(x[i,j], b[j]=0) -> y; y[i,j] = exp(2*x[i,j]) + b[j]", True),
        ("op f(x[i,k], w[k,j], b[j]=0) -> y; y[i,j] = sum[k](x[i,k]*w[k,j]) + b[j]", True),
        ("op f(x[i,j]; a) -> y; y[i,j] = where(a > 0, exp(-x[i,j]), x[i,j])", False),
    ],
)
def test_a_branch_that_may_be_skipped_is_no_reason_unless_it_fuses_a_product(text, has):
    assert ("reuse" in body(text) or "torch.addmm(" in body(text)) is has


@pytest.mark.parametrize("way", ["plain", "no_grad", "vmap", "forward mode", "parameters"])
def test_each_way_has_the_value_and_changes_no_argument(way):
    f = derive.load(derive.parse(READ_AGAIN))
    x, w = (torch.randn(3, 5, dtype=torch.float64, requires_grad=True) for _ in range(2))
    kept = x.detach().clone(), w.detach().clone()
    want = (3 * (1 - kept[0])).exp() * kept[1] + 1 - kept[0]
    if way == "plain":
        found = f(x, w)
    elif way == "no_grad":
        with torch.no_grad():
            found = f(x, w)
    elif way == "vmap":
        found = torch.func.vmap(lambda w: f(x[:2], w))(torch.stack([w[:2], w[:2]]))[1]
        want = want[:2]
    elif way == "forward mode":
        found, _ = torch.func.jvp(lambda x: f(x, w.detach()), (x.detach(),), (kept[1],))
    else:
        found = f(torch.nn.Parameter(x.detach()), torch.nn.Parameter(w.detach()))
    torch.testing.assert_close(found.detach(), want)
    assert torch.equal(x, kept[0])
    assert torch.equal(w, kept[1])
