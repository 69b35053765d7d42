"""A bar for each operation: the time of ours over that of another way, slowest first."""

from __future__ import annotations

from pathlib import Path

import matplotlib
from kit.race.report import BOUND, others, ranked
from kit.race.run import Entry

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullLocator

SLOWER, AS_FAST, RULE = "#c2571a", "#2a6f97", "#333333"


def draw(entries: list[Entry], title: str, path: Path) -> None:
    """One panel for each way that ours is held against; ``entries`` are of one size.

    As wide as a page of text shows without making it smaller, and as high as the names need.
    """
    ways = others(entries)
    most = max(len(ranked(entries, way)) for way in ways)
    figure, panels = plt.subplots(
        1, len(ways), figsize=(max(6, 4.2 * len(ways)), 0.115 * most + 1.2), squeeze=False
    )
    for axes, way in zip(panels[0], ways, strict=True):
        panel(axes, ranked(entries, way), way, most)
    figure.suptitle(title, fontsize=9)
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    plt.close(figure)


def panel(axes: Axes, ratios: list[tuple[float, str]], way: str, most: int) -> None:
    """Bars to the right of 1 where ours is slower, to the left where it is faster."""
    lengths = [ratio for ratio, _ in ratios]
    colors = [SLOWER if ratio > BOUND else AS_FAST for ratio in lengths]
    axes.set_xscale("log", base=2)
    axes.barh(range(len(ratios)), [n - 1 for n in lengths], 0.75, left=1, color=colors)
    axes.axvline(1, color=RULE, linewidth=0.8)
    axes.set_yticks(range(len(ratios)), [name for _, name in ratios], fontsize=6)
    axes.set_ylim(most - 0.4, -0.6)
    axes.set_xlabel(f"ours / {way}", fontsize=8)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.tick_params(axis="x", labelsize=7)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", linewidth=0.3)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
