"""Deep bodies over a few small tensors: masks in masks, reductions of one body side by side.

What has no value at some numbers, a root or a logarithm, stands under a condition that keeps those
numbers out, somewhere around it; everything else is smooth. So every gradient is finite, and a nan
is a fault.
"""

import random
import re
from collections.abc import Callable, Iterable
from itertools import product

import numpy as np
from kit.programs.parts import Program

Scope = tuple[str, ...]
"""The letters at hand, those of the left-hand side first."""

SIZES = {"i": 3, "j": 4}
CLASS = {"i": "i", "t": "i", "k": "i", "j": "j", "u": "j", "l": "j"}
"""The class of each letter, which is the one that stands on the op line."""
FLOATS: dict[str, tuple[str, ...]] = {
    **{"x": ("i", "j"), "y": ("i", "j"), "a": ("i",), "b": ("i",), "w": ("j",), "q": ("j",)},
    "s": (),
}
NUMBERS = ("h",)
"""Parameters: Python's numbers, which raise where a tensor would be nan."""
ALONG = {"i": "a", "j": "w"}
FLAGS = {"m": ("i", "j"), "c": ("i",)}
POSITIONS = {"r": ("i",), "o": ("j",)}
"""Integers, each a position of its own class."""

SMOOTH = (
    *("exp({})", "tanh({})", "sigmoid({})", "softplus({})", "sin({})", "relu({})", "abs({})"),
    *("({})^2", "({})^3", "1/(1 + ({})^2)", "log1p(({})^2)", "sqrt(1 + ({})^2)", "-({})"),
)
PAIRS = ("({})*({})", "({})*({})", "({}) + {}", "({}) - ({})", "maximum({}, {})", "minimum({}, {})")
SINGULAR = ("log({})", "sqrt({})", "rsqrt({})", "({})^1.5", "({})^-1", "({})^-2", "log({})^2")
EDGE = "0.8"
"""The numbers are drawn around it: about as many are above as below."""
REDUCTIONS = ("sum", "sum", "prod", "max", "min", "amax", "amin", "logsumexp", "mean")
_READ = re.compile(r"\b(\w+)\[([^][]*)\]")
ORDERS = ("<=", "<=", "<", ">=", ">", "!=", "==")


class Bodies:
    """Writes the bodies of one program."""

    def __init__(self, pick: random.Random) -> None:
        self.pick = pick
        self.tables = {**FLOATS, **dict.fromkeys(NUMBERS, ())}

    def value(self, scope: Scope, depth: int) -> str:
        if depth == 0:
            return self.leaf(scope)
        made: list[tuple[float, Callable[[Scope, int], str]]] = [
            (0.08, lambda scope, _: self.leaf(scope)),
            (0.15, self.function),
            (0.17, self.pair),
            (0.20, self.masked),
            (0.10, self.kept_out),
            (0.16, self.reduced),
            (0.14, self.twice),
        ]
        shares, writers = zip(*made, strict=True)
        (chosen,) = self.pick.choices(writers, shares)
        return chosen(scope, depth - 1)

    # What reads

    def leaf(self, scope: Scope) -> str:
        fitting = [name for name, axes in self.tables.items() if self.fits(axes, scope)]
        wide = [name for name in fitting if len(self.tables[name]) > 1]
        name = self.pick.choice(wide if wide and self.pick.random() < 0.5 else fitting)
        return self.access(name, self.tables[name], scope)

    def access(self, name: str, axes: tuple[str, ...], scope: Scope) -> str:
        at = ",".join(self.position(of, scope) for of in axes)
        return f"{name}[{at}]" if at else name

    def position(self, of: str, scope: Scope) -> str:
        letter = self.pick.choice([a for a in scope if CLASS[a] == of])
        if self.pick.random() < 0.85:
            return letter
        (table,) = (name for name, axes in POSITIONS.items() if axes == (of,))
        return self.pick.choice((f"{table}[{letter}]", f"size({letter})-1-{letter}"))

    def fits(self, axes: tuple[str, ...], scope: Scope) -> bool:
        return {CLASS[a] for a in scope}.issuperset(axes)

    # What computes

    def function(self, scope: Scope, depth: int) -> str:
        return self.pick.choice(SMOOTH).format(self.value(scope, depth))

    def pair(self, scope: Scope, depth: int) -> str:
        sides = self.value(scope, depth), self.value(scope, depth)
        return self.pick.choice(PAIRS).format(*sides)

    def masked(self, scope: Scope, depth: int) -> str:
        condition, then = self.condition(scope), self.value(scope, depth)
        other = self.pick.choice(("0", "1", self.value(scope, depth)))
        forms = f"[{condition}]*({then})", f"where({condition}, {then}, {other})"
        return self.pick.choice(forms)

    def kept_out(self, scope: Scope, depth: int) -> str:
        """A function without a value below the edge, under a bracket that says so."""
        read = self.leaf(scope)
        singular = self.pick.choice(SINGULAR).format(f"{read} - {EDGE}")
        inside = self.pick.choice(PAIRS).format(singular, self.value(scope, depth))
        if self.pick.random() < 0.4:
            inside = f"[{self.condition(scope)}]*({inside})"
        out = f"{read} > {EDGE}"
        if self.pick.random() < 0.25:
            out = " and ".join(self.pick.sample((out, f"({self.condition(scope)})"), 2))
        return self.pick.choice((f"[{out}]*({inside})", f"where({out}, {inside}, 0)"))

    def reduced(self, scope: Scope, depth: int) -> str:
        free = self.free(scope)
        if not free:
            return self.function(scope, depth)
        letters = self.pick.sample(free, 2 if len(free) > 1 and self.pick.random() < 0.2 else 1)
        inner = (*scope, *letters)
        return self.reduction(letters, self.about(letters[0], inner), self.value(inner, depth))

    def twice(self, scope: Scope, depth: int) -> str:
        """Two reductions of the same, over one letter or over two."""
        free = self.free(scope)
        if not free:
            return self.pair(scope, depth)
        letter = self.pick.choice(free)
        inner = (*scope, letter)
        body, condition = self.value(inner, depth), self.about(letter, inner)
        other = self.pick.choice([a for a in free if CLASS[a] == CLASS[letter]])
        first = self.reduction([letter], condition, body)
        if re.search(rf"\b{other}\b", body + condition):
            other = letter
        again = condition if self.pick.random() < 0.5 else ""
        renamed = (re.sub(rf"\b{letter}\b", other, part) for part in (again, body))
        return self.pick.choice(PAIRS).format(first, self.reduction([other], *renamed))

    def reduction(self, letters: list[str], condition: str, body: str) -> str:
        kind = self.pick.choice(REDUCTIONS)
        body = self.sized(body, letters)
        if kind not in ("sum", "prod") and condition and self.pick.random() < 0.6:
            # An extremum of nothing is infinite: mostly there is something.
            body, condition = f"where({condition}, {body}, 0)", ""
        under = f" | {condition}" if condition else ""
        return f"{kind}[{','.join(letters)}{under}]({body})"

    def free(self, scope: Scope) -> list[str]:
        return [a for a in CLASS if a not in scope] if len(scope) < 4 else []

    def sized(self, body: str, letters: Iterable[str]) -> str:
        """The body, which reads something at each letter: that is what gives it a size."""
        for letter in letters:
            read = (
                a for name, at in _READ.findall(body) if name in self.tables for a in at.split(",")
            )
            if letter not in read:
                body = f"{body} + {ALONG[CLASS[letter]]}[{letter}]"
        return body

    # What asks

    def about(self, letter: str, scope: Scope) -> str:
        """What a reduction takes: all, up to another letter, where something holds."""
        others = [a for a in scope if CLASS[a] == CLASS[letter] and a != letter]
        draw = self.pick.random()
        if draw < 0.4:
            return ""
        if others and draw < 0.75:
            return f"{letter} {self.pick.choice(ORDERS)} {self.pick.choice(others)}"
        return self.condition(scope)

    def condition(self, scope: Scope, depth: int = 1) -> str:
        pick = self.pick
        forms = [f"{self.leaf(scope)} {pick.choice('<>')} {EDGE}"]
        forms += [
            self.access(n, axes, scope) for n, axes in FLAGS.items() if self.fits(axes, scope)
        ]
        pairs = [(a, b) for a, b in product(scope, scope) if a < b and CLASS[a] == CLASS[b]]
        if pairs:
            forms.append(f" {pick.choice(ORDERS)} ".join(pick.choice(pairs)))
        if scope:
            forms.append(f"{pick.choice(scope)} {pick.choice(ORDERS)} {pick.randrange(3)}")
        free = self.free(scope)
        if depth and free:
            letter = pick.choice(free)
            forms.append(f"{pick.choice(('any', 'all'))}[{letter}]"
                         f"({self.condition((*scope, letter), 0)})")  # fmt: skip
        if depth:
            two = self.condition(scope, 0), self.condition(scope, 0)
            forms.append(pick.choice(("({}) and ({})", "({}) or ({})")).format(*two))
            forms.append(f"not ({two[0]})")
        return pick.choice(forms)


def deep_program(seed: int, sample: int = 0) -> Program:
    """The program of that seed; ``sample`` draws other values for the same text."""
    pick = random.Random(f"deep {seed}")
    bodies = Bodies(pick)
    lines: list[str] = []
    outputs: list[str] = []
    for name, deepest in (("p", 3), ("f", 4)):
        if name == "p" and pick.random() < 0.5:
            continue
        letters = pick.choice((("i", "j"), ("i", "j"), ("i",), ("j",), ("i", "t"), ()))
        body = bodies.sized(bodies.value(letters, pick.randint(2, deepest)), letters)
        lines.append(f"{name}{_axes(letters)} = {body}")
        outputs.append(name)
        bodies.tables[name] = tuple(CLASS[a] for a in letters)
    text = "\n".join(lines)
    tables = {**FLOATS, **FLAGS, **POSITIONS}
    used = {name: axes for name, axes in tables.items() if re.search(rf"\b{name}\b", text)}
    # Something has each class as an axis, so that every letter has a size.
    used.setdefault("x", FLOATS["x"])
    kinds = {**dict.fromkeys(FLAGS, ": bool"), **dict.fromkeys(POSITIONS, ": int")}
    inputs = ", ".join(f"{name}{_axes(axes)}{kinds.get(name, '')}" for name, axes in used.items())
    generator = np.random.default_rng((seed, sample, 1))
    arrays = {name: _values(name, axes, generator) for name, axes in used.items()}
    named = [name for name in NUMBERS if re.search(rf"\b{name}\b", text)]
    numbers = {name: float(generator.uniform(0.3, 1.3)) for name in named}
    given = f"; {', '.join(named)}" if named else ""
    head = f"op g({inputs}{given}) -> {', '.join(outputs)}"
    return Program(seed, f"{head}\n{text}", arrays, numbers, False)


def _axes(letters: tuple[str, ...]) -> str:
    return f"[{','.join(letters)}]" if letters else ""


def _values(name: str, axes: tuple[str, ...], generator: np.random.Generator) -> np.ndarray:
    shape = tuple(SIZES[of] for of in axes)
    if name in FLAGS:
        return np.asarray(generator.random(shape) < 0.6)
    if name in POSITIONS:
        return np.asarray(generator.integers(0, SIZES[axes[0]], shape))
    return np.asarray(generator.uniform(0.3, 1.3, shape))
