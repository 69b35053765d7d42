"""The campaign that runs generated modules on a device."""

import pytest
import torch
from campaigns.device import main, on


def test_a_call_is_computed_on_the_device():
    seen = []

    def double(x, *, scale):
        seen.append(x.device.type)
        return torch.zeros(3), scale * x

    with pytest.raises(NotImplementedError, match="meta"):
        on("meta", double)(torch.ones(3), scale=2)
    assert seen == ["meta"]
    zeros, twice = on("cpu", double)(torch.ones(3), scale=2)
    assert twice.tolist() == [2, 2, 2] and not zeros.any()


def test_the_checks_of_an_operation_pass_here(capsys):
    assert main(["--device", "cpu", "--only", "swiglu", "--columns", "value,gradient"]) == 0
    assert "1 operations on cpu: 0 failures" in capsys.readouterr().out
    assert main(["--device", "meta", "--only", "swiglu", "--columns", "value"]) == 1
    assert "[1/1] swiglu\n  value, typical: NotImplementedError" in capsys.readouterr().out
