"""Derived code that would be dearer than the function does not run."""

import math

import pytest
import torch

import derive
from derive.tracing.cost_report import CallCost, cost_of, dearer


def test_what_is_counted():
    def layer(x, w):
        return torch.tanh(x @ w)

    cost = cost_of(layer, {"x": torch.randn(6, 5), "w": torch.randn(5, 4)})
    # One product forward and two backward, each of 2*6*5*4 flops; tanh keeps its result.
    assert cost.seconds > 3 * 240 / 5e10
    assert cost.largest == 4 * 30
    assert cost.saved == 4 * (30 + 20 + 24)


def test_a_cost_that_depends_on_values_is_not_known():
    assert cost_of(lambda x: x[x > 0].sum() if x.sum() > 0 else x, {"x": torch.randn(3)}) is None


def test_what_is_dearer():
    plain = CallCost(1e-3, 10**7, 10**7)
    assert dearer(CallCost(1.1e-3, 10**7, 10**7), plain, 1.2, 1.5) == ""
    assert dearer(CallCost(3e-3, 10**7, 10**7), plain, 1.2, 1.5) == "3 times the time"
    assert "a tensor of 40 MB" in dearer(CallCost(1e-3, 4 * 10**7, 10**7), plain, 1.2, 1.5)
    # Of little, a multiple is little.
    assert dearer(CallCost(9e-5, 10**6, 10**6), CallCost(1e-5, 1000, 1000), 1.2, 1.5) == ""


def spectrum(x, w):
    """Windows, each multiplied by the matrices of a discrete Fourier transform."""
    n = w.shape[0]
    frames = x.unfold(-1, n, 4) * w
    t = torch.arange(n, dtype=x.dtype)
    angle = 2 * math.pi * t[:, None] * t[None] / n
    return ((frames @ angle.cos()) ** 2 + (frames @ angle.sin()) ** 2 + 1e-9).log().mean()


def test_the_function_runs_where_derived_code_is_dearer():
    x, w = torch.randn(3, 2000), torch.randn(64, requires_grad=True)
    with pytest.warns(derive.DeriveWarning, match=r"runs unchanged.*derived code would take"):
        y = derive.differentiate(spectrum)(x, w)
    torch.testing.assert_close(y, spectrum(x, w))
    assert "Spectrum" not in type(y.grad_fn).__name__


def test_what_curves_and_what_scatters_takes_longer_than_what_adds():
    x, at = torch.randn(300, 70), torch.randint(0, 70, (300, 70))
    added, curved, moved = (
        cost_of(f, {"x": x}).seconds
        for f in (lambda x: x + 1, torch.tanh, lambda x: x.gather(1, at))
    )
    assert curved > 1.2 * added and moved > 1.2 * added
    # Derived code calls from Python what autograd calls from C++.
    assert cost_of(torch.tanh, {"x": x}, derived=True).seconds > curved


def test_a_function_that_was_cheaper_is_counted_again_for_far_larger_arguments():
    """Calls take most of the time of a short sum, and bytes of a long one."""

    def loss(x, y):
        for _ in range(30):
            y = y * x.sigmoid() + 1
        return y.sum(-1)

    f = derive.differentiate(loss, time=0.01)
    with pytest.warns(derive.DeriveWarning, match="loss runs unchanged") as said:
        f(torch.randn(3, 7, requires_grad=True), torch.randn(3, 7))
        (small,) = f.known.facts.values()
        f(torch.randn(3, 20, requires_grad=True), torch.randn(3, 20))
        assert list(f.known.facts.values()) == [small]
        f(torch.randn(50, 70, requires_grad=True), torch.randn(50, 70))
    (large,) = f.known.facts.values()
    assert small.refused and large.plain.largest > small.plain.largest
    assert len(said) == 1


def test_sums_by_place_are_counted_without_their_places():
    def placed(x, at, prior):
        return (prior + torch.zeros_like(prior).index_add(0, at, x * x)).tanh()

    f, at = derive.differentiate(placed), torch.tensor([0, 1, 2, 1, 0, 2])
    f(torch.randn(6, 3), at, torch.randn(4, 3))
    (fact,) = f.known.facts.values()
    assert fact.ours is not None and fact.ours.largest <= 2 * fact.plain.largest


def test_an_unrolled_loop_of_another_length_warns_once():
    def scan(a, b):
        h, found = torch.zeros_like(b[:, 0]), []
        for t in range(b.shape[1]):
            h = a[:, t] * h + b[:, t]
            found.append(h)
        return torch.stack(found, 1)

    f = derive.differentiate(scan)
    f(torch.randn(2, 3), torch.randn(2, 3))
    with pytest.warns(derive.DeriveWarning, match="scan runs unchanged at sizes") as said:
        for n in (4, 5, 4):
            a, b = torch.randn(2, n), torch.randn(2, n)
            torch.testing.assert_close(f(a, b), scan(a, b))
    assert len(said) == 1
