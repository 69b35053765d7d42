"""What is written like a function and is none: what was probably meant is said."""

from __future__ import annotations

import pytest

from derive import SpecError, parse


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("y[i] = max(x[i], z[i])", "maximum"),
        ("y[i] = softplsu(x[i])", "softplus"),
        ("y[i] = exp[k](x[k])", "exp takes no indices"),
        ("y[i] = smu[k](x[k])", "sum"),
    ],
)
def test_the_nearest_thing_is_named(text, says):
    with pytest.raises(SpecError, match=says):
        parse(text)
