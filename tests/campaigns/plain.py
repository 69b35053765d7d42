"""Plain modules of all operations: every check that holds of a plain module.

    python tests/campaigns plain --columns value,gradient --corpus

Prints each check that fails, and how many lines the modules have.
"""

import argparse
import re
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import derive
from derive import catalog
from derive.check.checks import PLAIN, checks_of, load_source
from derive.check.invoke import Column
from derive.notation.operation import Operation

SPECS = Path(__file__).parents[1] / "corpus/specs.txt"


def corpus() -> Iterator[Operation]:
    """The operations of the corpus."""
    for chunk in re.split("(?m)^## .*$", SPECS.read_text()):
        if chunk.strip():
            yield derive.parse(chunk)


def failures(op: Operation, columns: list[Column]) -> Iterator[str]:
    """What is wrong with the plain module of an operation."""
    try:
        function = load_source(op, derive.source(op, style="plain"))
        for check in checks_of(op, function, columns=columns):
            if not check.ok:
                option = "" if check.option is None else f" ({check.option})"
                yield f"{check.check}{option}, {check.case}: {check.detail.splitlines()[0]}"
    except Exception as error:
        yield f"{type(error).__name__}: {error}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--columns", default=",".join(c.name for c in PLAIN), help="the checks")
    parser.add_argument("--corpus", action="store_true", help="of the corpus, not the catalog")
    parser.add_argument("--part", default="0/1", help="k/n: every n-th operation, from the k-th on")
    given = parser.parse_args()
    asked = given.columns.split(",")
    first, step = map(int, given.part.split("/"))
    operations = list(corpus() if given.corpus else catalog.operations())[first::step]
    wrong, lines = 0, []
    for op in operations:
        for failure in failures(op, [c for c in PLAIN if c.name in asked]):
            wrong += 1
            print(f"{op.name}: {failure}", flush=True)
        lines.append(derive.source(op, style="plain").count("\n"))
    print(f"{len(operations)} operations, {wrong} failures; lines: median {median(lines):.0f}")
    return 1 if wrong else 0
