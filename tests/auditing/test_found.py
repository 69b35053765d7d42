"""The mistakes of the guide's page ``found``: each is found and named, its correction is right."""

from __future__ import annotations

import sys
from pathlib import Path
from runpy import run_module

import pytest
from kit.command import derive

from derive.examples import found

pytest.importorskip("torch")

MISTAKES = {
    "nll_loss:NLLLoss": ("wrong", "chosen stands where kept should in line"),
    "linear_cross_entropy:LinearCrossEntropy": ("wrong", "b  wrong: it is 0"),
    "linear:Linear": ("wrong", "weight  wrong: it is transposed"),
    "weighted_sum:WeightedSum": ("wrong", "grad_y[c] = G·Σ[c2] target[c2]"),
    "split_heads:SplitHeads": ("fragile", "the cotangent is not contiguous"),
    "encoder:Encoder": ("wrong", "the term Σₖ [acts[n,k] > 0]·G_acts[n,k]·weight[k,c] is missing"),
    "l2_wrap:L2Wrap": ("wrong", "logits  wrong: the factor G is missing"),
    "swish:Swish": ("wrong", "a second call of backward gives another gradient"),
    "var_mean:VarMean": ("wrong", "the factor 1/n is too many in line"),
    "artanh:Artanh": ("wrong", "the factor [−0.99999 ≤ x[c] ≤ 0.99999] is missing"),
}
PLACES = [place.partition(":")[0] for place in MISTAKES]
"""The files with a mistake."""


@pytest.fixture
def report(tmp_path, monkeypatch):
    """The audit of a class of a file, as the page runs it."""
    before = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)  # what the command adds to the path goes with it
    run_module(f"{found.__name__}.__main__", run_name="__main__")

    def audit(place):
        file = f"found/{place.partition(':')[0]}.py"
        options = ["--reference", f"{file}:intended"] if "l2_wrap" in file else []
        named = f"{file}:{place.partition(':')[2]}"
        return derive("audit", named, "--example", file, *options, cwd=tmp_path)

    yield audit
    for name in set(sys.modules) - before:
        if name in PLACES:
            del sys.modules[name]


@pytest.mark.parametrize("place", MISTAKES)
def test_the_mistake_is_found_and_named(report, place):
    verdict, named = MISTAKES[place]
    made = report(place)
    assert made.stdout.startswith(f"{place.partition(':')[2]}: {verdict}\n")
    assert made.returncode == (verdict == "wrong")
    assert named in made.stdout


@pytest.mark.parametrize("name", PLACES)
def test_the_correction_is_right(report, name):
    made = report(f"{name}:Corrected")
    assert made.stdout.startswith("Corrected: right\n"), made.stdout


def test_a_second_derivative_that_is_0_is_a_remark(report):
    made = report("artanh:Masked")
    assert made.stdout.startswith("Masked: right\n")
    assert "the second backward is silently 0" in made.stdout
    assert "second order: right" in report("artanh:Corrected").stdout


def test_the_batch_norm_of_the_page_is_right(report):
    assert report("batch_norm:BatchNorm").stdout.startswith("BatchNorm: right\n")


def test_every_file_is_on_the_page():
    folder = Path(found.__path__[0])
    names = {path.stem for path in folder.glob("[a-z]*.py")}
    assert names == {*PLACES, "batch_norm"}
    page = (folder.parents[1] / "docs" / "found.md").read_text(encoding="utf-8")
    assert all(f"found/{name}.py" in page for name in names)
