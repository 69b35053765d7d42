"""Follow an operation's code by the types of its values, and note each step with its flops."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from derive.algebra.poly import Poly
from derive.program.dataflow import Statement
from derive.program.shape_rules import Shape, TensorType
from derive.program.torch_ops import TorchOp
from derive.program.types import Types


@dataclass(frozen=True)
class ComputedTensor(TensorType):
    """The type of a tensor, and the number of the step that computed it."""

    step: int = 0


@dataclass(frozen=True)
class Step:
    """One operation other than a view: the shapes of its operands and its result, and its flops."""

    line: str
    reads: tuple[Shape, ...]
    result: Shape
    flops: Poly
    contracts: bool


class Trace(Types):
    """Types of values by name, and the steps so far."""

    def __init__(self, letters: Mapping[Poly, Poly], given: Mapping[str, Any]) -> None:
        super().__init__(letters, given)
        self.steps: list[Step] = []
        self._line = ""

    def run(self, lines: Iterable[Statement]) -> None:
        """Take in the types and the steps of these lines."""
        for line in lines:
            self._line = line.name
            super().run([line])

    def computed(
        self,
        op: TorchOp,
        made: TensorType,
        reads: tuple[Shape, ...],
        args: Sequence[Any],
        named: Mapping[str, Any],
    ) -> TensorType:
        for own, flops in op.before(*args, **named):
            self.steps.append(Step(self._line, (), own, flops, False))
        flops = op.flops(made.shape, *args, **named)
        self.steps.append(Step(self._line, reads, made.shape, flops, op.contracts))
        return ComputedTensor(made.shape, made.kind, len(self.steps) - 1)
