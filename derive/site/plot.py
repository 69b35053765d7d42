"""Draw the cost of an operation over one of its sizes as SVG."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from html import escape

from derive.cost.size_formula import Amount
from derive.notation.operation import Number, Operation
from derive.reports.result import Cost

_SIZES = [2**n for n in range(3, 14)]
_OTHER = 64
"""The value of every other size."""
_WIDTH, _HEIGHT = 420, 240
_LINE = 14
"""The height of a line of text."""
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 96, 16, 36


def plots(op: Operation, cost: Cost) -> tuple[str, ...]:
    """Return charts of flops and of bytes over the size on which the backward depends most."""
    flops = {"forward": cost.forward.flops, "backward": cost.backward.flops}
    held = {"saved": cost.saved_bytes}
    needed = sorted(set().union(*(a.needs() for a in (*flops.values(), *held.values()))))
    numbers = {p.name: p for p in op.parameters if isinstance(p, Number)}
    whole = {name: p.default for name, p in numbers.items() if p.integer}
    integers = {name: int(n) for name, n in whole.items() if isinstance(n, Fraction)}
    fixed = {n: integers.get(n, _OTHER) for n in (*cost.letters, *needed)}
    try:
        letter = max(
            (n for n in needed if n not in numbers),
            key=lambda n: _at(flops["backward"], cost, fixed, n, 4 * _OTHER),
            default=None,
        )
        if letter is None:
            return ()
        found = []
        for title, amounts in (("flops", flops), ("bytes kept for the backward", held)):
            every = {
                x: [_at(a, cost, fixed, letter, n) for n in _SIZES] for x, a in amounts.items()
            }
            if series := {name: values for name, values in every.items() if min(values) > 0}:
                found.append(_chart(title, letter, series))
        return tuple(found)
    except (ArithmeticError, KeyError, ValueError):
        return ()


def _at(a: Amount, cost: Cost, fixed: Mapping[str, int], letter: str, n: int) -> int:
    """Return the amount where one size is n; sizes that follow from others are computed."""
    follows = {name for name, _ in cost.follows}
    given = {name: size for name, size in fixed.items() if name not in follows or name == letter}
    return a.at({**fixed, **cost.sizes({**given, letter: n})})


def _chart(title: str, letter: str, series: Mapping[str, Sequence[int]]) -> str:
    """Return lines over a size, both axes logarithmic, each with its name at its end."""
    every = [v for values in series.values() for v in values]
    low, high = math.floor(math.log10(min(every))), math.ceil(math.log10(max(every)))
    high = max(high, low + 1)
    ends = math.log2(_SIZES[0]), math.log2(_SIZES[-1])

    def x(n: float) -> float:
        share = (math.log2(n) - ends[0]) / (ends[1] - ends[0])
        return round(_LEFT + share * (_WIDTH - _LEFT - _RIGHT), 1)

    def y(v: float) -> float:
        share = (math.log10(v) - low) / (high - low)
        return round(_HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM), 1)

    parts = []
    step = math.ceil((high - low) / 4)
    for p in range(low, high + 1, step):
        at = y(10.0**p)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{x(_SIZES[-1])}" y1="{at}" y2="{at}"/>')
        sign = f'10<tspan dy="-5" font-size="9">{p}</tspan>'
        parts.append(f'<text x="{_LEFT - 8}" y="{at + 4}" text-anchor="end">{sign}</text>')
    for n in _SIZES[::2]:
        at = _HEIGHT - _BOTTOM + 18
        parts.append(f'<text x="{x(n)}" y="{at}" text-anchor="middle">{n}</text>')
    middle, foot = x(math.sqrt(_SIZES[0] * _SIZES[-1])), _HEIGHT - 3
    parts.append(f'<text class="axis" x="{middle}" y="{foot}" text-anchor="middle">{letter}</text>')
    lowest = -math.inf
    for n, name in sorted(enumerate(series), key=lambda row: -series[row[1]][-1]):
        values = series[name]
        points = " ".join(f"{x(s)},{y(v)}" for s, v in zip(_SIZES, values, strict=True))
        parts.append(f'<polyline class="series{n}" points="{points}"/>')
        lowest = max(y(values[-1]) + 4, lowest + _LINE)
        parts.append(f'<text class="name{n}" x="{x(_SIZES[-1]) + 6}" y="{lowest}">{name}</text>')
    said = f"{title} over {letter}: " + "; ".join(
        f"{name} from {values[0]:.2g} to {values[-1]:.2g}" for name, values in series.items()
    )
    return (
        f'<figure class="plot"><svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{escape(said)}">{"".join(parts)}</svg>'
        f"<figcaption>{escape(title)} over {escape(letter)}</figcaption></figure>"
    )
