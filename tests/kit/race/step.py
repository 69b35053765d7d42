"""What is run of a way: its forward, or forward and backward."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from kit.race.row import Draw, Function, Row
from torch import Tensor


def outputs(result: Any) -> list[Tensor]:
    """The outputs that have a gradient."""
    found = [result] if isinstance(result, Tensor) else result
    return [y for y in found if y.is_floating_point()]


@dataclass(frozen=True)
class Step:
    """Tensors, those of them that a gradient is wanted of, and the cotangents of the outputs."""

    tensors: list[Tensor | None]
    wanted: list[Tensor]
    cotangents: list[Tensor]

    @classmethod
    def of(
        cls, row: Row, size: str, dtype: torch.dtype = torch.float32, device: str = "cpu"
    ) -> Step:
        tensors = row.tensors(size, dtype, device)
        wanted = [x for x in tensors if x is not None and x.requires_grad]
        draw = Draw(seed=1, device=device)
        with torch.no_grad():
            given = outputs(next(iter(row.ways().values()))(*tensors))
        return cls(tensors, wanted, [draw.normal(*y.shape).to(dtype) for y in given])

    def forward(self, function: Function) -> list[Tensor]:
        return outputs(function(*self.tensors))

    def whole(self, function: Function) -> tuple[Tensor, ...]:
        """The gradients of the tensors that want one."""
        return torch.autograd.grad(self.forward(function), self.wanted, self.cotangents)

    def full(self) -> int:
        """The number of values of the greatest tensor that goes in or comes out."""
        return max(x.numel() for x in (*self.tensors, *self.cotangents) if x is not None)
