"""Runs the rows: first what all ways compute, then what they cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from kit.race import liger
from kit.race.agree import hold
from kit.race.measure import passes, peak, saved
from kit.race.minimal import MINIMAL
from kit.race.row import COMPOSITE, OURS, TORCH, Function, Row
from kit.race.step import Step
from kit.race.timing import race

Entry = dict[str, Any]
"""What is found of a row at a size, as it stands in the file of results."""

COMPILED = " compiled"
MINIMAL_WAY = "minimal"
OTHERS = (TORCH, COMPOSITE, liger.LIGER)
"""The ways that ours is held against."""


@dataclass(frozen=True)
class Plan:
    """How rows are run."""

    rounds: int = 20
    compiled: bool = False
    forward_only: bool = False
    dtype: torch.dtype = torch.float32
    device: str = "cpu"

    def run(self, step: Step, function: Function) -> Callable[[], object]:
        """The call that is timed and measured."""
        return partial(step.forward if self.forward_only else step.whole, function)


def entry(row: Row, size: str, plan: Plan) -> Entry:
    """The row at a size: seconds, bytes and passes of each way."""
    eager = row.ways()
    hold(row, size, eager, torch.float64, plan.device)
    if plan.device != "cpu" and row.name in (others := liger.ways()):
        eager[liger.LIGER] = others[row.name]
    ways = dict(eager)
    if plan.compiled:
        torch.compiler.reset()
        ways |= {name + COMPILED: torch.compile(f, dynamic=False) for name, f in eager.items()}
    hold(row, size, ways, plan.dtype, plan.device)
    step = Step.of(row, size, plan.dtype, plan.device)
    runs = {name: plan.run(step, function) for name, function in ways.items()}
    seconds = race(runs, plan.rounds, plan.device)
    found = {}
    for name, function in ways.items():
        found[name] = {
            "seconds": seconds[name],
            "saved": asdict(saved(step, function)),
            "peak": peak(runs[name], plan.device),
        }
        if name in eager:
            found[name]["passes"] = passes(runs[name], step.full())
    return {
        "name": row.name,
        "size": size,
        "sizes": list(row.sizes()[size]),
        "ways": found,
        "ratios": ratios(seconds),
    }


def ratios(seconds: dict[str, float]) -> dict[str, float]:
    """The time of ours over that of each other way, compiled over compiled."""
    found = {}
    for name, time in seconds.items():
        ours = OURS + COMPILED if name.endswith(COMPILED) else OURS
        if name != ours:
            found[name] = seconds[ours] / time
    return found


def has_minimal(row: Row) -> bool:
    return row.name in MINIMAL and not row.label


def call(row: Row, plan: Plan) -> Entry:
    """What a call costs on 8x8: beside a minimal Function, and without a graph beside torch's."""
    ways = row.ways()
    both = {OURS: ways[OURS], MINIMAL_WAY: MINIMAL[row.name]}
    plain = {name: ways[name] for name in (OURS, TORCH) if name in ways}
    for dtype in (torch.float64, plan.dtype):
        hold(row, "small", both | plain, dtype, plan.device)
    step = Step.of(row, "small", plan.dtype, plan.device)
    timed = partial(race, rounds=plan.rounds, device=plan.device)
    with_graph = timed({name: partial(step.whole, f) for name, f in both.items()})
    with torch.no_grad():
        without = timed({name: partial(step.forward, f) for name, f in plain.items()})
    return {
        "name": row.name,
        "seconds": with_graph,
        "seconds without a graph": without,
        "ratios": ratios(with_graph),
        "ratios without a graph": ratios(without),
    }
