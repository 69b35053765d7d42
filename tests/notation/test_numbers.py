"""The value of what is made of numbers alone, and the refusal of what is none."""

from __future__ import annotations

import pytest

from derive import SpecError, parse


@pytest.mark.parametrize("text", ["log(-1)", "log(0)", "sqrt(-2)", "asin(2)"])
def test_what_is_no_number_is_refused(text):
    with pytest.raises(SpecError):
        parse(f"y[i] = x[i] + {text}")
