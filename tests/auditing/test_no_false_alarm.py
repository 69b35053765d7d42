"""No right Function of the corpus is blamed, from one example call and without a hint.

CI takes one of six at a time, ``-m long`` all.
"""

import pytest
import torch
from kit.each import some_now
from kit.right import RIGHT

import derive

FRAGILE = {"FixedPoint": "where weight is 10 times as large"}
"""What is no derivative of its forward elsewhere: the steps of a fixed point have not ended."""


@pytest.mark.parametrize("entry", some_now(RIGHT, len(RIGHT), 11), ids=lambda entry: entry.name)
def test_a_right_function_is_right(entry):
    torch.manual_seed(0)
    report = derive.audit(entry.function, *entry.example(), reference=entry.reference)
    where = FRAGILE.get(entry.name, "")
    assert report.verdict == ("fragile" if where else "right"), str(report)
    assert where in str(report)
