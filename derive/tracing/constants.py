"""Constant tensors of a few numbers in a function: torch.tensor([0.299, 0.587, 0.114])."""

from __future__ import annotations

from typing import Any

from derive.errors import DeriveError
from derive.tracing.values import Atom, Position, TracedNode, TracedNumber, TracedValue, apply

MOST = 64
"""Maximum number of elements that are written out."""


def written_out(held: Any, name: str) -> TracedValue:
    """Return a constant tensor as a value: a number, a linear sequence or choices by position."""
    if held.numel() > MOST:
        raise DeriveError(
            f"the function uses a tensor of {held.numel()} numbers that is not an argument "
            f"({name}); pass it as an argument, or make it a parameter or buffer of a module"
        )
    kind = "float" if held.is_floating_point() else "bool" if _is_bool(held) else "int"
    axes = tuple(() if n == 1 else (Atom.new(n),) for n in held.shape)
    atoms = [axis[0] for axis in axes if axis]
    return TracedValue(axes, _element_choice(_decimal_literals(held.squeeze()), atoms), kind)


def _is_bool(held: Any) -> bool:
    import torch

    return bool(held.dtype is torch.bool)


def _decimal_literals(held: Any) -> Any:
    """Return the numbers as literals: the shortest decimals that round to the dtype's values."""
    import numpy as np
    import torch

    if held.requires_grad:
        raise DeriveError(
            "the function uses a tensor that requires a gradient and is not an argument; pass it "
            "as an argument, or derive the module whose parameter it is (derive.read_torch, "
            "derive.replace)"
        )
    if not held.is_floating_point():
        return held.tolist()
    exact = held.dtype in (torch.float32, torch.float64)
    array = (held if exact else held.float()).numpy()
    text = np.array([np.format_float_positional(x) for x in array.ravel()], dtype=object)
    made = [float(x) for x in text]
    whole = [int(x) if x.is_integer() and abs(x) < 2**53 else x for x in made]
    return np.array(whole, dtype=object).reshape(array.shape).tolist()


def _element_choice(numbers: Any, atoms: list[Atom]) -> TracedNode:
    """Return the number at a position, as nested choices."""
    if not atoms:
        return TracedNumber(numbers)
    if (
        len(atoms) == 1
        and len(set(numbers)) > 1
        and (line := _arithmetic_sequence(numbers, atoms[0])) is not None
    ):
        return line
    *first, last = (_element_choice(row, atoms[1:]) for row in numbers)
    made = last
    for n, row in reversed(list(enumerate(first))):
        if row != made:
            made = apply("where", apply("==", Position(atoms[0]), TracedNumber(n)), row, made)
    return made


def _arithmetic_sequence(numbers: list[Any], atom: Atom) -> TracedNode | None:
    """Return start + step*n if the numbers are an arithmetic sequence of integers, else None."""
    if any(isinstance(x, bool) or x != int(x) for x in numbers) or len(numbers) < 3:
        return None
    start, step = numbers[0], numbers[1] - numbers[0]
    if any(x != start + n * step for n, x in enumerate(numbers)):
        return None
    node: TracedNode = Position(atom)
    node = node if step == 1 else apply("*", TracedNumber(int(step)), node)
    return node if start == 0 else apply("+", node, TracedNumber(int(start)))
