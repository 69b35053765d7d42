"""Reductions that are no sums: torch's own, of what the condition takes."""

from __future__ import annotations

import numpy as np
import pytest
from kit.lowered import assert_right

from derive import parse, source

FORMS = {
    "y[i] = max[j](x[i,j])": ".max(1).values",
    "y[j] = amin[i](x[i,j])": ".amin(0)",
    "y[i] = logsumexp[j](x[i,j])": "torch.logsumexp(x, 1)",
    "y[i] = prod[j](x[i,j])": ".prod(1)",
}


@pytest.mark.parametrize("line", FORMS)
def test_a_reduction_is_a_call(line):
    text = f"op f(x[i,j]) -> y\n{line}"
    forward = source(parse(text)).partition("_forward(")[2].partition("class ")[0]
    assert FORMS[line] in forward
    assert_right(text)


@pytest.mark.parametrize("kind", ["max", "min", "amax", "logsumexp", "prod", "mean"])
def test_a_condition_leaves_elements_out(kind):
    m = np.array([[True, False], [True, True], [False, True]])
    assert_right(f"op f(x[i,j], m[i,j]: bool) -> y\ny[i] = {kind}[j | m[i,j]](x[i,j])", m=m)
