"""PyTorch functions read into specs, as a table.

python tests/corpus/run.py                  # right or not, lines, seconds, why not
python tests/corpus/run.py --only '*loss'
python tests/corpus/run.py --out FOLDER     # the table as JSON too
python tests/corpus/run.py --write          # the specs to tests/corpus/specs.txt
"""

from __future__ import annotations

import argparse
import json
import time
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from functions import CORPUS

from derive import DeriveError
from derive.tracing.read import reading

SPECS = Path(__file__).with_name("specs.txt")
"""The specs of all functions that are read."""


def specs() -> dict[str, str]:
    """The text that each function was read as, by its name."""
    entries = SPECS.read_text(encoding="utf-8").split("## ")[1:]
    return {name: text[:-1] for name, _, text in (e.partition("\n") for e in entries)}


def entry(name: str) -> dict[str, Any]:
    """What came of one function."""
    function, example = CORPUS[name]
    start = time.perf_counter()
    found: dict[str, Any] = {"name": name, "right": False, "lines": 0, "reason": ""}
    try:
        made = reading(function, *example(), comments=False)
        found |= {"right": True, "lines": len(made.text.splitlines()), "text": made.text}
    except DeriveError as error:
        found["reason"] = str(error)
    except Exception as error:
        found["reason"] = f"crash: {type(error).__name__}: {error}"
    return {**found, "seconds": round(time.perf_counter() - start, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="*")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    rows = [entry(name) for name in CORPUS if fnmatchcase(name, given.only)]
    for row in rows:
        mark = "right" if row["right"] else "     "
        print(f"{mark} {row['name']:24} {row['lines']:3} {row['seconds']:5} {row['reason'][:400]}")
    print(f"{sum(r['right'] for r in rows)} of {len(rows)} right")
    if given.write:
        SPECS.write_text("".join(f"## {r['name']}\n{r['text']}\n" for r in rows if r["right"]))
    if given.out:
        given.out.mkdir(parents=True, exist_ok=True)
        (given.out / "corpus.json").write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
