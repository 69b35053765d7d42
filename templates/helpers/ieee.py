"""Numbers by IEEE 754, where Python has an error: read as text by ``derive.module.templating``."""

import math

import torch


def _quotient(above, below):
    """above / below, which is infinite where below alone is 0."""
    return above / below if below else above * math.copysign(math.inf, below)


def _ieee(function, *numbers):
    """A function of Python's math, where that is no error; else what torch says of it."""
    try:
        return function(*numbers)
    except (ValueError, OverflowError):
        tensors = (torch.tensor(n, dtype=torch.float64) for n in numbers)
        return float(getattr(torch, function.__name__)(*tensors))
