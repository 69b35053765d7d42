"""Race the generated functions against torch's own operations and against plain autograd.

    python tests/campaigns race --out FOLDER
    python tests/campaigns race --only 'softmax' --only '*_norm' --size large --out FOLDER
    python tests/campaigns race --compiled --out FOLDER    # also each under torch.compile
    python tests/campaigns race --forward --out FOLDER     # time the forward alone
    python tests/campaigns race --dtype bfloat16 --out FOLDER
    python tests/campaigns race --device cuda --size huge --compiled --jobs 12 --out FOLDER
    python tests/campaigns race --extra --out FOLDER       # also the long rows
    python tests/campaigns race --redraw FOLDER            # draw the charts again, run nothing

All implementations of an operation run interleaved in one process, on one thread, in one dtype,
with a pause between samples. The result is the ratio of the least times of forward and backward; it
depends on the machine. On a GPU a sample ends when its kernels have run, operations of Liger-Kernel
take part if its package is installed, and the size huge, most often 16384 x 1024, fills the card.
Three counts depend on no machine: the bytes saved for the backward, the peak of allocated bytes,
and the kernels that touch a full tensor. If an implementation differs from derive in value or
gradient, its operation is not timed, and the command ends with 1. What is compiled, and
Liger-Kernel's, is left out alone.

With --jobs, that many processes compare and compile side by side. Then one after the other takes
its times, while the others wait.

FOLDER gets results.json, table.md, and charts. race-SIZE.png has all operations, and
race-SIZE-forty.png has 40 of them. Compiled code has charts of its own, race-SIZE-compiled.png and
race-SIZE-compiled-forty.png. derive/docs/race.png is race-large.png of the last full run, and
derive/docs/race-forty.png is race-large-forty.png.
"""

import argparse
import json
import platform
import sys
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch
from kit.race import chart, report
from kit.race.jobs import CALL, Job, Outcome, jobs_of, one_by_one, progress, side_by_side
from kit.race.row import Row
from kit.race.rows import EXTRA, ROWS
from kit.race.run import Entry, Plan
from rich.console import Console
from rich.table import Table

SIZES = ("small", "large", "huge")
DTYPES = ("float32", "bfloat16")

RESULTS = "results.json"


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("--out", type=Path, metavar="FOLDER", help="write the results here")
    target.add_argument(
        "--redraw",
        type=Path,
        metavar="FOLDER",
        help=f"draw the charts of FOLDER/{RESULTS} again, without a race; takes no other option",
    )
    parser.add_argument("--only", action="append", metavar="NAME", help="a name or pattern")
    parser.add_argument("--size", choices=(*SIZES, "both"), default="both", help="both: not huge")
    parser.add_argument("--rounds", type=int, default=Plan.rounds)
    parser.add_argument("--compiled", action="store_true", help="also each under torch.compile")
    parser.add_argument("--forward", action="store_true", help="time the forward alone")
    parser.add_argument("--dtype", choices=DTYPES, default="float32", help="of all tensors")
    parser.add_argument("--device", default="cpu", help="of all tensors: cpu or cuda")
    parser.add_argument("--extra", action="store_true", help="also the long rows")
    parser.add_argument("--jobs", type=int, default=1, help="processes that compare and compile")
    given = parser.parse_args(arguments)
    if given.redraw is not None:
        for name in "only size rounds compiled forward dtype device extra jobs".split():
            if getattr(given, name) != parser.get_default(name):
                parser.error(f"--redraw takes no other option, so not --{name}")
        try:
            given.results = json.loads((given.redraw / RESULTS).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            parser.error(f"cannot read {given.redraw / RESULTS}: {error}")
        if not isinstance(given.results, dict) or "entries" not in given.results:
            parser.error(f"{given.redraw / RESULTS} has no results of a race")
        return given
    if given.device not in ("cpu", "cuda"):
        parser.error(f"--device is cpu or cuda, not {given.device}")
    if given.device == "cuda" and not torch.cuda.is_available():
        parser.error("torch finds no CUDA device here")
    for name in ("rounds", "jobs"):
        if getattr(given, name) < 1:
            parser.error(f"--{name} must be at least 1")
    given.rows = chosen((*ROWS, *EXTRA) if given.extra else ROWS, given.only)
    if not given.rows:
        parser.error(f"no operation of the race is named {' or '.join(given.only)}")
    return given


def chosen(rows: tuple[Row, ...], patterns: list[str] | None) -> list[Row]:
    """The rows whose name matches one of the patterns, or all rows without patterns."""
    if patterns is None:
        return list(rows)
    return [row for row in rows if any(fnmatchcase(row.name, p) for p in patterns)]


def run(jobs: list[Job], plan: Plan, processes: int) -> tuple[list[Entry], list[Entry], list[str]]:
    """The entries of the jobs at a size, the entries of single calls, and the failures."""
    what = "forward" if plan.forward_only else "forward and backward"
    modes = "eager and compiled code" if plan.compiled else "eager code"
    dtype = str(plan.dtype).removeprefix("torch.")
    progress(
        f"{len(jobs)} rows, {modes}, {dtype}. Steps of each row: compare values and gradients,"
    )
    progress(f"time {what} in {plan.rounds} rounds, count saved bytes, peak and kernels.")
    found = one_by_one(jobs, plan) if processes == 1 else side_by_side(jobs, plan, processes)
    done: dict[int, Outcome] = {}
    wrong = []
    try:
        for n, outcome in found:
            done[n] = outcome
    except KeyboardInterrupt:
        wrong.append(f"interrupted: {len(jobs) - len(done)} of {len(jobs)} jobs are not done")
    entries, calls = list[Entry](), list[Entry]()
    for n, outcome in sorted(done.items()):
        wrong += outcome.wrong
        if outcome.entry is not None:
            (calls if jobs[n].size == CALL else entries).append(outcome.entry)
    return entries, calls, wrong


def write(out: Path, entries: list[Entry], calls: list[Entry], plan: Plan) -> None:
    """Write the results as JSON, as a table in markdown, and as charts of each size."""
    results = {
        "torch": torch.__version__,
        "device": plan.device,
        "processor": processor(plan.device),
        "threads": torch.get_num_threads(),
        "dtype": str(plan.dtype).removeprefix("torch."),
        "timed": "forward" if plan.forward_only else "forward and backward",
        "rounds": plan.rounds,
        "entries": entries,
        "calls": calls,
    }
    out.mkdir(parents=True, exist_ok=True)
    (out / RESULTS).write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    tables = [report.markdown(report.table(entries))]
    if calls:
        tables.append(report.markdown(report.overhead_table(calls)))
    text = "\n".join([*tables, *(f"- {line}\n" for line in report.summary(entries))])
    (out / "table.md").write_text(text, encoding="utf-8")
    progress(f"wrote {out / RESULTS} and {out / 'table.md'}")
    draw(results, out)


def processor(device: str) -> str:
    """The name of what runs the kernels."""
    if device == "cuda":
        return torch.cuda.get_device_name()
    return platform.processor() or platform.machine()


def draw(results: dict[str, Any], out: Path) -> None:
    for path in chart.write(results, out):
        progress(f"wrote {path}")


def shown(console: Console, title: str, found: report.Table) -> None:
    table = Table(title=title)
    head, rows = found
    for n, name in enumerate(head):
        table.add_column(name, justify="left" if n == 0 else "right")
    for row in rows:
        table.add_row(*row)
    console.print(table)


def main(arguments: list[str] | None = None) -> int:
    given = parsed(arguments)
    if given.redraw is not None:
        draw(given.results, given.redraw)
        return 0
    dtype = getattr(torch, given.dtype)
    plan = Plan(given.rounds, given.compiled, given.forward, dtype, given.device)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        entries, calls, wrong = run(jobs_of(given.rows, given.size), plan, given.jobs)
        write(given.out, entries, calls, plan)
    finally:
        torch.set_num_threads(threads)
    console = Console(width=None if sys.stdout.isatty() else 140)
    shown(console, "The race", report.table(entries))
    if calls:
        shown(console, "What a call costs, 8x8", report.overhead_table(calls))
    for line in report.summary(entries):
        console.print(line, highlight=False)
    for message in wrong:
        progress(message)
    return 1 if wrong else 0
