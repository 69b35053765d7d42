"""How derivation time and emitted lines grow with the depth of a network.

python -m pytest tests/benchmarks/test_growth.py --benchmark-enable -s

For each kind of network a table of processor seconds and lines is printed, with the slopes of
straight lines through their logarithms: 1 is proportional to the depth. Seconds are reported, as
they depend on the machine; lines do not, and theirs is asserted. Without the option only the
smallest network is derived, and nothing is timed.
"""

import gc
import time
from collections.abc import Sequence

import numpy as np
import pytest
from kit.chains import CHAINS

import derive
from derive.api import source
from derive.pipeline import derive_option, program_of

DEPTHS = (1, 2, 4, 8, 16, 32, 64)
STEEPEST = {"shared": 1.35}
"""The lines of a sum over all layers, every step of which shows the whole sum."""


def measured(name: str, depth: int) -> tuple[float, int]:
    """(processor seconds, lines) from the text of a network to the source of its module."""
    derive_option.cache_clear()
    program_of.cache_clear()
    gc.collect()
    start = time.process_time()
    text = source(derive.parse(CHAINS[name](depth)))
    return time.process_time() - start, len(text.splitlines())


def slope(depths: Sequence[int], values: Sequence[float]) -> float:
    """The exponent of the power of the depth that fits the values best."""
    return float(np.polyfit(np.log(depths), np.log(values), 1)[0])


@pytest.mark.parametrize("name", CHAINS)
def test_growth(name, benchmark):
    if benchmark.disabled:
        benchmark(source, derive.parse(CHAINS[name](1)))
        return

    def all_depths() -> list[tuple[float, int]]:
        return [measured(name, depth) for depth in DEPTHS]

    measured(name, 1)
    seconds, lines = zip(*benchmark.pedantic(all_depths, rounds=1), strict=True)
    print(f"\n{name:>14} {'depth':>6} {'seconds':>8} {'lines':>6}")
    for depth, s, n in zip(DEPTHS, seconds, lines, strict=True):
        print(f"{'':>14} {depth:>6} {s:>8.2f} {n:>6}")
    # What a derivation costs anyway hides in the first few.
    late = slice(3, None)
    slopes = [slope(DEPTHS[late], values[late]) for values in (seconds, lines)]
    every = [slope(DEPTHS, values) for values in (seconds, lines)]
    for (of_time, of_lines), where in ((slopes, f"from depth {DEPTHS[3]} on"), (every, "of all")):
        print(f"{'':>14} {'slope':>6} {of_time:>8.2f} {of_lines:>6.2f}    {where}")
    assert slopes[1] <= STEEPEST.get(name, 1.2)
