"""What a call and its backward cost, counted on tensors without data.

    time = flops/rate + bytes/bandwidth

Both a function and what is derived of it are counted in the same way, operation by operation, so
that one can be held against the other before either is run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_FLOPS = 5e10
"""Of a core, in a second."""
_BYTES = 1e10
_SMALL = 1e-4
"""A call of so many seconds is never dear."""
_LITTLE = 1 << 22
"""Nor is a tensor of so many bytes."""


@dataclass(frozen=True)
class Cost:
    """Of a call with its backward; ``largest`` and ``saved`` are bytes."""

    seconds: float
    largest: int
    saved: int


def cost_of(function: Callable[..., Any], tensors: Mapping[str, Any]) -> Cost | None:
    """The cost; None where it depends on values."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.utils._pytree import tree_leaves

    kept: dict[int, int] = {}

    def pack(t: Any) -> Any:
        storage = t.untyped_storage()
        kept[storage._cdata] = storage.nbytes()
        return t

    try:
        mode = FakeTensorMode(allow_non_fake_inputs=True)
        given = {n: mode.from_tensor(t.detach()) for n, t in tensors.items()}
        with mode, torch.enable_grad():
            leaves = [t.requires_grad_() for t in given.values() if t.is_floating_point()]
            with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
                with counting() as counted:
                    made = function(**given)
                    outputs = [
                        t
                        for t in tree_leaves(made)
                        if isinstance(t, torch.Tensor) and t.requires_grad
                    ]
                    ones = [torch.ones_like(t) for t in outputs]
                    if outputs:
                        torch.autograd.grad(outputs, leaves, ones, allow_unused=True)
    except Exception:
        return None
    seconds = counted.flops / _FLOPS + counted.moved / _BYTES
    return Cost(seconds, counted.largest, sum(kept.values()))


def dearer(ours: Cost, plain: Cost, time: float, memory: float) -> str:
    """What ours takes more of than so many times the plain function's; '' where nothing."""
    found = []
    if ours.seconds > max(time * plain.seconds, _SMALL):
        found.append(f"{ours.seconds / max(plain.seconds, 1e-9):.3g} times the time")
    for what, a, b in (
        ("a tensor of", ours.largest, plain.largest),
        ("saved tensors of", ours.saved, plain.saved),
    ):
        if a > max(memory * b, _LITTLE):
            found.append(f"{what} {size_of(a)}, where the function has {size_of(b)}")
    return " and ".join(found)


def size_of(count: int) -> str:
    """So many bytes in a unit."""
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= factor:
            return f"{count / factor:.3g} {unit}"
    return f"{count} bytes"


def counting() -> Any:
    """A context that counts what operations do."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves
    from torch.utils.flop_counter import flop_registry

    def tensors(x: Any) -> Sequence[Any]:
        return [t for t in tree_leaves(x) if isinstance(t, torch.Tensor)]

    class Counting(TorchDispatchMode):  # type: ignore[no-untyped-call]
        flops = 0
        moved = 0
        largest = 0

        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False  # nothing is compiled here, and to skip it takes seconds of imports

        def __torch_dispatch__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            made = function(*args, **(kwargs or {}))
            given, results = tensors((args, kwargs)), tensors(made)
            formula = flop_registry.get(function._overloadpacket)
            if formula is not None:
                self.flops += formula(*args, **(kwargs or {}), out_val=made)
            held = {t.untyped_storage()._cdata for t in given}
            new = [t for t in results if t.untyped_storage()._cdata not in held]
            if new or function._schema.is_mutable:
                self.moved += sum(t.numel() * t.element_size() for t in (*given, *results))
            for t in new:
                self.largest = max(self.largest, t.untyped_storage().nbytes())
            return made

    return Counting()  # type: ignore[no-untyped-call]
