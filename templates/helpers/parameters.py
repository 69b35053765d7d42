"""What becomes of a parameter of an unusual type: read as text by ``derive.module.templating``."""

import torch


def _integer(value, name):
    """The value of a parameter as an integer, if it is one: no bool, no tensor."""
    wrong = isinstance(value, bool) or hasattr(value, "__len__")
    if wrong or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be an integer, not {value!r:.60}")
    return value if isinstance(value, torch.SymInt) else value.__index__()


def _number(value, name):
    """The value of a parameter as a number, if it is one: no bool, no tensor."""
    if type(value) is not int:
        wrong = isinstance(value, bool) or hasattr(value, "__len__")
        if wrong or not hasattr(value, "__float__"):
            raise TypeError(f"{name} must be a number, not {value!r:.60}")
    symbolic = isinstance(value, (torch.SymInt, torch.SymFloat))
    try:
        return value if symbolic else float(value)
    except OverflowError:
        raise ValueError(f"{name} is beyond float64, above 1.8e308") from None
