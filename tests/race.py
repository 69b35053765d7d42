"""The race of the generated functions: ours, torch's own, and what a person would write.

    python tests/race.py --out FOLDER
    python tests/race.py --only 'softmax' --only '*_norm' --size large --rounds 50 --out FOLDER
    python tests/race.py --compiled --out FOLDER    # each also under torch.compile
    python tests/race.py --forward --out FOLDER     # forward alone
    python tests/race.py --extra --out FOLDER       # also the long rows

Of each operation the ways are interleaved in one process on one thread, in float32, with a pause
between; the figure is the ratio of the minima of forward and backward, which depends on the
machine. Beside it stands what does not: bytes saved for the backward, the peak of what is
allocated, and the kernels that touch a full tensor. A row of which a way differs from ours in value
or gradient is not timed, and the command ends with 1. FOLDER gets results.json, table.md and a
chart of each size.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Callable
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

import torch
from kit.race import report
from kit.race.agree import DifferError
from kit.race.row import Row
from kit.race.rows import EXTRA, ROWS
from kit.race.run import Entry, Plan, call, entry, has_minimal
from rich.console import Console
from rich.table import Table

SIZES = ("small", "large")


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="the folder of results")
    parser.add_argument("--only", action="append", metavar="NAME", help="a name or pattern")
    parser.add_argument("--size", choices=(*SIZES, "both"), default="both")
    parser.add_argument("--rounds", type=int, default=Plan.rounds)
    parser.add_argument("--compiled", action="store_true", help="each also under torch.compile")
    parser.add_argument("--forward", action="store_true", help="forward alone")
    parser.add_argument("--extra", action="store_true", help="also the long rows")
    given = parser.parse_args(arguments)
    if given.rounds < 1:
        parser.error("--rounds must be at least 1")
    given.rows = chosen((*ROWS, *EXTRA) if given.extra else ROWS, given.only)
    if not given.rows:
        parser.error(f"no operation of the race is named {' or '.join(given.only)}")
    return given


def chosen(rows: tuple[Row, ...], patterns: list[str] | None) -> list[Row]:
    """The rows whose name fits one of the patterns; all without patterns."""
    if patterns is None:
        return list(rows)
    return [row for row in rows if any(fnmatchcase(row.name, p) for p in patterns)]


def run(rows: list[Row], size: str, plan: Plan) -> tuple[list[Entry], list[Entry], list[str]]:
    """The entries of the rows at the sizes, those of calls, and what is wrong with the others.

    Each is named on stderr as it is run. A row that differs or fails leaves the others in the race.
    """
    entries, calls, wrong = [], [], []

    def attempt(found: list[Entry], what: str, make: Callable[[], Entry]) -> None:
        print(what, file=sys.stderr)
        try:
            found.append(make())
        except DifferError as error:
            wrong.append(str(error))
        except RuntimeError as error:  # of torch, torch.compile among it
            wrong.append(f"{what}: {error}")

    for row in rows:
        for label in row.sizes():
            if row.label or size in (label, "both"):
                attempt(entries, f"{row.name}, {label}", partial(entry, row, label, plan))
    for row in rows:
        if has_minimal(row) and size != "large":
            attempt(calls, f"{row.name}, a call", partial(call, row, plan))
    return entries, calls, wrong


def write(out: Path, entries: list[Entry], calls: list[Entry], plan: Plan) -> None:
    """The results as JSON, as a table in markdown, and as a chart of each size."""
    from kit.race import chart

    what = "forward" if plan.forward_only else "forward and backward"
    setting = {
        "torch": torch.__version__,
        "processor": platform.processor() or platform.machine(),
        "threads": torch.get_num_threads(),
        "dtype": "float32",
        "timed": what,
        "rounds": plan.rounds,
    }
    out.mkdir(parents=True, exist_ok=True)
    results = {**setting, "entries": entries, "calls": calls}
    (out / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    tables = [report.markdown(report.table(entries))]
    if calls:
        tables.append(report.markdown(report.overhead_table(calls)))
    text = "\n".join([*tables, *(f"- {line}\n" for line in report.summary(entries))])
    (out / "table.md").write_text(text, encoding="utf-8")
    for size in SIZES:
        of_size = [e for e in entries if e["size"] == size and e["ratios"]]
        if of_size:
            title = f"{what}, {size} inputs (below 1 ours is faster)"
            chart.draw(of_size, title, out / f"race-{size}.png")


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
    plan = Plan(given.rounds, given.compiled, given.forward)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
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
    console.print(f"{given.out}: results.json, table.md, charts", highlight=False)
    for message in wrong:
        print(f"race: {message}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
