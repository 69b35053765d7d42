"""Random convolutions in index notation, the same ones for the same seed.

Axes in any order, any number of each kind, strides and dilations as numbers or parameters,
zeros around the axis by conditions, factors beside and functions within.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from itertools import chain

import numpy as np


@dataclass(frozen=True)
class Convolution:
    """A text with arguments to run it on."""

    text: str
    tensors: dict[str, np.ndarray]
    parameters: dict[str, int]


@dataclass
class _Axis:
    """x[.., stride*t + dilation*k + shift, ..], the positions guarded or not."""

    position: str
    condition: str
    kernel: int
    places: int
    size: int
    declared: str = ""


@dataclass
class _Writer:
    random: random.Random
    parameters: dict[str, int] = field(default_factory=dict)

    def coefficient(self, name: str, most: int) -> tuple[str, int]:
        """A factor of an index as text, and its value."""
        value = self.random.randint(1, most)
        if self.random.random() < 0.3:
            self.parameters[name] = value
            return f"{name}*", value
        return (f"{value}*" if value > 1 else ""), value

    def axis(self, n: int, guarded: bool) -> _Axis:
        r = self.random
        t, k, u = f"t{n}", f"k{n}", f"u{n}"
        step, s = self.coefficient(f"s{n}", 3)
        every, d = self.coefficient(f"d{n}", 2)
        kernel, places = r.randint(1, 3), r.randint(1, 3)
        reach = d * (kernel - 1)
        kind = r.choice(("padded", "same", "causal")) if guarded else "valid"
        if kind == "causal":
            size = places
            if s > 1 or step:
                step, s = "", 1
                self.parameters.pop(f"s{n}", None)
            size = places = r.randint(2, 5)
            position = f"{t} - {every}{k}"
            return _Axis(position.replace(t, u), f"{u} >= {every}{k}", kernel, places, size, u)
        if kind == "same":
            size = places = r.randint(2, 5)
            p = r.randint(0, reach)
            position = f"{u} + {every}{k}" + (f" - {p}" if p else "")
            self.parameters.pop(f"s{n}", None)
            return _Axis(position, f"0 <= {position} < size({u})", kernel, places, size, u)
        remainder = r.randint(0, s - 1)
        if kind == "padded":
            p = r.randint(0, reach + 1)
            size = s * (places - 1) + reach + 1 + remainder - 2 * p
            if size < 1:
                p, size = 0, s * (places - 1) + reach + 1 + remainder
            pad, twice = str(p), str(2 * p)
            if r.random() < 0.4:
                self.parameters[f"p{n}"] = p
                pad, twice = f"p{n}", f"2*p{n}"
            room = f"size({u}) + {twice} - {every}(size({k}) - 1) - 1"
            length = f"size({t})=" + (f"floor(({room})/{step[:-1]})+1" if step else f"{room}+1")
            position = f"{step}{t} + {every}{k} - {pad}"
            return _Axis(position, f"0 <= {position} < size({u})", kernel, places, size, length)
        shift = r.choice((0, 0, 1, 2))
        size = s * (places - 1) + reach + 1 + remainder + shift
        position = f"{step}{t} + {every}{k}" + (f" + {shift}" if shift else "")
        return _Axis(position, "", kernel, places, size)


def random_convolution(seed: int, sample: int = 0) -> Convolution:
    """The program of a seed; ``sample`` gives other values."""
    r = random.Random(seed)
    w = _Writer(r)
    guarded = r.random() < 0.5
    axes = [w.axis(n, guarded) for n in range(r.choice((1, 1, 1, 1, 2, 2, 2, 3)))]
    sizes: dict[str, int] = {}

    def some(letters: str, counts: tuple[int, ...]) -> list[str]:
        chosen = list(letters)[: r.choice(counts)]
        for letter in chosen:
            sizes[letter] = r.choice((1, 2, 2, 3)) if len(axes) == 1 else r.randint(1, 2)
        return chosen

    batch, groups = some("nm", (0, 1, 1, 1, 2)), some("gh", (0, 0, 0, 1, 2))
    inputs, outputs = some("cd", (0, 1, 1, 2)), some("oq", (0, 1, 1, 2))
    letters = {}
    for n, a in enumerate(axes):
        sizes[f"u{n}"], sizes[f"k{n}"] = a.size, a.kernel
        letters[a.position] = f"u{n}"
    places = [f"u{n}" if a.declared == f"u{n}" else f"t{n}" for n, a in enumerate(axes)]

    def shuffled(*kinds: list[str]) -> list[str]:
        found = list(chain(*kinds))
        if r.random() < 0.5:
            r.shuffle(found)
        return found

    x = shuffled(batch, groups, inputs, [a.position for a in axes])
    kernel = [f"k{n}" for n in range(len(axes))]
    v = shuffled(groups, outputs, inputs, kernel)
    y = shuffled(batch, groups, outputs, places)
    read, weight = f"x[{','.join(x)}]", f"w[{','.join(v)}]"
    tensors = {"x": [letters.get(a, a) for a in x], "w": v}
    if r.random() < 0.25:
        read = r.choice(("exp({})", "sin({})", "{}**2", "tanh(2*{})")).format(read)
    if r.random() < 0.2:
        weight = r.choice(("sin({})", "{}**2", "(1 + {})")).format(weight)
    body = f"{read}*{weight}"
    extra = r.choice(("", "", "", "inputs", "kernel", "outputs", "number"))
    if extra == "inputs" and inputs:
        tensors["v"] = inputs[:1]
        body += f"*v[{inputs[0]}]"
    elif extra == "kernel":
        tensors["v"] = kernel[:1]
        body += f"*v[{kernel[0]}]"
    elif extra == "outputs" and outputs:
        tensors["v"] = [outputs[0], places[0]] if places[0][0] == "u" else outputs[:1]
        body += f"*v[{','.join(tensors['v'])}]"
    elif extra == "number":
        body = f"1/3*{body}" if r.random() < 0.5 else f"-2*{body}"
    conditions = [a.condition for a in axes if a.condition]
    if conditions:
        whole = " and ".join(conditions)
        if r.random() < 0.5:
            body = f"[{whole}]*{body}"
        else:
            body = f"where({whole}, {body}, 0)"
    declared = [a.declared for a in axes if a.declared.startswith("size")]
    given = [f"{name}[{','.join(tensors[name])}]" for name in tensors]
    settings = [f"{name}=1" for name in w.parameters] + declared
    head = f"op f({', '.join(given)}{'; ' if settings else ''}{', '.join(settings)}) -> y"
    summed = ",".join([*inputs, *kernel])
    text = f"{head}\ny[{','.join(y)}] = sum[{summed}]({body})"
    rng = np.random.default_rng([seed, sample])
    arrays = {n: rng.uniform(0.5, 1.5, [sizes[a] for a in t]) for n, t in tensors.items()}
    return Convolution(text, arrays, dict(w.parameters))
