"""The jobs of a race, one by one in a process, or compared and compiled in several."""

import faulthandler
import gc
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from threading import BrokenBarrierError
from typing import Any, NamedTuple

import torch
from kit.race.agree import DifferError
from kit.race.row import Row
from kit.race.rows import EXTRA, ROWS
from kit.race.run import Entry, Plan, Ready, call, entry, has_minimal

CALL = "a call on 8x8"

PATIENCE = 120
"""The seconds that a process waits for the others before all that are ready take their times: what
hangs costs only the rows of its own process."""


class Job(NamedTuple):
    """A row at one of its sizes, or a single call."""

    row: Row
    size: str

    def __str__(self) -> str:
        return f"{self.row.name}, {self.size}"


class Outcome(NamedTuple):
    """What a job found, if its ways agree, and what went wrong."""

    entry: Entry | None
    wrong: tuple[str, ...]


Start = Callable[[], Outcome]


def jobs_of(rows: Sequence[Row], size: str) -> list[Job]:
    asked = ("small", "large") if size == "both" else (size,)
    found = [Job(row, s) for row in rows for s in row.sizes() if row.label or s in asked]
    return found + [Job(row, CALL) for row in rows if "small" in asked and has_minimal(row)]


def one_by_one(jobs: Sequence[Job], plan: Plan) -> Iterator[tuple[int, Outcome]]:
    """Each job is timed as soon as it is prepared. After a failure the race goes on."""
    begun = time.monotonic()
    for n, job in enumerate(jobs):
        yield n, prepared(job, plan, n + 1, len(jobs), begun)()


def side_by_side(jobs: Sequence[Job], plan: Plan, processes: int) -> Iterator[tuple[int, Outcome]]:
    """All jobs are prepared, in several processes; then one process after the other times its own.

    The rows must be those of the race, since a process finds them by their numbers.
    """
    rows = (*ROWS, *EXTRA)
    context = multiprocessing.get_context("spawn")
    processes = min(processes, len(jobs))
    barrier, turn = context.Barrier(processes), context.Lock()
    numbers = [(n, rows.index(job.row), job.size) for n, job in enumerate(jobs)]
    parts = [numbers[n::processes] for n in range(processes)]
    with context.Pool(processes, hold_turns, (barrier, turn)) as pool:
        for found in pool.imap_unordered(partial(part_of_race, plan=plan), parts):
            yield from found


turns: list[Any] = []
"""The barrier and the lock of a process of ``side_by_side``."""


def hold_turns(*given: Any) -> None:
    turns[:] = given


def part_of_race(numbers: Sequence[tuple[int, int, str]], plan: Plan) -> list[tuple[int, Outcome]]:
    """The outcomes of a process of ``side_by_side``; each process gets one part."""
    torch.set_num_threads(1)
    barrier, turn = turns
    rows = (*ROWS, *EXTRA)
    begun = time.monotonic()
    faulthandler.dump_traceback_later(PATIENCE)
    starts = [
        (at, prepared(Job(rows[place], size), plan, n, len(numbers), begun))
        for n, (at, place, size) in enumerate(numbers, 1)
    ]
    try:
        barrier.wait(PATIENCE)
    except BrokenBarrierError:
        progress("a process is not ready; the others take their times without it")
    faulthandler.cancel_dump_traceback_later()
    gc.freeze()  # what compiling left, which each race would search for garbage
    with turn:
        return [(at, start()) for at, start in starts]


def prepared(job: Job, plan: Plan, n: int, count: int, begun: float) -> Start:
    """Compare and compile; what is left takes the times."""
    progress(f"[{n}/{count}, {time.monotonic() - begun:.0f} s] {job}")
    try:
        ready = call(job.row, plan) if job.size == CALL else entry(job.row, job.size, plan)
        start, wrong = partial(timed, job, ready), ready.left
    except DifferError as error:
        wrong = (str(error),)
        start = partial(Outcome, None, wrong)
    except Exception as error:  # of torch, and of what it lacks in another version
        wrong = (f"{job}: {error}",)
        start = partial(Outcome, None, wrong)
    if plan.device != "cpu":
        torch.accelerator.empty_cache()
    for message in wrong:
        progress(message.partition("\n")[0])
    return start


def timed(job: Job, ready: Ready) -> Outcome:
    try:
        return Outcome(ready.times(), ready.left)
    except RuntimeError as error:
        return Outcome(None, (*ready.left, f"{job}: {error}"))


def progress(message: str) -> None:
    print(f"race: {message}", file=sys.stderr, flush=True)
