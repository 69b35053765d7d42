"""The points at which a Function is checked: other sizes, values, layouts and flags.

An axis is resized with all axes of its class: those with the same index letter if the operation is
known, else those of the same size. New values are perturbed old ones, so that they stay in the
domain. Integers remain valid indices, and pairs of inverse permutations remain inverse.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import torch

Classes = Callable[[int, int, int], Hashable]
"""Maps (argument, axis, size) to a size class."""


@dataclass(frozen=True)
class Point:
    """One call: its arguments, and how it differs from the examples ('' if it does not)."""

    args: tuple[Any, ...]
    condition: str = ""


def cast(value: Any, dtype: Any) -> Any:
    """Cast the float tensors of a value, also in lists, tuples and dicts.

    A parameter that already has the dtype is returned as is: the module that owns it reads it.
    """
    if is_float(value):
        if isinstance(value, torch.nn.Parameter) and value.dtype is dtype:
            return value
        return value.to(dtype)
    if type(value) is dict:
        return {key: cast(part, dtype) for key, part in value.items()}
    if type(value) in (list, tuple):
        return type(value)(cast(part, dtype) for part in value)
    return value


def by_size(argument: int, axis: int, size: int) -> Hashable:
    """Put axes of equal size into one class."""
    return size


def is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def is_strided(tensor: Any) -> bool:
    """True if a tensor is strided, not sparse."""
    return bool(tensor.layout is torch.strided)


def is_integer(value: Any) -> bool:
    """True for an integer tensor, not of bools."""
    return is_tensor(value) and not _has_fraction(value)


def is_float(value: Any) -> bool:
    """True for a float tensor, which may have a gradient; a sparse one counts as a constant."""
    return is_tensor(value) and value.is_floating_point() and is_strided(value)


def clone_with_layout(tensor: Any) -> Any:
    """Copy a tensor with its strides: clone() would materialize expanded axes, and close gaps."""
    once = tuple(slice(None, 1) if not step else slice(None) for step in tensor.stride())
    part = tensor.detach()[once]
    if is_plain(part):
        part = torch.empty_strided(
            part.shape, part.stride(), dtype=part.dtype, device=part.device
        ).copy_(part)
        return part.expand(tensor.shape)
    return part.clone().expand(tensor.shape)


def is_plain(tensor: Any) -> bool:
    """True if the tensor is no subclass, whose extra state would be lost."""
    return type(tensor) in (torch.Tensor, torch.nn.Parameter)


def classes(args: Sequence[Any], of: Classes) -> dict[Hashable, int]:
    """Return the size of each class of size above 1, in order of first use."""
    found: dict[Hashable, int] = {}
    for n, arg in enumerate(args):
        if is_tensor(arg):
            for axis, size in enumerate(arg.shape):
                if size > 1:
                    found.setdefault(of(n, axis, size), size)
    return found


def distinct(args: Sequence[Any], of: Classes, least: int) -> dict[Hashable, int]:
    """Return distinct small sizes for the classes, in the order of their old sizes."""
    old = classes(args, of)
    order = sorted(old, key=lambda c: old[c])
    return {c: least + n for n, c in enumerate(order)}


def resized(
    args: Sequence[Any], of: Classes, sizes: Mapping[Hashable, int], seed: int, whole: bool = False
) -> tuple[Any, ...]:
    """Return float64 arguments of these sizes; with ``whole`` their values are small integers."""
    random = torch.Generator().manual_seed(seed)
    least = min([n for n in sizes.values() if n > 0], default=2)
    made: list[Any] = []
    for n, arg in enumerate(args):
        if not is_tensor(arg) or not (is_float(arg) or is_plain(arg)):
            made.append(arg)
            continue
        shape = [sizes.get(of(n, a, s), s) if s > 1 else s for a, s in enumerate(arg.shape)]
        shrunk = any(new < old for new, old in zip(shape, arg.shape, strict=True))
        count = torch.Size(shape).numel()
        flat = arg.detach().cpu().reshape(-1)
        places = torch.randint(max(1, flat.numel()), (count,), generator=random)
        taken = flat[places] if flat.numel() else flat
        if not arg.is_floating_point():
            if shrunk and arg.dtype is not torch.bool and not arg.is_complex():
                taken = torch.where(taken >= 0, taken % least, taken)
        elif whole:
            sign = taken.double().sign()
            values = torch.randint(1, 4, (count,), generator=random).double()
            taken = torch.where(sign < 0, -values, values)
        else:
            moved = 1 + 0.4 * (torch.rand(count, generator=random, dtype=torch.float64) - 0.5)
            taken = taken.double() * moved
            if bool((taken == 0).all()):
                taken = torch.randn(count, generator=random, dtype=torch.float64)
        made.append(taken.reshape(shape).to(arg.device))
    for n, m, axis in inverses(args):
        order = torch.rand(made[n].shape, generator=random).argsort(axis)
        made[n] = order.to(made[n])
        made[m] = order.argsort(axis).to(made[m])
    return tuple(made)


def inverses(args: Sequence[Any]) -> Iterator[tuple[int, int, int]]:
    """Yield (n, m, axis) where arguments n and m are inverse permutations along the axis."""
    whole = [n for n, a in enumerate(args) if is_tensor(a) and a.ndim and not _has_fraction(a)]
    for n, m in combinations(whole, 2):
        a, b = args[n].long(), args[m].long()
        if a.shape != b.shape or bool((a == b).all()):
            continue
        for axis in range(a.ndim):
            if permutes(a, axis) and bool((a.argsort(axis) == b).all()):
                yield n, m, axis
                break


def permutes(tensor: Any, axis: int) -> bool:
    """True if an integer tensor permutes the positions of an axis."""
    size = tensor.shape[axis]
    places = [size if k == axis else 1 for k in range(tensor.ndim)]
    every = torch.arange(size, device=tensor.device).reshape(places)
    return bool((tensor.sort(axis).values == every).all())


def _has_fraction(tensor: Any) -> bool:
    return tensor.is_floating_point() or tensor.is_complex() or "bool" in str(tensor.dtype)


def random_like(tensor: Any, seed: int, whole: bool = False) -> Any:
    """Return a random tensor of this shape and dtype, as a cotangent or a direction."""
    random = torch.Generator().manual_seed(seed)
    shape = (*tensor.shape, 2) if tensor.is_complex() else tensor.shape
    if whole:
        size = torch.randint(1, 4, shape, generator=random)
        sign = 1 - 2 * torch.randint(0, 2, shape, generator=random)
        made = (size * sign).double()
    else:
        made = torch.randn(shape, generator=random, dtype=torch.float64)
    made = torch.view_as_complex(made) if tensor.is_complex() else made
    return made.to(tensor.dtype).to(tensor.device)


def wide_of(tensor: Any) -> Any:
    """Return a tensor in float64, or in complex128 if it is complex."""
    return tensor.cdouble() if tensor.is_complex() else tensor.double()


def inner(a: Any, b: Any) -> float:
    """Return the real part of Σ a·conj(b), in double precision."""
    return float((wide_of(a.detach()) * wide_of(b.detach()).conj()).sum().real)


def layouts(point: Point, names: Sequence[str]) -> Iterator[Point]:
    """Yield the same values with other strides of the float tensors."""
    for way, change in (
        ("transposed in memory", turned),
        ("every other element", _every_other_element),
    ):
        args = tuple(change(a) if is_float(a) else a for a in point.args)
        yield Point(args, f"where inputs are not contiguous ({way})")


def _every_other_element(tensor: Any) -> Any:
    if not tensor.ndim:
        return tensor
    wide = tensor.repeat_interleave(2, dim=-1)
    return wide[..., ::2]


def flags(point: Point, names: Sequence[str], words: Sequence[str]) -> Iterator[Point]:
    """Yield other values of flags, floats and strings; strings are those in the code."""
    for n, arg in enumerate(point.args):
        others: list[Any] = []
        if isinstance(arg, bool):
            others = [not arg]
        elif isinstance(arg, float) and arg not in (0.0, float("inf")):
            others = [arg * 1.5]
        elif isinstance(arg, str):
            others = [word for word in words if word != arg]
        yield from _with_argument_values(point, names, n, others)


def made_up(point: Point, names: Sequence[str]) -> Iterator[Point]:
    """Yield arguments that may be invalid: another integer or word, None for a tensor."""
    for n, arg in enumerate(point.args):
        others: list[Any] = ["other"] if isinstance(arg, str) else []
        if isinstance(arg, int) and not isinstance(arg, bool):
            others = [arg + 1, arg - 1]
        elif isinstance(arg, float) and arg == 0:
            others = [0.1]
        elif is_float(arg) and n:
            others = [None]
        yield from _with_argument_values(point, names, n, others)


def _with_argument_values(
    point: Point, names: Sequence[str], n: int, others: Sequence[Any]
) -> Iterator[Point]:
    for other in others:
        args = (*point.args[:n], other, *point.args[n + 1 :])
        yield Point(args, f"where {names[n]}={other!r}")


def broadcasts(point: Point, names: Sequence[str]) -> Iterator[Point]:
    """Yield the arguments with one axis of one float tensor at size 1."""
    for n, (name, arg) in enumerate(zip(names, point.args, strict=False)):
        if is_float(arg):
            for axis, size in enumerate(arg.shape):
                if size > 1:
                    one = arg.narrow(axis, 0, 1).clone()
                    shape = list(one.shape)
                    args = (*point.args[:n], one, *point.args[n + 1 :])
                    yield Point(args, f"where {name} of shape {shape} broadcasts")


def scaled(
    point: Point, names: Sequence[str], may: Callable[[int], bool], factors: Sequence[float]
) -> Iterator[tuple[str, float, Point]]:
    """Yield large values of each input alone, since a quotient of two is invariant, and of all."""
    every = [n for n, a in enumerate(point.args) if is_float(a) and may(n)]
    for factor in factors:
        groups = [[n] for n in every] if len(every) > 1 else []
        for chosen in (*groups, every) if every else ():
            args = tuple(a * factor if n in chosen else a for n, a in enumerate(point.args))
            who = "inputs are" if len(chosen) == len(every) else f"{names[chosen[0]]} is"
            yield who, factor, Point(args, f"where {who} {factor} times as large")


def special(point: Point, names: Sequence[str], may: Callable[[int], bool]) -> Iterator[Point]:
    """Yield points with ties and zeros."""
    changes: list[tuple[Callable[[Any], Any], str]] = [
        (lambda t: t.round(), "at whole numbers, where values tie"),
        (lambda t: t * 0, "where all inputs are 0"),
    ]
    for change, condition in changes:
        args = tuple(change(a) if is_float(a) and may(n) else a for n, a in enumerate(point.args))
        yield Point(args, condition)


def expanded(tensor: Any) -> Any:
    """Expand the first element to the whole shape, with stride 0."""
    return tensor.reshape(-1)[:1].clone().reshape([1] * tensor.ndim).expand(tensor.shape)


def turned(tensor: Any) -> Any:
    """Return the same tensor with its axes reversed in memory."""
    axes = tuple(reversed(range(tensor.ndim)))
    return tensor.permute(axes).contiguous().permute(axes)
