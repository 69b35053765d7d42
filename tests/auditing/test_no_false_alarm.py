"""No right Function of the corpus is blamed, from one example call and without a hint.

CI takes one of six at a time, ``-m long`` all.
"""

import pytest
import torch
from kit.each import some_now
from kit.right import RIGHT

import derive


@pytest.mark.parametrize("entry", some_now(RIGHT, len(RIGHT), 11), ids=lambda entry: entry.name)
def test_a_right_function_is_right(entry):
    torch.manual_seed(0)
    report = derive.audit(entry.function, *entry.example(), reference=entry.reference)
    assert report.verdict == "right", str(report)
