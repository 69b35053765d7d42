"""No right Function of the corpus is blamed, from one example call and without a hint.

CI takes one of three, ``-m long`` all.
"""

import pytest
import torch
from kit.right import RIGHT

import derive


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(entry, id=entry.name, marks=[pytest.mark.long] if n % 3 else [])
        for n, entry in enumerate(RIGHT)
    ],
)
def test_a_right_function_is_right(entry):
    torch.manual_seed(0)
    report = derive.audit(entry.function, *entry.example(), reference=entry.reference)
    assert report.verdict == "right", str(report)
