"""IEEE 754 arithmetic where Python raises; read as text by ``derive.module.runtime``."""

import math

import torch


def ieee_divide(above, below):
    """above / below; infinite or nan where below is 0, as in IEEE 754."""
    return above / below if below else above * math.copysign(math.inf, below)


def ieee_call(function, *numbers):
    """A function of Python's math module; torch's float64 result where that raises."""
    try:
        return function(*numbers)
    except (ValueError, OverflowError):
        tensors = (torch.tensor(n, dtype=torch.float64, device="cpu") for n in numbers)
        return float(getattr(torch, function.__name__)(*tensors))
