"""Race the generated functions against torch's own operations and against plain autograd.

    python tests/campaigns race --out FOLDER
    python tests/campaigns race --only 'softmax' --only '*_norm' --size large --out FOLDER
    python tests/campaigns race --compiled --out FOLDER    # also each under torch.compile
    python tests/campaigns race --forward --out FOLDER     # time the forward alone
    python tests/campaigns race --dtype bfloat16 --out FOLDER
    python tests/campaigns race --device cuda --compiled --out FOLDER
    python tests/campaigns race --extra --out FOLDER       # also the long rows
    python tests/campaigns race --redraw FOLDER            # draw the charts again, run nothing

All implementations of an operation run interleaved in one process, on one thread, in one dtype,
with a pause between samples. The result is the ratio of the least times of forward and backward; it
depends on the machine. On a GPU a sample ends when its kernels have run, and operations of
Liger-Kernel take part if its package is installed. Three counts depend on no machine: the bytes
saved for the backward, the peak of allocated bytes, and the kernels that touch a full tensor. If an
implementation differs from derive in value or gradient, its operation is not timed, and the command
ends with 1.

FOLDER gets results.json, table.md, and charts. race-SIZE.png has all operations, and
race-SIZE-forty.png has 40 of them. Compiled code has charts of its own, race-SIZE-compiled.png and
race-SIZE-compiled-forty.png. derive/docs/race.png is race-large.png of the last full run, and
derive/docs/race-forty.png is race-large-forty.png.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

import torch
from kit.race import chart, report
from kit.race.agree import DifferError
from kit.race.row import Row
from kit.race.rows import EXTRA, ROWS
from kit.race.run import Entry, Plan, call, entry, has_minimal
from rich.console import Console
from rich.table import Table

SIZES = ("small", "large")
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
    parser.add_argument("--size", choices=(*SIZES, "both"), default="both")
    parser.add_argument("--rounds", type=int, default=Plan.rounds)
    parser.add_argument("--compiled", action="store_true", help="also each under torch.compile")
    parser.add_argument("--forward", action="store_true", help="time the forward alone")
    parser.add_argument("--dtype", choices=DTYPES, default="float32", help="of all tensors")
    parser.add_argument("--device", default="cpu", help="of all tensors: cpu or cuda")
    parser.add_argument("--extra", action="store_true", help="also the long rows")
    given = parser.parse_args(arguments)
    if given.redraw is not None:
        for name in ("only", "size", "rounds", "compiled", "forward", "dtype", "device", "extra"):
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
    if given.rounds < 1:
        parser.error("--rounds must be at least 1")
    given.rows = chosen((*ROWS, *EXTRA) if given.extra else ROWS, given.only)
    if not given.rows:
        parser.error(f"no operation of the race is named {' or '.join(given.only)}")
    return given


def chosen(rows: tuple[Row, ...], patterns: list[str] | None) -> list[Row]:
    """The rows whose name matches one of the patterns, or all rows without patterns."""
    if patterns is None:
        return list(rows)
    return [row for row in rows if any(fnmatchcase(row.name, p) for p in patterns)]


def run(rows: list[Row], size: str, plan: Plan) -> tuple[list[Entry], list[Entry], list[str]]:
    """The entries of the rows at the size, the entries of single calls, and the failures.

    A line on stderr names each row before it runs. After a failure the race goes on.
    """
    entries: list[Entry] = []
    calls: list[Entry] = []
    jobs: list[tuple[str, list[Entry], Callable[[], Entry]]] = []
    for row in rows:
        for label in row.sizes():
            if row.label or size in (label, "both"):
                jobs.append((f"{row.name}, {label}", entries, partial(entry, row, label, plan)))
    for row in rows:
        if has_minimal(row) and size != "large":
            jobs.append((f"{row.name}, a call on 8x8", calls, partial(call, row, plan)))

    what = "forward" if plan.forward_only else "forward and backward"
    modes = "eager and compiled code" if plan.compiled else "eager code"
    dtype = str(plan.dtype).removeprefix("torch.")
    progress(
        f"{len(jobs)} rows, {modes}, {dtype}. Steps of each row: compare values and gradients,"
    )
    progress(f"time {what} in {plan.rounds} rounds, count saved bytes, peak and kernels.")
    wrong = []
    start = time.monotonic()
    for n, (name, found, make) in enumerate(jobs, 1):
        progress(f"[{n}/{len(jobs)}, {time.monotonic() - start:.0f} s] {name}")
        try:
            found.append(make())
        except DifferError as error:
            wrong.append(str(error))
        except RuntimeError as error:  # of torch, and of torch.compile
            wrong.append(f"{name}: {error}")
    return entries, calls, wrong


def progress(message: str) -> None:
    print(f"race: {message}", file=sys.stderr)


def write(out: Path, entries: list[Entry], calls: list[Entry], plan: Plan) -> None:
    """Write the results as JSON, as a table in markdown, and as charts of each size."""
    results = {
        "torch": torch.__version__,
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
        with torch.device(given.device):  # of what a composite makes itself
            entries, calls, wrong = run(given.rows, given.size, plan)
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
