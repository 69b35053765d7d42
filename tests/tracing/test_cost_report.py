"""What runs derived code, why the rest does not, and what both cost."""

import math
import warnings

import pytest
import torch
from torch import nn

import derive
from derive.tracing.cost_report import CallCost, Fact, Report, Row, cost_of, dearer


class Chooses(nn.Module):
    """It cannot be read: what runs depends on a value."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.LayerNorm(4)

    def forward(self, x):
        x = self.first(x)
        while x.sum() > 10:
            x = x / 2
        return self.second(x)


class Whole(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 4), nn.Tanh())
        self.choice = Chooses()
        self.unused = nn.Linear(2, 2)

    def forward(self, x):
        return self.choice(self.body(x).abs())


def test_each_module_is_a_row_down_to_what_runs_derived_code():
    found = derive.report(derive.replace(Whole()), torch.rand(5, 3))
    rows = {row.name: row for row in found.rows}
    assert list(rows) == [
        *("model", "model.body", "model.choice", "model.choice.first", "model.choice.second"),
        "model.unused",
    ]
    derived = {name for name, row in rows.items() if row.derived}
    assert derived == {"model.body", "model.choice.first", "model.choice.second"}
    assert "depends on the values of a tensor" in rows["model.choice"].reason
    assert rows["model.body"].reason == "with the 2 modules inside of it"
    assert rows["model.unused"].reason == "not called yet"
    assert rows["model.body"].fact.plain.saved > 0


def test_what_is_dearer_says_by_how_much():
    def product(x, w):
        return torch.tanh(x @ w)

    small = derive.differentiate(product)
    x, w = torch.rand(256, 300), torch.rand(300, 400)
    small(x, w)
    assert [row.derived for row in derive.report(small).rows] == [True]
    never = derive.differentiate(product, time=1e-9)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        (row,) = derive.report(never, x, w).rows
    assert not row.derived and "times the time" in row.reason and len(said) == 1


def test_kernels_are_counted_as_they_run():
    """Tensors without data would take the way of a graph."""
    for module in (nn.LayerNorm(256), nn.GELU(), nn.Softmax(-1)):
        (row,) = derive.report(derive.replace(module), torch.rand(2048, 256)).rows
        assert row.derived and row.fact.ours.seconds <= 1.2 * row.fact.plain.seconds


def test_the_table_is_aligned():
    fact = Fact("", CallCost(1.0, 8, 2000), CallCost(0.5, 8, 1000))
    rows = Row("model", "Whole", Fact("no reading")), Row("model.body", "Linear", fact, 2)
    assert str(Report(rows)).splitlines() == [
        "module      kind    runs     time  saved         why",
        "model       Whole   plain                        no reading",
        "model.body  Linear  derived  0.50  2 kB -> 1 kB  with the 2 modules inside of it",
    ]


def test_a_plain_module_is_an_error():
    with pytest.raises(derive.DeriveError, match=r"neither a model that derive\.replace returned"):
        derive.report(nn.Linear(2, 2))


def test_what_is_counted():
    def layer(x, w):
        return torch.tanh(x @ w)

    cost = cost_of(layer, {"x": torch.randn(6, 5), "w": torch.randn(5, 4)})
    # One product forward and two backward, each of 2*6*5*4 flops; tanh keeps its result.
    assert cost.seconds > 3 * 240 / 5e10
    assert cost.largest == 4 * 30
    assert cost.saved == 4 * (30 + 20 + 24)
    slope = cost_of(lambda x: torch.func.grad(lambda t: t.exp().sum())(x), {"x": torch.randn(3)})
    assert slope.saved is None and slope.dtypes == (torch.float32,)


def test_a_cost_that_depends_on_values_is_not_known():
    assert cost_of(lambda x: x[x > 0].sum() if x.sum() > 0 else x, {"x": torch.randn(3)}) is None


def test_what_is_dearer():
    plain = CallCost(1e-3, 10**7, 10**7)
    assert dearer(CallCost(1.1e-3, 10**7, 10**7), plain, 1.2, 1.5) == ""
    assert dearer(CallCost(3e-3, 10**7, 10**7), plain, 1.2, 1.5) == "3 times the time"
    assert "a tensor of 40 MB" in dearer(CallCost(1e-3, 4 * 10**7, 10**7), plain, 1.2, 1.5)
    # Of little, a multiple is little.
    assert dearer(CallCost(9e-5, 10**6, 10**6), CallCost(1e-5, 1000, 1000), 1.2, 1.5) == ""


def experts(x, best, w):
    y = torch.zeros_like(x)
    for k in range(3):
        y[best == k] = x[best == k] @ w[k]
    return y


def test_what_each_selection_does_is_counted_with_data():
    """Each row goes through one matrix, and in derived code through all."""
    x, w = torch.rand(600, 90), torch.rand(3, 90, 90)
    best = torch.arange(600) % 3
    with pytest.warns(derive.DeriveWarning, match="would take 2.* times the time"):
        derive.differentiate(experts)(x, best, w)


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


def test_a_subscript_costs_as_much_as_the_view_that_it_is():
    """Without data, a subscript also asks for the device of its tensor."""
    x = torch.randn(5, 3)
    subscript, view = cost_of(lambda x: x[:, 1].exp(), {"x": x}), cost_of(_selected, {"x": x})
    assert subscript == view


def _selected(x):
    return x.select(1, 1).exp()


def test_an_unrolled_loop_of_another_length_warns_once():
    def scan(a, b):
        h, found = torch.zeros_like(b[:, 0]), []
        for t in range(b.shape[1]):
            h = a[:, t] * h + b[:, t]
            found.append(h)
        return torch.stack(found, 1)

    f = derive.differentiate(scan)
    f(torch.randn(2, 3), torch.randn(2, 3))
    with pytest.warns(derive.DeriveWarning, match="scan runs unchanged on arguments") as said:
        for n in (4, 5, 4):
            a, b = torch.randn(2, n), torch.randn(2, n)
            torch.testing.assert_close(f(a, b), scan(a, b))
    assert len(said) == 1
