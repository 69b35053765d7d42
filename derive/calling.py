"""One call of a generated function on a sample, and what comes of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from derive.samples import Sample

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "Function",
    "array",
    "called",
    "cotangents_of",
    "differs",
    "inputs_of",
    "pulled_back",
    "smooth",
    "tensors_of",
]

Function = Callable[..., Any]


def tensors_of(made: Sample, dtype: str = "float64") -> dict[str, Tensor | None]:
    """The inputs as torch tensors; floating-point ones require a gradient."""
    import torch

    found: dict[str, Tensor | None] = {}
    for name, value in made.tensors.items():
        tensor = None if value is None else torch.from_numpy(value.copy())
        if tensor is not None and tensor.is_floating_point():
            tensor = tensor.to(getattr(torch, dtype)).requires_grad_()
        found[name] = tensor
    return found


def called(function: Function, made: Sample, tensors: Sequence[Tensor | None]) -> list[Tensor]:
    given = {n: v for n, v in made.parameters.items() if v is not None}
    result = function(*tensors, **given)
    return list(result) if isinstance(result, tuple) else [result]


def smooth(outputs: Sequence[Tensor], made: Sample) -> list[Tensor]:
    """The finite elements of the floating-point outputs."""
    import torch

    kept = []
    for output, value in zip(outputs, made.outputs.values(), strict=True):
        if output.is_floating_point():
            finite = np.isfinite(value)
            kept.append(output if finite.all() else output[torch.from_numpy(finite)])
    return kept


def inputs_of(tensors: dict[str, Tensor | None]) -> list[str]:
    return [name for name, t in tensors.items() if t is not None and t.requires_grad]


def cotangents_of(made: Sample) -> dict[str, Any]:
    """One for each floating-point output; 0 where the output is infinite."""
    rng = np.random.default_rng(7)
    return {
        name: np.where(np.isfinite(value), rng.uniform(0.5, 1.5, value.shape), 0)
        for name, value in made.outputs.items()
        if value.dtype == np.float64
    }


def pulled_back(
    function: Function, made: Sample, tensors: dict[str, Tensor | None]
) -> dict[str, Tensor]:
    """The gradient of Sum outputs*cotangents for each input that requires one."""
    import torch

    outputs = called(function, made, list(tensors.values()))
    cotangents = cotangents_of(made)
    pairs = [
        (output, torch.from_numpy(cotangents[name]).to(output.dtype))
        for name, output in zip(made.outputs, outputs, strict=True)
        if output.requires_grad
    ]
    names = inputs_of(tensors)
    inputs = [t for t in tensors.values() if t is not None and t.requires_grad]
    if not pairs or not inputs:
        return {name: torch.zeros_like(t) for name, t in zip(names, inputs, strict=True)}
    found = torch.autograd.grad(
        [o for o, _ in pairs], inputs, [c for _, c in pairs], materialize_grads=True
    )
    return dict(zip(names, found, strict=True))


def differs(name: str, got: Any, want: Any, rtol: float, atol: float) -> str:
    """What is wrong, or nothing."""
    got, want = np.asarray(got), np.asarray(want)
    if got.shape != want.shape:
        return f"{name} has shape {got.shape}, not {want.shape}"
    if np.allclose(got, want, rtol, atol, equal_nan=True):
        return ""
    with np.errstate(invalid="ignore"):
        gap = np.abs(np.where(got == want, 0, got.astype(float) - want.astype(float)))
    at = np.unravel_index(np.argmax(np.nan_to_num(gap, nan=np.inf)), gap.shape)
    place = ", ".join(str(int(n)) for n in at)
    return f"{name}[{place}] is {got[at]:.9g}, not {want[at]:.9g}"


def array(t: Tensor) -> Any:
    return t.detach().double().numpy() if t.is_floating_point() else t.detach().numpy()
