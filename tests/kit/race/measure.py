"""What a way keeps, allocates and touches: counted, so the same on every machine."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from kit.race.row import Function
from kit.race.step import Step
from torch import Tensor
from torch.autograd import (
    ProfilerConfig,
    ProfilerState,
    _disable_profiler_legacy,
    _enable_profiler_legacy,
)
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

MAKES_NO_VALUES = ("empty", "new_empty", "_unsafe_view")
"""Kernels that allocate or look anew; those that are views say so themselves."""


@dataclass(frozen=True)
class Saved:
    """Bytes that the forward keeps for the backward, each storage counted once."""

    inputs: int
    """Of tensors that were given: the person holds them anyway."""
    outputs: int
    """Of what comes out, which most often is the input of the next operation."""
    others: int
    """Of what lives for the backward alone."""


def saved(step: Step, function: Function) -> Saved:
    kept: dict[int, Tensor] = {}

    def pack(x: Tensor) -> Tensor:
        kept[address(x)] = x
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        result = step.forward(function)
    inputs = {address(x) for x in step.tensors if x is not None}
    outputs = {address(x) for x in result} - inputs
    size = {at: x.untyped_storage().nbytes() for at, x in kept.items()}
    return Saved(
        inputs=sum(n for at, n in size.items() if at in inputs),
        outputs=sum(n for at, n in size.items() if at in outputs),
        others=sum(n for at, n in size.items() if at not in inputs | outputs),
    )


def address(x: Tensor) -> int:
    return x.untyped_storage().data_ptr()


def peak(run: Callable[[], object], device: str = "cpu") -> int:
    """The most bytes that are allocated at one time, results included.

    As the allocator sees it: what a kernel allocates inside of it counts too.
    """
    if device != "cpu":
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        run()
        return torch.cuda.max_memory_allocated(device) - before
    experimental = torch._C._profiler._ExperimentalConfig()
    flags = {"shapes": False, "memory": True, "stack": False, "flops": False, "modules": False}
    _enable_profiler_legacy(ProfilerConfig(ProfilerState.CPU, *flags.values(), experimental))
    try:
        run()
    finally:
        threads = _disable_profiler_legacy()
    changes = (e.cpu_memory_usage() for t in threads for e in t if e.kind() == "memory_alloc")
    return max(accumulate(changes), default=0)


class Passes(TorchDispatchMode):
    """Counts the kernels that read or write a tensor of at least so many values."""

    def __init__(self, full: int) -> None:
        super().__init__()
        self.full = full
        self.kernels: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        result = func(*args, **(kwargs or {}))
        if not (func.is_view or func._schema.name.partition("::")[2].startswith(MAKES_NO_VALUES)):
            if any(n >= self.full for n in counts(args, kwargs, result)):
                self.kernels.append(str(func))
        return result


def counts(*trees: object) -> Iterator[int]:
    """The numbers of values that the tensors hold, an expanded one as many as are there."""
    for x in tree_leaves(trees):
        if isinstance(x, Tensor):
            yield min(x.numel(), x.untyped_storage().nbytes() // x.element_size())


def passes(run: Callable[[], object], full: int) -> list[str]:
    """The kernels that touch a full tensor, in order."""
    with Passes(full) as mode:
        run()
    return mode.kernels
