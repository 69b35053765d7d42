"""[u = t + k] places what is summed: no mask of all u, t and k is made."""

import pytest
from kit.lowered import assert_right

from derive import parse, source

PLACED = "op f(x[t], z[k]; size(s)=size(t)+size(k)) -> y\ny[s] = sum[t,k]([s == t + k]*x[t]*z[k])"
READ = "op f(x[i,u], z[u]) -> y\ny[i] = sum[u]([u == 2*i + 1]*x[i,u]*z[u])"


@pytest.mark.parametrize("text", [PLACED, READ], ids=["placed", "read"])
def test_no_bracket_becomes_a_mask(text):
    forward = source(parse(text)).partition("def forward(")[2]
    assert "==" not in forward.partition("backward(ctx")[0]
    assert_right(text)
