"""Charts of the race: a row for each operation, a panel for each baseline.

A baseline is torch's own operation, or the composite: plain operations under autograd. Each bar
starts at 1 and ends at the ratio of times, which is also written at its end. Operations that torch
has come first, the largest ratio to torch's own on top; the others follow, the largest ratio to
the composite on top. The names stand once, at the left of all panels.

The widths of all texts are measured before the layout, so no name is cut, and ticks keep apart.
"""

import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, pairwise
from math import ceil, floor, log2
from pathlib import Path
from statistics import median
from typing import Any

from kit.race.liger import LIGER
from kit.race.report import BOUND, WORST, others, ratios, sizes
from kit.race.row import COMPOSITE, TORCH
from kit.race.run import COMPILED, Entry
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.ticker import NullLocator
from PIL import Image

FEW = 40
"""The number of operations of the short chart."""

BEST = 5
"""The short chart has the ``WORST`` largest and the ``BEST`` smallest ratios of each panel."""

BASELINES = {
    TORCH: "torch's own operation",
    COMPOSITE: "plain operations, autograd",
    LIGER: "Liger-Kernel",
}

SLOWER, AS_FAST = "#a63c06", "#8dbbdc"
"""Dark and light, so that they differ in grayscale too."""
INK, FAINT, BAND = "#1a1a1a", "#6e6e6e", "#f3f3f3"

PIXELS = 100
"""Pixels of an inch of the layout: a chart 8 inches wide is laid out for 800 pixels."""
SHARPNESS = 2
"""Pixels of the file for each pixel of the layout, for dense displays."""
COLORS = 64
"""Colors of the file; text needs shades of gray between ink and paper."""

# In inches.
WIDTH, MARGIN, GAP, ROW, LEAST_PANEL = 8.0, 0.12, 0.22, 0.165, 2.6
LINE, TITLE_LINE, TICKS, HEAD = 0.17, 0.25, 0.22, 0.5
# In points.
TITLE_SIZE, NAME_SIZE, TEXT_SIZE, VALUE_SIZE = 11.5, 8, 8, 7.5


@dataclass(frozen=True)
class Texts:
    """The texts above and below the panels."""

    title: str
    setting: str
    caption: str


def write(results: Mapping[str, Any], out: Path) -> list[Path]:
    """Write the charts of each size, of eager and of compiled code, as PNG files into a folder.

    A size with more than ``FEW`` operations has two charts: all operations, and ``FEW`` of them.
    """
    written = []
    for size in sizes(results["entries"]):
        entries = [e for e in results["entries"] if e["size"] == size]
        for suffix, ways in kinds(entries).items():
            for name, figure in figures(results, entries, ways):
                path = out / f"race-{size}{suffix}{name}.png"
                save(figure, path)
                written.append(path)
    return written


def save(figure: Figure, path: Path) -> None:
    """Write a figure as a PNG file of few colors, which is half as large."""
    figure.savefig(path, dpi=PIXELS * SHARPNESS, facecolor="white")
    with Image.open(path) as image:
        few = image.convert("RGB").quantize(COLORS, dither=Image.Dither.NONE)
    few.save(path, optimize=True)


def kinds(entries: list[Entry]) -> dict[str, list[str]]:
    """The baselines of eager code and those of compiled code, by the suffix of their charts."""
    ways = others(entries)
    compiled = [way for way in ways if way.endswith(COMPILED)]
    eager = [way for way in ways if way not in compiled]
    return {suffix: found for suffix, found in (("", eager), ("-compiled", compiled)) if found}


def figures(
    results: Mapping[str, Any], entries: list[Entry], ways: list[str]
) -> Iterable[tuple[str, Figure]]:
    """The charts of one size, each with the suffix of its name."""
    everything = ordered(entries, ways)
    yield "", draw(everything, everything, ways, texts(results, everything, ways, ""))
    if len(everything) > FEW:
        chosen = telling(everything, ways)
        rule = (
            f"Shown: {len(chosen)} of {len(everything)} operations, with the {WORST} largest and "
            f"the {BEST} smallest ratios of each panel. The other rows are evenly spaced among the "
            "rest of the full chart. "
        )
        yield "-forty", draw(chosen, everything, ways, texts(results, everything, ways, rule))


def ordered(entries: list[Entry], ways: Sequence[str]) -> list[Entry]:
    """The entries that have a ratio to one of the ways, in the order of the rows."""

    def place(entry: Entry) -> tuple[int, float]:
        n, way = next((n, way) for n, way in enumerate(ways) if way in entry["ratios"])
        return n, -entry["ratios"][way]

    return sorted((e for e in entries if any(way in e["ratios"] for way in ways)), key=place)


def telling(entries: list[Entry], ways: Sequence[str]) -> list[Entry]:
    """At most ``FEW`` of the entries, in their order. Ratios alone decide, never a name.

    For each way the rule takes the ``WORST`` entries with the largest ratios, so the greatest
    losses of derive always show, and the ``BEST`` entries with the smallest. Entries evenly spaced
    among the rest take the other places, so the bulk near 1 shows too.
    """
    taken: set[int] = set()
    for way in ways:
        having = [n for n, e in enumerate(entries) if way in e["ratios"]]
        having.sort(key=lambda n: -entries[n]["ratios"][way])
        taken.update(having[:WORST], having[-BEST:])
    rest = [n for n in range(len(entries)) if n not in taken]
    places = max(0, min(FEW - len(taken), len(rest)))
    taken.update(rest[(2 * n + 1) * len(rest) // (2 * places)] for n in range(places))
    return [e for n, e in enumerate(entries) if n in taken]


def texts(
    results: Mapping[str, Any], entries: list[Entry], ways: Sequence[str], rule: str
) -> Texts:
    """The title, the setting of the measurement, and what a reader must know of the bars."""
    timed = results["timed"].replace(" and ", " + ")
    threads = results["threads"]
    on = f"CPU, {threads} thread{'s' * (threads != 1)}"
    if results.get("device", "cpu") != "cpu":
        on = results["processor"]
    (common, _), *_ = Counter(tuple(e["sizes"]) for e in entries).most_common(1)
    setting = (
        f"{results['dtype']}, {on}, "
        f"{entries[0]['size']} inputs (most often {' × '.join(map(str, common))}), "
        f"PyTorch {results['torch']}, "
        + ("both compiled" if ways[0].endswith(COMPILED) else "eager")
        + ". Logarithmic scale."
    )
    caption = (
        f"{rule}A bar starts at 1, where both take the same time, and ends at the ratio beside "
        f"it. Dark bars: derive takes more than {BOUND} times as long. "
    )
    if any(way not in e["ratios"] for e in entries for way in ways):
        caption += "A dash: the race has no such baseline. "
    caption += f"Each time is the minimum of {results['rounds']} interleaved rounds."
    return Texts(f"Time of derive / time of PyTorch, {timed}", setting, caption)


def draw(shown: list[Entry], everything: list[Entry], ways: Sequence[str], texts: Texts) -> Figure:
    """The chart of the entries ``shown``; the heads of its panels count ``everything``.

    It is ``WIDTH`` wide, or wider where names need that, and as high as its rows need.
    """
    names = MARGIN + max(width_of(e["name"], NAME_SIZE) for e in shown)
    gaps = GAP * (len(ways) - 1) + 2 * MARGIN
    panel = max(LEAST_PANEL, (WIDTH - names - gaps) / len(ways))
    width = names + gaps + len(ways) * panel
    title = wrapped(texts.title, width, TITLE_SIZE)
    setting = wrapped(texts.setting, width, TEXT_SIZE)
    caption = wrapped(texts.caption, width, TEXT_SIZE)
    heads = MARGIN + TITLE_LINE * len(title) + LINE * len(setting) + 0.08
    top = heads + HEAD + TICKS
    high = ROW * len(shown)
    bottom = TICKS + MARGIN + LINE * len(caption) + MARGIN
    figure = Figure(figsize=(width, top + high + bottom), dpi=PIXELS)
    FigureCanvasAgg(figure)

    lines(figure, title, MARGIN, MARGIN, TITLE_LINE, fontsize=TITLE_SIZE, weight="bold")
    lines(figure, setting, MARGIN, MARGIN + TITLE_LINE * len(title))
    lines(figure, caption, MARGIN, top + high + TICKS + MARGIN, color=FAINT)
    label(area(figure, 0, top, width, high), shown, names / width)
    reach = span([e["ratios"][way] for e in shown for way in ways if way in e["ratios"]], panel)
    for n, way in enumerate(ways):
        left = names + MARGIN + n * (panel + GAP)
        head(figure, everything, way, (left, left + panel), heads)
        axes = area(figure, left, top, panel, high)
        bars(axes, shown, way, reach)
        mark(axes, *reach, panel)
    return figure


def area(figure: Figure, left: float, top: float, width: float, height: float) -> Axes:
    """Axes at a place in inches, from the upper left corner of the figure."""
    across, down = figure.get_size_inches()
    place = (left / across, 1 - (top + height) / down, width / across, height / down)
    return figure.add_axes(place)


def lines(
    figure: Figure, texts: list[str], x: float, y: float, line: float = LINE, **style: Any
) -> None:
    """Write lines below each other; x and y are inches from the upper left corner."""
    across, down = figure.get_size_inches()
    style = {"color": INK, "fontsize": TEXT_SIZE, "va": "top", **style}
    for n, text in enumerate(texts):
        figure.text(x / across, 1 - (y + n * line) / down, text, **style)


def label(axes: Axes, entries: list[Entry], right: float) -> None:
    """The names of the rows, which end at a share of the width, and a band in every other row."""
    axes.set(xlim=(0, 1), ylim=(len(entries) - 0.5, -0.5))
    axes.axis("off")
    style = {"va": "center_baseline", "fontsize": NAME_SIZE, "color": INK}
    for n, entry in enumerate(entries):
        if n % 2:
            axes.axhspan(n - 0.5, n + 0.5, color=BAND, linewidth=0)
        axes.text(right, n, entry["name"], style, ha="right")


def head(
    figure: Figure, entries: list[Entry], way: str, sides: tuple[float, float], top: float
) -> None:
    """The baseline of a panel, a summary of all its ratios, and the directions of the bars."""
    left, right = sides
    baseline = BASELINES[way.removesuffix(COMPILED)]
    lines(figure, [f"derive / {baseline}"], left, top, weight="bold")
    lines(figure, [counted(entries, way)], left, top + LINE)
    hint: dict[str, Any] = {"fontsize": VALUE_SIZE, "color": FAINT}
    lines(figure, ["← derive faster"], left, top + 2 * LINE, **hint)
    lines(figure, ["derive slower →"], right, top + 2 * LINE, ha="right", **hint)


def counted(entries: list[Entry], way: str) -> str:
    """The number of ratios to a baseline, their median, and how many are at most ``BOUND``."""
    found = ratios(entries, way)
    as_fast = sum(ratio <= BOUND for ratio in found) / len(found)
    return f"all {len(found)}: median {value(median(found))}, {as_fast:.0%} at most {BOUND}"


def bars(axes: Axes, entries: list[Entry], way: str, reach: tuple[float, float]) -> None:
    """The bars of a panel with their ratios; x is the logarithm to base 2."""
    axes.set(xlim=reach, ylim=(len(entries) - 0.5, -0.5))
    axes.patch.set_visible(False)
    for n, entry in enumerate(entries):
        ratio = entry["ratios"].get(way)
        if ratio is None:
            text, end, right, color = "–", 0.0, True, FAINT
        else:
            text, end, right, color = value(ratio), log2(ratio), ratio >= 1, INK
            axes.barh(n, end, 0.66, color=SLOWER if ratio > BOUND else AS_FAST)
        axes.annotate(
            text,
            (end, n),
            xytext=(3 if right else -3, 0),
            textcoords="offset points",
            ha="left" if right else "right",
            va="center_baseline",
            fontsize=VALUE_SIZE,
            color=color,
        )


def mark(axes: Axes, low: float, high: float, panel: float) -> None:
    """Ticks at powers of two above and below a panel, and a line at 1."""
    places = ticks(low, high, panel, lambda text: width_of(text, VALUE_SIZE, weight="bold"))
    axes.axvline(0, color=INK, linewidth=1.4)
    axes.set_xticks(places, [power(place) for place in places], fontsize=VALUE_SIZE)
    axes.tick_params(axis="x", length=3, pad=2, top=True, labeltop=True, color=FAINT)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_visible(False)
    axes.grid(axis="x", linewidth=0.5, color="#cfcfcf")
    axes.set_axisbelow(True)
    axes.spines[:].set_visible(False)
    for tick, place in zip(axes.xaxis.get_major_ticks(), places, strict=True):
        if place == 0:
            tick.label1.set_fontweight("bold")
            tick.label2.set_fontweight("bold")


def span(found: list[float], panel: float) -> tuple[float, float]:
    """The logarithms at the edges of a panel: all bars fit with the ratios at their ends."""
    low, high = min(-1.0, log2(min(found))), max(1.0, log2(max(found)))
    room = max(width_of(value(ratio), VALUE_SIZE) for ratio in found) + 0.08
    margin = room * (high - low) / (panel - 2 * room)
    return low - margin, high + margin


def ticks(low: float, high: float, panel: float, width: Callable[[str], float]) -> list[int]:
    """The powers of two with a tick: 1, and as many others as keep apart and inside the panel."""
    inch = panel / (high - low)
    for step in count(1):
        places = [n * step for n in range(ceil(low / step), floor(high / step) + 1)]
        half = {place: width(power(place)) / 2 for place in places}
        inside = [
            place
            for place in places
            if half[place] <= min(place - low, high - place) * inch or place == 0
        ]
        if all((b - a) * inch >= half[a] + half[b] + 0.12 for a, b in pairwise(inside)):
            return inside
    raise AssertionError  # count has no end


def power(exponent: int) -> str:
    """A power of two as a reader writes it."""
    return str(2**exponent) if exponent >= 0 else f"1/{2**-exponent}"


def value(ratio: float) -> str:
    """A ratio with two or three digits: 0.030, 0.25, 1.04, 16.6."""
    if ratio < 0.095:
        return f"{ratio:#.2g}"
    if ratio < 9.995:
        return f"{ratio:.2f}"
    return f"{ratio:.1f}" if ratio < 999.5 else f"{ratio:.2g}"


def wrapped(text: str, width: float, size: float) -> list[str]:
    """The lines of a text that fits between the margins."""
    mean = width_of(text, size) / len(text)
    for columns in range(max(1, int((width - 2 * MARGIN) / mean * 1.2)), 0, -1):
        lines = textwrap.wrap(text, columns, break_on_hyphens=False)
        if all(width_of(line, size) <= width - 2 * MARGIN for line in lines):
            return lines
    return [text]


RULER: Any = FigureCanvasAgg(Figure(dpi=PIXELS)).get_renderer()  # type: ignore[no-untyped-call]
"""Measures texts before there is a figure to place them in."""


def width_of(text: str, size: float, weight: str = "normal") -> float:
    """The width of a text in inches."""
    properties = FontProperties(size=size, weight=weight)
    return float(RULER.get_text_width_height_descent(text, properties, ismath=False)[0]) / PIXELS
