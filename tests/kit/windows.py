"""Random statistics of windows, as a spec and as a person would write them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import torch
from torch import Tensor

WIDTH = 3
"""The extent of every window."""

Written = Callable[[Tensor, Tensor], Tensor]

ELEMENTS: dict[str, Written] = {
    "{x}": lambda x, z: x,
    "{x}**2": lambda x, z: x**2,
    "{x}*{z}": lambda x, z: x * z,
    "exp({x})": lambda x, z: x.exp(),
    "abs({x} - {z})": lambda x, z: (x - z).abs(),
    "tanh({x})*{z}": lambda x, z: x.tanh() * z,
}

REDUCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "mean": lambda w: w.mean(-1),
    "sum": lambda w: w.sum(-1),
    "amax": lambda w: w.amax(-1),
    "logsumexp": lambda w: w.logsumexp(-1),
}

JOINED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "({a}) - ({b})": lambda a, b: a - b,
    "({a})*({b})": lambda a, b: a * b,
    "({a})/(1 + ({b})**2)": lambda a, b: a / (1 + b**2),
    "({a}) - ({b})**2": lambda a, b: a - b**2,
}


@dataclass(frozen=True)
class Program:
    """A spec of x and z, which may have rows, and the same in torch."""

    text: str
    written: Written
    rows: bool


def random_statistics(seed: int) -> Program:
    """Two or three statistics of the same windows, joined, the first of them at times by name."""
    draw = Random(seed)
    rows, step = draw.random() < 0.5, draw.choice((1, 1, 2))
    before = "n," if rows else ""
    place = f"{before}{step}*i + u" if step > 1 else f"{before}i + u"

    def windows(x: Tensor) -> Tensor:
        return x.unfold(-1, WIDTH, step)

    def statistic() -> tuple[str, Written]:
        element, of_element = draw.choice(list(ELEMENTS.items()))
        reduction, of_window = draw.choice(list(REDUCTIONS.items()))
        body = element.format(x=f"x[{place}]", z=f"z[{place}]")
        return f"{reduction}[u]({body})", lambda x, z: of_window(of_element(windows(x), windows(z)))

    text, written = statistic()
    named = ""
    for n in range(draw.choice((1, 1, 2))):
        if n == 0 and draw.random() < 0.4:
            named, text = f"m[{before}i] = {text}\n", f"m[{before}i]"
        other, of_other = statistic()
        form, of_both = draw.choice(list(JOINED.items()))
        text = form.format(a=text, b=other)
        written = _both(of_both, written, of_other)
    axes = f"{before}a"
    head = f"op f(x[{axes}], z[{axes}]; size(u)={WIDTH}) -> y\n"
    unread = "" if "z[" in named + text else f" + 0*mean[u](z[{place}])"
    return Program(f"{head}{named}y[{before}i] = {text}{unread}", written, rows)


def _both(join: Callable[[Tensor, Tensor], Tensor], one: Written, other: Written) -> Written:
    return lambda x, z: join(one(x, z), other(x, z))


def tensors(program: Program, seed: int) -> list[Tensor]:
    """x and z, of float64, with rows if the program has them."""
    made = torch.Generator().manual_seed(seed)
    shape = (2, 9) if program.rows else (9,)
    given = (torch.randn(shape, generator=made, dtype=torch.float64) for _ in range(2))
    return [x.requires_grad_() for x in given]
