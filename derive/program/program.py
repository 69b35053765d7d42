"""The code of one operation: what runs forward, what is saved, and what runs backward."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from derive.program.cse import Line
from derive.program.mixed_precision import PLAIN, Precision


@dataclass(frozen=True)
class Saved:
    """A tensor kept for backward, and the inputs whose gradients read it."""

    name: str
    needs: tuple[str, ...]


@dataclass(frozen=True)
class BackwardLine:
    """A line, and the inputs whose gradients need it."""

    line: Line
    needs: tuple[str, ...]


@dataclass(frozen=True)
class Recognised:
    """A pattern that made code of an equation."""

    equation: str
    pattern: str
    states: str


@dataclass(frozen=True)
class Program:
    """Forward and backward of one operation (one option of a choice)."""

    inputs: tuple[str, ...]
    parameters: tuple[str, ...]
    outputs: tuple[str, ...]
    forward: tuple[Line, ...]
    differentiable: tuple[str, ...]
    """The inputs that have a gradient."""
    cotangents: tuple[tuple[str, str | None], ...]
    """(output, the name of its cotangent or None where it has none), in order."""
    saved: tuple[Saved, ...]
    kept_parameters: tuple[str, ...]
    kept_shapes: tuple[str, ...]
    """Inputs of which the backward needs the shape alone."""
    backward: tuple[BackwardLine, ...]
    gradients: Mapping[str, str]
    """input -> the name of its gradient in the backward."""
    setup: tuple[Line, ...] = ()
    """What is computed from the inputs when the backward is prepared."""
    kept_groups: tuple[str, ...] = ()
    """The names of ``setup`` that the backward reads."""
    recognised: tuple[Recognised, ...] = ()
    """The patterns of the forward, then those of the backward."""
    forward_precision: Precision = PLAIN
    backward_precision: Precision = PLAIN
    first_order: tuple[BackwardLine, ...] = ()
    """What runs backward where no graph of it is wanted, if that is anything else."""
    first_order_precision: Precision = PLAIN
    statistics: tuple[str, ...] = ()
    """What the forward gives beside the outputs, for the backward alone."""
    pulled: Mapping[str, str] = field(default_factory=dict)
    """A statistic through which a graph leads -> the name of its cotangent, which may be None."""
    composed: tuple[Line, ...] = ()
    """The forward that torch itself differentiates, if that is another."""
    composed_precision: Precision = PLAIN
    forward_in_place: tuple[Line, ...] = ()
    """The forward where what it makes may be changed, if that is another."""
    rearranges: bool = False
    """Whether each output is a view of an input, as it is with such operations of torch."""

    @property
    def float_statistics(self) -> tuple[str, ...]:
        """The statistics of a floating-point dtype."""
        precision = self.first_order_precision if self.first_order else self.backward_precision
        taken_in = {*precision.narrow, *precision.broad}
        return tuple(name for name in self.statistics if name in taken_in)


@dataclass(frozen=True)
class Tangent:
    """Forward mode of one operation: the tangents of its outputs from those of its inputs."""

    given: Mapping[str, str]
    """input -> the name of its tangent, for inputs that an output depends on."""
    lines: tuple[Line, ...]
    results: Mapping[str, str]
    """output -> the name of its tangent, for those that have one."""
    precision: Precision
