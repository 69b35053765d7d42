"""What people train with today is read, and is the function: value and gradients."""

import sys
import warnings
from pathlib import Path

import pytest
import torch
from kit.each import some_now

import derive

sys.path.insert(0, str(Path(__file__).parents[1] / "corpus"))
from functions import CORPUS
from trained_ import TRAINED

OFTEN = (
    "grouped_query_attention partial_rotary linear_attention attention_with_sinks packed_heads "
    "swiglu dora dpo kto grpo distilled focal nt_xent supervised_contrastive gatv2 ciou ssim"
).split()

SINGLE = {"gemma_rms_norm"}
"""They compute in single precision themselves."""


@pytest.mark.parametrize(
    "name", some_now(sorted(TRAINED, key=lambda name: name not in OFTEN), len(OFTEN), 3)
)
def test_what_is_read_is_the_function(name):
    function, example = CORPUS[f"trained.{name}"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        op = derive.read_torch(function, *example())
    if isinstance(function, torch.nn.Module):
        return
    given = [
        t.double().requires_grad_() if isinstance(t, torch.Tensor) and t.is_floating_point() else t
        for t in example()
    ]
    leaves = [t for t in given if isinstance(t, torch.Tensor) and t.requires_grad]
    value, wanted = derive.load(op)(*given), function(*given)
    near = {"rtol": 1e-5, "atol": 1e-6} if name in SINGLE else {}
    torch.testing.assert_close(value, wanted, check_dtype=False, **near)
    found, plain = (
        torch.autograd.grad(y.sin().sum(), leaves, allow_unused=True) for y in (value, wanted)
    )
    for a, b, leaf in zip(found, plain, leaves, strict=True):
        zero = torch.zeros_like(leaf)
        torch.testing.assert_close(zero if a is None else a, zero if b is None else b, **near)
