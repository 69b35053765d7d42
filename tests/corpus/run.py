"""PyTorch functions read into specs, as a table.

python tests/corpus/run.py                  # torch's functions and those of installed packages
python tests/corpus/run.py --only 'timm.*'
python tests/corpus/run.py --out FOLDER     # the table as corpus.md and as corpus.json too
python tests/corpus/run.py --write          # the specs to tests/corpus/specs.txt
"""

import argparse
import importlib
import json
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from statistics import median
from typing import Any

from functions import CORPUS
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from derive import DeriveError
from derive.tracing import validate
from derive.tracing.read import reading
from derive.tracing.reader import Reader

SPECS = Path(__file__).with_name("specs.txt")
"""The specs of all functions that are read."""

PACKAGES = ("trained", "transformers", "timm", "torchvision", "kornia", "geometric", "segmentation")
"""Each has a file of its functions; `trained` are written by hand."""

STAGES = ("traced", "read", "derived", "right")
"""torch's graph is recorded, a spec is made of it, it is differentiated, it is the function."""

COLUMNS = ("function", *STAGES, "lines", "seconds", "reason")


def specs() -> dict[str, str]:
    """The text that each function was read as, by its name."""
    entries = SPECS.read_text(encoding="utf-8").split("## ")[1:]
    return {name: text[:-1] for name, _, text in (e.partition("\n") for e in entries)}


def add_packages() -> Iterator[str]:
    """Adds the functions of each package; says which of them is not installed."""
    for package in PACKAGES:
        try:
            importlib.import_module(f"{package}_")
        except ModuleNotFoundError as error:
            yield f"without {package}_.py, as there is no {error.name}: pip install '.[corpus]'"


def stages(error: BaseException) -> int:
    """How many of the stages came before an error."""
    ran = {frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)}
    if validate._held.__code__ in ran:
        return 3
    if validate.check.__code__ in ran:
        return 2
    return int(Reader.read.__code__ in ran or "what was read:" in str(error))


def entry(name: str) -> dict[str, Any]:
    """What came of one function."""
    function, example = CORPUS[name]
    start = time.perf_counter()
    reason, text, reached, wrong = "", "", len(STAGES), False
    try:
        text = reading(function, *example(), comments=False).text
    except Exception as error:
        reached = stages(error)
        crash = "" if isinstance(error, DeriveError) else f"crash: {type(error).__name__}: "
        reason = f"{crash}{error}"
        wrong = reached == 3 and reason.startswith(("the spec differs", "the spec fails"))
    return {
        "function": name,
        **{stage: n < reached for n, stage in enumerate(STAGES)},
        "lines": len(text.splitlines()),
        "seconds": round(time.perf_counter() - start, 2),
        "reason": reason,
        "wrong": wrong,
        "text": text,
    }


def cells(row: dict[str, Any]) -> list[str]:
    """A row as the table has it."""
    marks = ["yes" if row[stage] else "" for stage in STAGES]
    if row["wrong"]:
        marks[-1] = "WRONG"
    reason = " ".join(row["reason"].partition("\n")[0].split())
    return [row["function"], *marks, str(row["lines"] or ""), f"{row['seconds']:.2f}", reason]


def totals(rows: Sequence[dict[str, Any]]) -> str:
    """The table in a paragraph."""
    found = [f"{sum(row[stage] for row in rows)} {stage}" for stage in STAGES]
    right = [row for row in rows if row["right"]]
    told = (
        f"{len(rows)} functions: {', '.join(found)} ({len(right) / max(1, len(rows)):.1%}), "
        f"{sum(row['wrong'] for row in rows)} WRONG"
    )
    if not right:
        return told
    lines, seconds = (median(row[column] for row in right) for column in ("lines", "seconds"))
    return f"{told}; of those that are right, at the median {lines:g} lines, {seconds:.2f} s"


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """The table and its totals."""
    lines = [COLUMNS, ["---"] * len(COLUMNS)]
    lines += [[c.replace("|", "\\|") for c in cells(row)] for row in rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines) + f"\n{totals(rows)}\n"


def printed(rows: Sequence[dict[str, Any]]) -> None:
    console = Console()
    console.width = max(console.width, 160)
    table = Table(*COLUMNS)
    table.columns[0].no_wrap = True
    for row in rows:
        table.add_row(*map(escape, cells(row)))
    console.print(table)
    console.print(totals(rows), highlight=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="*")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    for missing in add_packages():
        print(missing)
    rows = [entry(name) for name in CORPUS if fnmatchcase(name, given.only)]
    printed(rows)
    if given.write:
        known = specs() | {row["function"]: row["text"] for row in rows}
        texts = ((name, known.get(name)) for name in {**CORPUS, **known})
        SPECS.write_text("".join(f"## {name}\n{text}\n" for name, text in texts if text))
    if given.out:
        given.out.mkdir(parents=True, exist_ok=True)
        (given.out / "corpus.json").write_text(json.dumps(rows, indent=1))
        (given.out / "corpus.md").write_text(markdown(rows))


if __name__ == "__main__":
    main()
