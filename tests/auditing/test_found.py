"""The mistakes of the guide's page ``found``: the correction of each is right."""

import sys
from pathlib import Path
from runpy import run_module

import pytest
from kit.command import derive

from derive.examples import found

pytest.importorskip("torch")

PLACES = (
    *("nll_loss", "linear_cross_entropy", "linear", "weighted_sum", "split_heads", "encoder"),
    *("l2_wrap", "swish", "var_mean", "artanh"),
)
"""The files with a mistake; what the audit says of each stands on the page, which a test runs."""


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


@pytest.mark.parametrize("name", PLACES)
def test_the_correction_is_right(report, name):
    made = report(f"{name}:Corrected")
    assert made.stdout.startswith("Corrected: right\n"), made.stdout


def test_the_second_derivative_of_a_correction_is_right(report):
    assert "second order: right" in report("artanh:Corrected").stdout


def test_every_file_is_on_the_page():
    folder = Path(found.__path__[0])
    names = {path.stem for path in folder.glob("[a-z]*.py")}
    assert names == {*PLACES, "batch_norm"}
    page = (folder.parents[1] / "docs" / "found.md").read_text(encoding="utf-8")
    assert all(f"$ derive audit found/{name}.py:" in page for name in names)
