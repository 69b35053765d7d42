"""The table of the corpus says how far each function came."""

import sys
from pathlib import Path

import pytest
import torch

from derive.tracing import validate

sys.path.insert(0, str(Path(__file__).parents[1] / "corpus"))
from functions import CORPUS
from run import STAGES, cells, entry, markdown, specs, totals


def came_of(function, monkeypatch, *example):
    monkeypatch.setitem(CORPUS, "f", (function, lambda: example))
    row = entry("f")
    return row, [stage for stage in STAGES if row[stage]]


def at_a_value(x):
    while x.sum() > 1:
        x = x / 2
    return x


@pytest.mark.parametrize(
    ("function", "example", "stages"),
    [
        (at_a_value, (torch.randn(3),), []),
        (torch.linalg.cholesky, (torch.eye(3),), ["traced"]),
        (torch.outer, (torch.randn(3), torch.randn(4)), list(STAGES)),
    ],
)
def test_the_stages_of_a_function(function, example, stages, monkeypatch):
    row, came = came_of(function, monkeypatch, *example)
    assert came == stages
    assert not row["wrong"] and bool(row["reason"]) == (len(stages) < len(STAGES))


def test_a_spec_that_is_another_function_is_wrong(monkeypatch):
    monkeypatch.setattr(validate, "_differs", lambda *given: "value of output 1")
    row, came = came_of(torch.exp, monkeypatch, torch.randn(3))
    assert came == ["traced", "read", "derived"] and row["wrong"]
    assert "WRONG" in cells(row) and "1 WRONG" in totals([row])
    assert totals([row]) in markdown([row])


def test_what_is_no_error_of_derive_is_a_crash(monkeypatch):
    def crash(*given):
        raise KeyError("k")

    monkeypatch.setattr(validate, "_held", crash)
    row, _ = came_of(torch.exp, monkeypatch, torch.randn(3))
    assert (
        not row["right"]
        and "an error of derive's own" in row["reason"]
        and "KeyError" in row["reason"]
    )


def test_the_functions_of_torch_have_their_specs():
    assert len(CORPUS.keys() & specs().keys()) > 75
