"""Merges two backwards: a differentiable one, and a first-order one for use without a graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from derive.program.program import Program, Recognised, Saved


def with_first_order(program: Program, first: Program) -> Program:
    """Return the program with the backward of ``first`` for use without a graph."""
    return replace(
        program,
        saved=_merge_saved(program, first),
        kept_parameters=tuple(
            p for p in program.parameters if p in (*program.kept_parameters, *first.kept_parameters)
        ),
        kept_shapes=tuple(dict.fromkeys((*program.kept_shapes, *first.kept_shapes))),
        setup=tuple({line.name: line for line in (*program.setup, *first.setup)}.values()),
        kept_groups=tuple(dict.fromkeys((*program.kept_groups, *first.kept_groups))),
        recognised=_merge_recognised(program.recognised, first.recognised),
        statistics=first.statistics,
        first_order=first.backward,
        log={**program.log, "first order": first.log.get("backward", ())},
        first_order_precision=first.backward_precision,
    )


def _merge_saved(program: Program, first: Program) -> tuple[Saved, ...]:
    """Return the tensors that either saves, with the gradients that read them in either."""
    needs: dict[str, set[str]] = {}
    for s in (*program.saved, *first.saved):
        needs.setdefault(s.name, set()).update(s.needs)
    order = (*program.inputs, *program.outputs, *first.statistics)
    return tuple(
        Saved(name, tuple(t for t in program.differentiable if t in needs[name]))
        for name in order
        if name in needs
    )


def _merge_recognised(
    one: Sequence[Recognised], other: Sequence[Recognised]
) -> tuple[Recognised, ...]:
    return tuple(dict.fromkeys((*one, *other)))
