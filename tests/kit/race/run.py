"""Runs the rows: first what all ways compute, then what they cost."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from types import FunctionType
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


@dataclass(frozen=True)
class Ready:
    """A job that only has to be timed: its ways agree, and are compiled where that is asked."""

    times: Callable[[], Entry]
    left: tuple[str, ...] = ()
    """Why another package's way, or a compiled one, is left out."""


def entry(row: Row, size: str, plan: Plan) -> Ready:
    """The row at a size: seconds, bytes and passes of each way."""
    eager = row.ways()
    hold(row, size, eager, torch.float64, plan.device)
    more = {}
    if plan.device != "cpu" and row.name in (others := liger.ways()):
        more[liger.LIGER] = others[row.name]
    if plan.compiled:
        more |= {name + COMPILED: compiled(f) for name, f in eager.items()}
    ways, left = dict(eager), []
    hold(row, size, eager, plan.dtype, plan.device)
    for name, function in more.items():
        try:
            hold(row, size, {OURS: eager[OURS], name: function}, plan.dtype, plan.device)
            ways[name] = function
        except Exception as error:  # of its kernels, of torch.compile, or another value
            left.append(f"{row.name}, {size}: {name} is left out: {error}")
    return Ready(partial(measured, row, size, ways, plan), tuple(left))


def compiled(function: Function) -> Function:
    """The function under torch.compile, apart from others that share its code.

    torch.compile keeps what it compiled by code object, and tries one after the other.
    """

    def whole(*tensors: Any) -> Any:
        return function(*tensors)

    code, closure = whole.__code__.replace(), whole.__closure__
    return torch.compile(FunctionType(code, globals(), closure=closure), dynamic=False)


def measured(row: Row, size: str, ways: Mapping[str, Function], plan: Plan) -> Entry:
    step = Step.of(row, size, plan.dtype, plan.device)
    runs = {name: plan.run(step, function) for name, function in ways.items()}
    seconds = race(runs, plan.rounds, plan.device)
    found: dict[str, Any] = {name: {"seconds": seconds[name]} for name in ways}
    for name, function in ways.items():
        if not name.endswith(COMPILED):
            found[name] |= {
                "saved": asdict(saved(step, function)),
                "peak": peak(runs[name], plan.device),
                "passes": passes(runs[name], step.full()),
            }
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
        if name != ours and ours in seconds:
            found[name] = seconds[ours] / time
    return found


def has_minimal(row: Row) -> bool:
    return row.name in MINIMAL and not row.label


def call(row: Row, plan: Plan) -> Ready:
    """What a call costs on 8x8: beside a minimal Function, and without a graph beside torch's."""
    ways = row.ways()
    both = {OURS: ways[OURS], MINIMAL_WAY: MINIMAL[row.name]}
    plain = {name: ways[name] for name in (OURS, TORCH) if name in ways}
    for dtype in (torch.float64, plan.dtype):
        hold(row, "small", both | plain, dtype, plan.device)
    return Ready(partial(called, row, both, plain, plan))


def called(
    row: Row, both: Mapping[str, Function], plain: Mapping[str, Function], plan: Plan
) -> Entry:
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
