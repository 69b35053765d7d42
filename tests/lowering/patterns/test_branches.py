"""Pairs of brackets of which just one holds are one choice."""

from __future__ import annotations

import numpy as np
import pytest
from kit.lowered import assert_code, assert_right

HEAD = "op f(x[i], z[i], m[i]: bool) -> y\n"
FORMS = {
    "y[i] = [m[i]]*x[i] + [not m[i]]*z[i]": "_where(m, x, z)",
    "y[i] = [not m[i]]*x[i] + z[i]*[m[i]]*x[i]": None,
    "y[i] = x[i]*([m[i]] + 3*[not m[i]])*z[i]": None,
}


@pytest.mark.parametrize("line", FORMS)
def test_one_choice(line):
    if FORMS[line]:
        assert_code(HEAD + line, [f"y = {FORMS[line]}"])
    assert_right(HEAD + line, m=np.array([True, False, True]))


def test_brackets_that_may_both_hold_are_two():
    line = "y[i] = [m[i]]*x[i] + [z[i] < 1]*z[i]"
    assert_right(HEAD + line, m=np.array([True, False, True]))
