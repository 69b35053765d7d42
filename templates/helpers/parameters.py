"""Conversions of parameters; read as text by ``derive.module.runtime``."""

import torch


def integer(value, name):
    """Convert a parameter to an integer; raise TypeError for a bool or a tensor."""
    if type(value) is int:
        return value
    wrong = isinstance(value, bool) or hasattr(value, "__len__")
    if wrong or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be an integer, not {value!r:.60}")
    return value if isinstance(value, torch.SymInt) else value.__index__()


def number(value, name):
    """Convert a parameter to a number; raise TypeError for a bool or a tensor."""
    if type(value) is float:
        return value
    if type(value) is not int:
        wrong = isinstance(value, bool) or hasattr(value, "__len__")
        if wrong or not hasattr(value, "__float__"):
            raise TypeError(f"{name} must be a number, not {value!r:.60}")
    symbolic = isinstance(value, (torch.SymInt, torch.SymFloat))
    try:
        return value if symbolic else float(value)
    except OverflowError:
        raise ValueError(f"{name} is too large for float64 (above 1.8e308)") from None


def nonnegative(at):
    """The position at; raise IndexError for a negative one, which does not wrap."""
    if at < 0:
        raise IndexError(f"position {at} is out of range: it is negative")
    return at
