"""A budget of lines: what the project may weigh, by folder.

A limit is lowered when a change leaves fewer lines, and raised only with a reason in the commit.
"""

import pytest
from kit.command import ROOT
from kit.each import each_row

LIMITS = {
    "derive": 89_900,
    "derive/algebra": 4_700,
    "derive/auditing": 7_300,
    "derive/blocks": 600,
    "derive/calculus": 7_900,
    "derive/catalog": 1_700,
    "derive/check": 4_500,
    "derive/command": 3_500,
    "derive/cost": 500,
    "derive/examples": 1_100,
    "derive/kernels": 3_000,
    "derive/linting": 2_200,
    "derive/loaded": 100,
    "derive/lowering": 11_500,
    "derive/module": 5_900,
    "derive/notation": 8_000,
    "derive/program": 7_600,
    "derive/reports": 1_700,
    "derive/show": 2_300,
    "derive/site": 2_100,
    "derive/tracing": 12_800,
    "templates": 2_200,
    "tests": 72_200,
}
"""Lines of Python and of specs, blank ones and docstrings included, rounded up to hundreds."""


def lines(folder: str) -> int:
    every = (p for kind in ("*.py", "*.derive") for p in (ROOT / folder).rglob(kind))
    files = (p for p in every if "generated" not in p.parts[:-1])
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files)


@each_row("folder", LIMITS)
def test_a_folder_has_no_more_lines_than_its_limit(folder):
    assert lines(folder) <= LIMITS[folder]


@each_row("folder", LIMITS)
def test_a_limit_is_lowered_when_lines_go(folder):
    assert lines(folder) > LIMITS[folder] - 400


def test_every_folder_has_a_limit():
    there = {p.name for p in (ROOT / "derive").iterdir() if any(p.glob("*.py"))}
    assert {f"derive/{name}" for name in there} | {"derive", "tests", "templates"} == set(LIMITS)


@pytest.mark.slow
def test_each_name_of_a_slow_test_is_that_of_a_test(stale_names):
    assert not stale_names, "rename them in tests/slow.txt, or delete them"
