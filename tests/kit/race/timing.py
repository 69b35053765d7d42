"""Times of several functions, interleaved in one process: the least of several rounds."""

import gc
import math
import time
from collections.abc import Callable, Mapping
from random import Random

import torch

PAUSE = 0.002
"""Between two samples, so that a burst of another process hits few of them."""

LEAST = 0.001
"""What a sample takes at least: a call that takes less is repeated."""


def race(
    runs: Mapping[str, Callable[[], object]], rounds: int, device: str = "cpu"
) -> dict[str, float]:
    """The seconds of a call of each, its kernels on the device included."""
    counts = {name: repetitions(run, device) for name, run in runs.items()}
    names = list(runs)
    best = dict.fromkeys(names, math.inf)
    gc.collect()
    gc.disable()
    try:
        for n in range(rounds):
            # In another order each time: what one leaves of memory and caches is the next one's.
            for name in Random(n).sample(names, len(names)):
                time.sleep(PAUSE)
                runs[name]()
                best[name] = min(best[name], sample(runs[name], counts[name], device))
    finally:
        gc.enable()
    return best


def repetitions(run: Callable[[], object], device: str) -> int:
    """How often a sample calls it; two calls warm it up."""
    run()
    return max(1, math.ceil(LEAST / min(sample(run, 1, device), sample(run, 1, device))))


def sample(run: Callable[[], object], count: int, device: str) -> float:
    settle(device)
    start = time.perf_counter()
    for _ in range(count):
        run()
    settle(device)
    return (time.perf_counter() - start) / count


def settle(device: str) -> None:
    """Wait for the kernels that run on the device; those of a CPU have run."""
    if device != "cpu":
        torch.accelerator.synchronize(device)
