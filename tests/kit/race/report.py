"""The results of the race as tables, and as one line for each size and baseline."""

from statistics import median

from kit.race.row import OURS
from kit.race.run import COMPILED, OTHERS, Entry

BOUND = 1.05
"""Up to this ratio derive counts as equally fast."""

WORST = 10
"""The number of largest ratios that the summary and the short chart have."""

Table = tuple[list[str], list[list[str]]]
"""The head and the rows."""


def sizes(entries: list[Entry]) -> list[str]:
    return list(dict.fromkeys(e["size"] for e in entries))


def others(entries: list[Entry]) -> list[str]:
    """The implementations that derive is compared with, in the order of the columns."""
    found = {name for e in entries for name in e["ratios"]}
    return [name for name in (*OTHERS, *(n + COMPILED for n in OTHERS)) if name in found]


def ranked(entries: list[Entry], way: str) -> list[tuple[float, str]]:
    """Ratio and name of the rows that have this way, the largest ratio first."""
    return sorted((e["ratios"][way], e["name"]) for e in entries if way in e["ratios"])[::-1]


def ratios(entries: list[Entry], way: str) -> list[float]:
    """The ratios of the rows that have this way, in the order of the race."""
    return [e["ratios"][way] for e in entries if way in e["ratios"]]


def table(entries: list[Entry]) -> Table:
    """A row an operation and size: ratios, then bytes and passes of all eager ways together."""
    ways = others(entries)
    eager = [OURS, *(name for name in OTHERS if name in ways)]
    head = ["operation", "size", "derive, µs", *(f"/ {name}" for name in ways)]
    return [*head, *MEASURES], [line(e, ways, eager) for e in entries]


MEASURES = ("saved beside inputs", "peak", "passes")
"""Each for derive and the others, in the order of the columns before."""


def line(entry: Entry, ways: list[str], eager: list[str]) -> list[str]:
    found = [entry["ways"].get(name) for name in eager]
    return [
        entry["name"],
        entry["size"],
        f"{entry['ways'][OURS]['seconds'] * 1e6:.1f}",
        *(f"{entry['ratios'][name]:.2f}" if name in entry["ratios"] else "" for name in ways),
        ", ".join(size_of(beside_inputs(way["saved"])) if way else "-" for way in found),
        ", ".join(size_of(way["peak"]) if way else "-" for way in found),
        ", ".join(str(len(way["passes"])) if way else "-" for way in found),
    ]


def beside_inputs(saved: dict[str, int]) -> int:
    """What the person does not hold anyway."""
    return saved["outputs"] + saved["others"]


def size_of(count: int) -> str:
    """Bytes, short."""
    for unit, size in (("M", 10**6), ("k", 10**3)):
        if count >= size:
            return f"{count / size:.1f}{unit}"
    return str(count)


def overhead_table(entries: list[Entry]) -> Table:
    head = ["operation", "derive, µs", "/ minimal Function", "without a graph, µs", "/ torch"]
    rows = [
        [
            e["name"],
            f"{e['seconds'][OURS] * 1e6:.1f}",
            *(f"{ratio:.2f}" for ratio in e["ratios"].values()),
            f"{e['seconds without a graph'][OURS] * 1e6:.1f}",
            *(f"{ratio:.2f}" for ratio in e["ratios without a graph"].values()),
        ]
        for e in entries
    ]
    return head, rows


def markdown(table: Table) -> str:
    head, rows = table
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def summary(entries: list[Entry]) -> list[str]:
    """For each size and way: the median ratio, how many are as fast, and the slowest."""
    found = []
    for size in sizes(entries):
        here = [e for e in entries if e["size"] == size]
        for way in others(here):
            ratios = ranked(here, way)
            as_fast = sum(ratio <= BOUND for ratio, _ in ratios)
            worst = ", ".join(f"{name} {ratio:.2f}" for ratio, name in ratios[:WORST])
            middle = median(ratio for ratio, _ in ratios)
            found.append(
                f"{size}, derive / {way}: median {middle:.2f} of {len(ratios)}, "
                f"{as_fast / len(ratios):.0%} at most {BOUND}; slowest: {worst}"
            )
    return found
