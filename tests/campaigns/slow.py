"""Which tests are left out of the run at each change, and wait for the one at night.

    python tests/campaigns slow --write

Every test is run once, and the lines of the engine are noted that it reaches. A test that takes
little time is run at each change. Of the others, those are that reach most lines a second that no
test before reaches, one after the other, down to RATE; the rest is marked ``slow`` by the names in
tests/slow.txt.
"""

import argparse
import heapq
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from kit.reached import Reached, read

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "tests" / "slow.txt"
QUICK = 0.15
"""Seconds that a test may take while it is watched, which doubles them."""
RATE = 4.0
"""Lines a second."""
ALWAYS = (
    *("tests/whole/test_design.py", "tests/whole/test_golden.py", "tests/whole/test_imports.py"),
    *("tests/whole/test_error_codes.py", "tests/whole/test_generated_text.py"),
    *("tests/whole/test_identities.py", "tests/whole/test_torch_names.py"),
    "tests/whole/test_size.py",
)
"""What holds of the text of the house, which reaches no line of the engine."""


def slow_tests(ran: Sequence[Reached]) -> list[str]:
    """The tests that take long for the lines that they alone reach."""

    def is_kept(r: Reached) -> bool:
        return r.seconds < QUICK or r.test.startswith(ALWAYS)

    reached = {line for r in ran if is_kept(r) for line in r.lines}
    # The lines that a test adds only become fewer, so the first whose rate is still true is best.
    queue = [(-len(r.lines) / r.seconds, r.test, r) for r in ran if not is_kept(r)]
    heapq.heapify(queue)
    slow = []
    while queue:
        rate, name, r = heapq.heappop(queue)
        now = -len(r.lines - reached) / r.seconds
        if -now < RATE:
            slow.append(name)
        elif now == rate:
            reached |= r.lines
        else:
            heapq.heappush(queue, (now, name, r))
    return slow


def shortened(slow: Iterable[str], every: Iterable[str]) -> list[str]:
    """Name a function whose tests are all slow, and the other tests one by one."""
    slow = set(slow)
    some = {test.partition("[")[0] for test in every if test not in slow}
    return sorted({test if (name := test.partition("[")[0]) in some else name for test in slow})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--reached", type=Path, default=ROOT / ".pytest_cache" / "reached")
    parser.add_argument("--jobs", default="2")
    parser.add_argument("--write", action="store_true", help=f"write {TABLE.relative_to(ROOT)}")
    given = parser.parse_args()
    if not given.reached.is_dir():
        words = ["pytest", "-q", "-n", given.jobs, "-p", "kit.reached", "-m", "not long"]
        own = {**os.environ, "DERIVE_REACHED": str(given.reached.absolute())}
        subprocess.run([sys.executable, "-m", *words], cwd=ROOT, env=own, check=True)
    ran = read(given.reached)
    slow = slow_tests(ran)
    names = set(slow)
    left = [r for r in ran if r.test not in names]
    lines = [len({x for r in rows for x in r.lines}) for rows in (left, ran)]
    seconds = [sum(r.seconds for r in rows) for rows in (left, ran)]
    print(f"{len(left)} of {len(ran)} tests are run at each change")
    print(f"{lines[0]} of {lines[1]} lines, {seconds[0]:.0f} of {seconds[1]:.0f} s while watched")
    if given.write:
        text = "\n".join(shortened(slow, (r.test for r in ran)))
        TABLE.write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
