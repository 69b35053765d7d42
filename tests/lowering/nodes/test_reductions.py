"""Reductions that are no sums: torch's own, of what the condition takes."""

import numpy as np
import pytest
import torch
from kit.lowered import assert_right

from derive import load, parse, source

FORMS = {
    "y[i] = max[j](x[i,j])": ".max(1)",
    "y[j] = amin[i](x[i,j])": ".amin(0)",
    "y[i] = logsumexp[j](x[i,j])": "torch.logsumexp(x, 1)",
    "y[i] = prod[j](x[i,j])": ".prod(1)",
}


@pytest.mark.parametrize("line", FORMS)
def test_a_reduction_is_a_call(line):
    text = f"op f(x[i,j]) -> y\n{line}"
    forward = source(parse(text)).partition("def forward(")[2].partition("def setup_context")[0]
    assert FORMS[line] in forward
    assert_right(text)


@pytest.mark.parametrize("kind", ["max", "min", "amax", "logsumexp", "prod", "mean"])
def test_a_condition_leaves_elements_out(kind):
    m = np.array([[True, False], [True, True], [False, True]])
    assert_right(f"op f(x[i,j], m[i,j]: bool) -> y\ny[i] = {kind}[j | m[i,j]](x[i,j])", m=m)


@pytest.mark.parametrize("kind", ["max", "amax", "logsumexp"])
def test_what_a_softmax_leaves_out_is_left_out_of_its_largest_too(kind):
    m = np.array([[True, False], [False, False], [False, True]])
    lines = (
        f"h[i] = {kind}[j](log_softmax[j | m[i,j]](x[i,j]) + z[j])",
        "y[i] = where(any[j](m[i,j]), exp(h[i])*h[i], 0)",
    )
    assert_right("\n".join(("op f(x[i,j], z[j], m[i,j]: bool) -> y", *lines)), m=m)


@pytest.mark.parametrize("kind", ["any", "all"])
@pytest.mark.parametrize("condition", ["j < i", "m[i,j]", "m[i,j] and j > 0"])
def test_a_condition_leaves_truth_values_out(kind, condition):
    m = np.array([[True, False], [True, True], [False, True]])
    body = f"where({kind}[j | {condition}](x[i,j] > 0.5), z[i], z[i]**2)"
    assert_right(f"op f(x[i,j], z[i], m[i,j]: bool) -> y\ny[i] = {body}", m=m)


@pytest.mark.parametrize("kind", ["argmax", "argmin"])
def test_a_winner_is_found_as_the_extremum_is(kind):
    """torch's argmax takes up to ten times as long along an axis that is not the last."""
    op = parse(f"op f(x[i,j,k], z[i,k]) -> y\ny[i,k] = z[i,k]*{kind}[j](x[i,j,k])")
    assert f".{kind[3:]}(1).indices" in source(op)
    x = torch.randint(3, (4, 5, 7), generator=torch.Generator().manual_seed(0)).double()
    x[0, 2] = torch.nan
    assert torch.equal(load(op)(x, torch.ones(4, 7).double()), getattr(x, kind)(1).double())
