"""The loss of a training run as a picture."""

from __future__ import annotations

import os
from collections.abc import Sequence
from math import log10
from pathlib import Path
from statistics import fmean

from derive.examples.program import extra

with extra():
    from matplotlib.figure import Figure

__all__ = ["window_means", "write_curve"]

_LEAST = 1e-12  # what a loss that rounds to zero is drawn as


def window_means(losses: Sequence[float], window: int) -> list[float]:
    """The mean of log10 loss over each window of steps; the last one may be shorter."""
    logs = [log10(max(loss, _LEAST)) for loss in losses]
    return [fmean(logs[at : at + window]) for at in range(0, len(logs), window)]


def write_curve(losses: Sequence[float], path: Path) -> None:
    """Draw the losses to a PNG, over windows of 1,000 steps, or of a twentieth of a short run.

    The file is there whole or not at all.
    """
    window = max(1, min(1000, len(losses) // 20))
    means = window_means(losses, window)
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    axes.plot([at * window for at in range(len(means))], means)
    axes.set_xlabel("step")
    axes.set_ylabel("log10 loss" + f", mean of {window} steps" * (window > 1))
    axes.grid(alpha=0.3)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        figure.savefig(part, format="png", dpi=120)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
