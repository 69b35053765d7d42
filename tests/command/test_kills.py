"""Killed at any moment, ``derive generate`` leaves modules of one version, or what is completed."""

import sys

import pytest
from campaigns.kills import rounds

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are found by /proc")


def test_a_few_kills(tmp_path):
    assert len(list(rounds(tmp_path, 3, seed=3))) == 3


@pytest.mark.long
def test_many_kills(tmp_path):
    assert len(list(rounds(tmp_path, 200, seed=0))) == 200
