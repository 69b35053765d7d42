"""The corpus read: python tests/corpus/run.py [--only PATTERN] [--out FOLDER]"""

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
        found["wrong"] = "a mistake of the reading" in str(error)
    except Exception as error:
        found["reason"] = f"crash: {type(error).__name__}: {error}"
    return {**found, "seconds": round(time.perf_counter() - start, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="*")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    rows = [entry(name) for name in CORPUS if fnmatchcase(name, given.only)]
    for row in rows:
        mark = "right" if row["right"] else "     "
        print(f"{mark} {row['name']:24} {row['lines']:3} {row['seconds']:5} {row['reason'][:400]}")
    print(f"{sum(r['right'] for r in rows)} of {len(rows)} right")
    if given.out:
        given.out.mkdir(parents=True, exist_ok=True)
        (given.out / "corpus.json").write_text(json.dumps(rows, indent=1))
        (given.out / "corpus.txt").write_text("\n".join(r.get("text", "") for r in rows))


if __name__ == "__main__":
    main()
