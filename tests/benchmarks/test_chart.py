"""The charts of the race: all texts are readable, and the short chart is a fair choice."""

import json
from itertools import combinations, pairwise
from random import Random

import pytest
from campaigns.race import main
from kit.each import each_row
from kit.race import chart
from kit.race.run import Entry
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

LONG = "an_operation_whose_name_is_much_longer_than_any_name_of_the_catalog_and_has_no_spaces"
WAYS = ["torch", "composite"]
LEAST_APART = 2
"""Pixels between two ticks."""


def entries(count: int, low: float, high: float, name: str = "operation") -> list[Entry]:
    """Entries with ratios of any size between the bounds; some have only one baseline."""
    random = Random(count)

    def ratio() -> float:
        return low * (high / low) ** random.random()

    found = []
    for n in range(count):
        ways = WAYS[n % 3 == 1 : 2 - (n % 3 == 2)]
        ratios = {way: ratio() for way in ways}
        found.append({"name": f"{name}_{n}", "size": "large", "sizes": [8, 8], "ratios": ratios})
    found[0]["ratios"] = dict.fromkeys(WAYS, low)
    found[-1]["ratios"] = dict.fromkeys(WAYS, high)
    return found


def results(found: list[Entry]) -> dict[str, object]:
    setting = {"torch": "2.13.0", "threads": 1, "dtype": "float32", "rounds": 20}
    return {**setting, "timed": "forward and backward", "entries": found}


def drawn(found: list[Entry], ways: list[str]) -> Figure:
    """The full chart, laid out."""
    _, figure = next(iter(chart.figures(results(found), found, ways)))
    figure.canvas.draw()
    return figure


def boxes(figure: Figure) -> dict[str, list[Bbox]]:
    """The boxes of all texts, by the part of the figure."""
    panels = figure.axes[1:]
    found = {
        "lines": figure.texts,
        "names": figure.axes[0].texts,
        **{f"values {n}": axes.texts for n, axes in enumerate(panels)},
    }
    for n, axes in enumerate(panels):
        ticks = axes.xaxis.get_major_ticks()
        found[f"ticks {n} below"] = [tick.label1 for tick in ticks]
        found[f"ticks {n} above"] = [tick.label2 for tick in ticks]
    return {
        part: [text.get_window_extent() for text in texts if text.get_text()]
        for part, texts in found.items()
    }


RANGES = ((0.99, 1.02), (0.0156, 5.2), (0.07, 16.6), (0.01, 0.02), (3, 9), (1e-9, 1e6), (0.5, 1e30))
NAMES = ("relu", "binary_cross_entropy_with_logits", LONG)


@each_row(
    "low, high, ways, name",
    [
        *((*ends, WAYS, LONG) for ends in RANGES),
        *((0.0156, 5.2, ways, name) for ways in (WAYS, WAYS[1:]) for name in NAMES),
    ],
)
def test_all_texts_are_on_the_canvas_and_apart(low, high, ways, name):
    figure = drawn(entries(12, low, high, name), ways)
    canvas = figure.bbox
    found = boxes(figure)
    for part, of_part in found.items():
        assert of_part, part
        for box in of_part:
            assert canvas.x0 < box.x0 < box.x1 < canvas.x1, part
            assert canvas.y0 < box.y0 < box.y1 < canvas.y1, part
        for one, other in combinations(of_part, 2):
            assert not one.overlaps(other), part
        if part.startswith("ticks"):
            sides = sorted((box.x0, box.x1) for box in of_part)
            assert all(b[0] - a[1] >= LEAST_APART for a, b in pairwise(sides)), part
    # Texts of two parts are apart too, such as a name and a ratio, or a tick and a caption.
    for (part, of_part), (another, of_another) in combinations(found.items(), 2):
        for one in of_part:
            assert not any(one.overlaps(box) for box in of_another), (part, another)


def test_a_usual_chart_is_800_pixels_wide_and_has_some_ticks():
    figure = drawn(entries(30, 0.0156, 5.2, "binary_cross_entropy_with_log"), WAYS)
    assert figure.bbox.width == 800
    labels = [tick.label1.get_text() for tick in figure.axes[1].xaxis.get_major_ticks()]
    assert labels == ["1/64", "1/16", "1/4", "1", "4"]


def test_one_is_a_tick_of_every_range():
    for low, high in ((-1.5, 1.5), (-60, 3), (-0.2, 400), (-1000, 1000)):
        found = chart.ticks(low, high, 2.2, lambda text: 0.07 * len(text))
        assert 0 in found
        assert len({b - a for a, b in pairwise(found)}) <= 1


@each_row(
    "ratio, text",
    [
        (0.0156, "0.016"),
        (0.03, "0.030"),
        (0.0949, "0.095"),
        (0.0951, "0.10"),
        (1.049, "1.05"),
        (16.64, "16.6"),
        (1e30, "1e+30"),
    ],
)
def test_a_ratio_is_short(ratio, text):
    assert chart.value(ratio) == text


def test_the_short_chart_has_the_largest_ratios_and_depends_on_no_name():
    found = chart.ordered(entries(124, 0.02, 5), WAYS)
    chosen = chart.telling(found, WAYS)
    assert len(chosen) == chart.FEW
    assert [e for e in found if e in chosen] == chosen
    for way in WAYS:
        ratios = sorted((e["ratios"][way] for e in found if way in e["ratios"]), reverse=True)
        kept = sorted((e["ratios"][way] for e in chosen if way in e["ratios"]), reverse=True)
        assert kept[: chart.WORST] == ratios[: chart.WORST]
        assert kept[-chart.BEST :] == ratios[-chart.BEST :]
    # The rest is spread: of any 12 neighbors at least one is shown.
    at = [n for n, e in enumerate(found) if e in chosen]
    assert max(b - a for a, b in pairwise(at)) <= 12
    renamed = [{**e, "name": f"z{len(found) - n}"} for n, e in enumerate(found)]
    places = [n for n, e in enumerate(renamed) if e in chart.telling(renamed, WAYS)]
    assert places == at


def test_a_short_race_has_no_short_chart(tmp_path):
    names = {40: ["race-large.png"], 41: ["race-large-forty.png", "race-large.png"]}
    for count, expected in names.items():
        out = tmp_path / str(count)
        out.mkdir()
        chart.write(results(entries(count, 0.5, 2)), out)
        assert sorted(path.name for path in out.iterdir()) == expected


def test_compiled_code_has_a_chart_of_its_own(tmp_path):
    found = entries(3, 0.5, 2)
    for e in found:
        e["ratios"] |= {f"{way} compiled": ratio for way, ratio in e["ratios"].items()}
    written = chart.write(results(found), tmp_path)
    assert [path.name for path in written] == ["race-large.png", "race-large-compiled.png"]


def test_charts_are_drawn_again_without_a_race(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("campaigns.race.run", None)
    found = results(entries(41, 0.5, 2))
    (tmp_path / "results.json").write_text(json.dumps(found), encoding="utf-8")
    assert main(["--redraw", str(tmp_path)]) == 0
    said = capsys.readouterr().err
    for name in ("race-large.png", "race-large-forty.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
        assert str(tmp_path / name) in said


@pytest.mark.parametrize(
    ("text", "options", "says"),
    [
        (None, [], "cannot read"),
        ("{", [], "cannot read"),
        ("[]", [], "has no results of a race"),
        ('{"entries": []}', ["--rounds", "3"], "so not --rounds"),
        ('{"entries": []}', ["--out", "elsewhere"], "not allowed with"),
    ],
)
def test_a_wrong_redraw_is_wrong_usage(text, options, says, tmp_path, capsys):
    if text is not None:
        (tmp_path / "results.json").write_text(text, encoding="utf-8")
    with pytest.raises(SystemExit, match="2"):
        main(["--redraw", str(tmp_path), *options])
    assert says in capsys.readouterr().err
