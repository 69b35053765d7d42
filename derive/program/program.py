"""A lowered operation: its forward, its saved tensors, and its backward."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from derive.program.cse import Line
from derive.program.mixed_precision import PLAIN, Precision


@dataclass(frozen=True)
class Saved:
    """A tensor saved for the backward, and the inputs whose gradients read it."""

    name: str
    needs: tuple[str, ...]


@dataclass(frozen=True)
class Recognised:
    """A pattern that lowered a part of an equation."""

    equation: str
    pattern: str
    states: str


@dataclass(frozen=True)
class Logged:
    """A pass that changed the lines of a body."""

    name: str
    states: str
    before: tuple[Line, ...]
    after: tuple[Line, ...]


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
    """(output, the name of its cotangent, or None), in order."""
    saved: tuple[Saved, ...]
    kept_parameters: tuple[str, ...]
    kept_shapes: tuple[str, ...]
    """Inputs of which the backward needs only the shape."""
    backward: tuple[Line, ...]
    gradients: Mapping[str, str]
    """input -> the name of its gradient in the backward."""
    setup: tuple[Line, ...] = ()
    """Lines computed from the inputs when the backward is prepared."""
    kept_groups: tuple[str, ...] = ()
    """The names of ``setup`` that the backward reads."""
    recognised: tuple[Recognised, ...] = ()
    """The patterns of the forward, then those of the backward."""
    forward_precision: Precision = PLAIN
    backward_precision: Precision = PLAIN
    first_order: tuple[Line, ...] = ()
    """The backward for use without a graph, if it has other calls."""
    first_order_precision: Precision = PLAIN
    statistics: tuple[str, ...] = ()
    """Additional results of the forward, for the backward only."""
    pulled: Mapping[str, str] = field(default_factory=dict)
    """A differentiated statistic -> the name of its cotangent, which may be None."""
    composed: tuple[Line, ...] = ()
    """The forward that torch itself differentiates, if it differs."""
    composed_precision: Precision = PLAIN
    log: Mapping[str, tuple[Logged, ...]] = field(default_factory=dict)
    """body -> its passes."""
    rearranges: bool = False
    """True if each output is a view of an input, as for torch's view operations."""

    @property
    def first_order_gradients(self) -> Mapping[str, str]:
        """input -> the name of its gradient, for the gradients that ``first_order`` computes."""
        made = {name for x in self.first_order for name in x.name.split(", ")}
        return {t: name for t, name in self.gradients.items() if name in made}

    def in_bodies(self, change: Callable[[Sequence[Line]], Iterable[Line]]) -> Program:
        return replace(
            self,
            forward=tuple(change(self.forward)),
            composed=tuple(change(self.composed)),
            backward=tuple(change(self.backward)),
            first_order=tuple(change(self.first_order)),
        )


@dataclass(frozen=True)
class Tangent:
    """Forward mode of one operation: the tangents of its outputs from those of its inputs."""

    given: Mapping[str, str]
    """input -> the name of its tangent, for inputs that an output depends on."""
    lines: tuple[Line, ...]
    results: Mapping[str, str]
    """output -> the name of its tangent, for those that have one."""
    precision: Precision
    log: tuple[Logged, ...] = ()
    """The passes over its lines."""


def with_first_order(program: Program, first: Program) -> Program:
    """Return the program with the backward of ``first`` for use without a graph."""
    statistics = tuple(dict.fromkeys((*first.statistics, *program.statistics)))
    return replace(
        program,
        saved=_merge_saved(program, first, statistics),
        kept_parameters=tuple(
            p for p in program.parameters if p in (*program.kept_parameters, *first.kept_parameters)
        ),
        kept_shapes=tuple(dict.fromkeys((*program.kept_shapes, *first.kept_shapes))),
        setup=tuple({line.name: line for line in (*program.setup, *first.setup)}.values()),
        kept_groups=tuple(dict.fromkeys((*program.kept_groups, *first.kept_groups))),
        recognised=tuple(dict.fromkeys((*program.recognised, *first.recognised))),
        statistics=statistics,
        first_order=first.backward,
        log={**program.log, "first order": first.log.get("backward", ())},
        first_order_precision=first.backward_precision,
    )


def _merge_saved(program: Program, first: Program, statistics: Sequence[str]) -> tuple[Saved, ...]:
    """Return the tensors that either saves, with the gradients that read them in either."""
    needs: dict[str, set[str]] = {}
    for s in (*program.saved, *first.saved):
        needs.setdefault(s.name, set()).update(s.needs)
    order = [n for n in (*program.inputs, *program.outputs, *statistics) if n in needs]
    wanted = {n: tuple(t for t in program.differentiable if t in needs[n]) for n in order}
    return tuple(Saved(n, own) for n, own in wanted.items())
