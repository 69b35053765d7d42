"""Random operations through the whole pipeline: a campaign of any length.

``python tests/campaigns fuzz --count 100000 --seed 0 --jobs 2`` prints each failure with its seed
as it comes, and at the end how many programs there were and what came of them. One program is
looked at with ``python tests/campaigns fuzz --seed 17 --count 1 --verbose``; a campaign that was
stopped goes on with ``--seed``, which the last progress line names. ``--deep`` writes deep bodies
over a few small tensors instead of programs over the whole notation.
"""

import argparse
import gc
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import islice

import torch
from kit.examine import Result, drawn, examine, tried
from kit.programs import Program, deep_program, random_program
from kit.programs.shrinking import shrunk

Writer = Callable[..., Program]


def examined(
    seeds: range, jobs: int, second_order: bool | None, writer: Writer
) -> Iterator[Result]:
    """The results in the order of the seeds, as they come."""
    work = partial(examine, second_order=second_order, writer=writer)
    if jobs == 1:
        _prepare()
        yield from map(work, seeds)
        return
    parts = iter([seeds[start : start + 10] for start in range(0, len(seeds), 10)])
    with ProcessPoolExecutor(jobs, initializer=_prepare) as pool:
        # So many are begun that none waits for a slow one, and few enough that none is held long.
        begun = deque(pool.submit(_each, work, part) for part in islice(parts, _AHEAD))
        while begun:
            yield from begun.popleft().result()
            begun.extend(pool.submit(_each, work, part) for part in islice(parts, 1))


_AHEAD = 300
"""How many parts of a campaign are begun before the first is done."""


def _prepare() -> None:
    """One thread a process; what was imported is no garbage, and of what is made little is."""
    torch.set_num_threads(1)
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def _each(work: Callable[[int], Result], seeds: range) -> list[Result]:
    return [work(seed) for seed in seeds]


def small(result: Result, second_order: bool | None, writer: Writer) -> str:
    """A short program that fails as this one does."""
    program, checks = writer(result.seed), drawn(result.seed, second_order)
    kind, start = tried(program, checks).kind, result.detail[:25]

    def fails(other: Program) -> bool:
        made = tried(other, checks)
        alike = kind not in ("crash", "oracle", "run") or made.detail[:25] == start
        return made.kind == kind and alike

    made = shrunk(program, fails)
    return f"{made.text}\n{tried(made, checks).detail}"


def summary(kinds: Counter[str]) -> str:
    """How many programs there were, and the share of each kind."""
    total = sum(kinds.values())
    names = {"unsupported": "LoweringError"}
    shares = ", ".join(
        f"{names.get(kind, kind)} {n} ({100 * n / total:.2f} %)" for kind, n in kinds.most_common()
    )
    wrong = sum(n for kind, n in kinds.items() if Result(0, kind).failed)
    return f"{total} programs, {wrong} wrong: {shares}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000, help="how many programs")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=1, help="how many processes")
    parser.add_argument("--second-order", action="store_true", help="differentiate all twice")
    parser.add_argument("--deep", action="store_true", help="deep bodies over a few tensors")
    parser.add_argument("--shrink", action="store_true", help="print a small program too")
    parser.add_argument("--verbose", action="store_true", help="print every program")
    chosen = parser.parse_args()
    writer = deep_program if chosen.deep else random_program
    kinds: Counter[str] = Counter()
    seeds = range(chosen.seed, chosen.seed + chosen.count)
    start = time.perf_counter()
    second_order = chosen.second_order or None
    for result in examined(seeds, chosen.jobs, second_order, writer):
        kinds[result.kind] += 1
        if result.failed or result.kind == "unsupported" or chosen.verbose:
            print(f"seed {result.seed}: {result.kind}: {result.detail}")
            print("    " + writer(result.seed).text.replace("\n", "\n    "), flush=True)
        if result.failed and chosen.shrink:
            shorter = small(result, second_order, writer).replace("\n", "\n    ")
            print(f"    shrunk: {shorter}", flush=True)
        if sum(kinds.values()) % 1000 == 0:
            seconds = time.perf_counter() - start
            print(f"{summary(kinds)}; {seconds:.0f} s, next --seed {result.seed + 1}",
                  file=sys.stderr, flush=True)  # fmt: skip
    print(summary(kinds))
    return int(any(Result(0, kind).failed for kind in kinds))
