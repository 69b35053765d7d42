"""What runs derived code, why the rest does not, and what both cost."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

import derive
from derive.tracing.cost_report import CallCost, Fact, Report, Row


class Chooses(nn.Module):
    """It cannot be read: what runs depends on a value."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.LayerNorm(4)

    def forward(self, x):
        return self.second(self.first(x)) if x.sum() > 0 else self.first(x)


class Whole(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 4), nn.Tanh())
        self.choice = Chooses()
        self.unused = nn.Linear(2, 2)

    def forward(self, x):
        return self.choice(self.body(x).abs())


def test_each_module_is_a_row_down_to_what_runs_derived_code():
    model = derive.replace(Whole())
    found = derive.report(model, torch.rand(5, 3))
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
        (row,) = derive.report(derive.replace(module), torch.rand(4096, 256)).rows
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
