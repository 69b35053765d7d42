"""Killed at any moment, ``derive generate`` leaves modules of one version, or what is completed."""

from __future__ import annotations

import sys

import pytest
from kills import rounds

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are found by /proc")


def test_a_few_kills(tmp_path):
    found = list(rounds(tmp_path, 5, seed=3))
    assert not any(kind.startswith("mixed") for kind in found)


@pytest.mark.long
def test_many_kills(tmp_path):
    found = list(rounds(tmp_path, 200, seed=0))
    assert len(found) == 200
