"""A bar for each operation: the time of ours over that of another way, slowest first."""

from __future__ import annotations

from pathlib import Path

import matplotlib
from kit.race.report import BOUND, others, ranked
from kit.race.run import Entry

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullFormatter, NullLocator

SLOWER, AS_FAST, RULE = "#c2571a", "#2a6f97", "#333333"


def draw(entries: list[Entry], title: str, path: Path) -> None:
    """One panel for each way that ours is held against; ``entries`` are of one size."""
    ways = others(entries)
    widest = max(len(ranked(entries, way)) for way in ways)
    figure, panels = plt.subplots(
        len(ways), 1, figsize=(max(5, 0.14 * widest + 1), 2.9 * len(ways)), squeeze=False
    )
    for axes, way in zip(panels[:, 0], ways, strict=True):
        panel(axes, ranked(entries, way), way, widest)
    figure.suptitle(title, fontsize=9)
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    plt.close(figure)


def panel(axes: Axes, ratios: list[tuple[float, str]], way: str, widest: int) -> None:
    """Bars up from 1 where ours is slower, down where it is faster."""
    heights = [ratio for ratio, _ in ratios]
    colors = [SLOWER if ratio > BOUND else AS_FAST for ratio in heights]
    axes.set_yscale("log", base=2)
    axes.bar(range(len(ratios)), [h - 1 for h in heights], 0.75, bottom=1, color=colors)
    axes.axhline(1, color=RULE, linewidth=0.8)
    axes.set_xticks(range(len(ratios)), [name for _, name in ratios], rotation=90, fontsize=6)
    axes.set_xlim(-0.7, widest - 0.3)
    axes.set_ylabel(f"ours / {way}", fontsize=8)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(axis="y", labelsize=7)
    axes.grid(axis="y", linewidth=0.3)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
