"""Random operations that join, shift, cut and turn axes, the same ones for the same seed.

Every vector lies along one axis between others; an equation makes a new one from those before.
Sizes differ, 0 and 1 among them, as far as no index is left without a range.
"""

import random
from dataclasses import dataclass, field

import numpy as np
from kit.programs import Program

FUNCTIONS = ("{}", "{}", "2*{}", "exp({})", "sin({})", "{}**2", "1/(1 + {}**2)", "tanh({})")


@dataclass(frozen=True)
class Vector:
    """A tensor with one axis of this letter and size, joined from parts of these letters."""

    name: str
    letter: str
    size: int
    parts: tuple[str, ...] = ()


@dataclass
class _Writer:
    random: random.Random
    before: str
    after: str
    vectors: list[Vector] = field(default_factory=list)
    inputs: list[tuple[str, tuple[str, ...], int]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    wide: dict[str, int] = field(default_factory=dict)

    def at(self, v: Vector, position: str) -> str:
        axes = [a for a in (self.before, position, self.after) if a]
        return f"{v.name}[{','.join(axes)}]"

    def bent(self, v: Vector, position: str) -> str:
        return self.random.choice(FUNCTIONS).format(self.at(v, position))

    def some(self, letter: str | None = None, least: int = 0) -> Vector | None:
        found = [v for v in self.vectors if letter in (None, v.letter) and v.size >= least]
        return self.random.choice(found) if found else None

    def add(self, text: str, letter: str, size: int, parts: tuple[str, ...] = ()) -> None:
        new = Vector(f"e{len(self.lines)}", letter, size, parts)
        self.lines.append(f"{self.at(new, letter)} = {text}")
        self.vectors.append(new)

    def fresh(self) -> str:
        return f"m{len(self.lines)}"

    # One equation each; False where nothing fits.

    def joined(self) -> bool:
        m = self.fresh()
        chosen = [self.random.choice(self.vectors) for _ in range(self.random.choice((2, 2, 3)))]
        pieces = [self.bent(v, m) for v in chosen]
        whole = f"concat[{m}]({', '.join(pieces)})"
        factor = self.random.choice(("", "", "0.5*"))
        size = sum(v.size for v in chosen)
        self.add(factor + whole if not factor else whole, m, size, tuple(v.letter for v in chosen))
        return True

    def differences(self) -> bool:
        v, u = self.some(least=2), self.fresh()
        if v is None:
            return False
        c = self.random.randint(1, min(3, v.size))
        step = self.random.choice((1, 1, 2))
        text = f"{self.at(v, f'{step}*{u}+{c}' if step > 1 else f'{u}+{c}')}"
        if self.random.random() < 0.6:
            text += f" {self.random.choice('-*+')} {self.bent(v, u)}"
        self.add(text, u, (v.size - c - 1) // step + 1)
        return True

    def turned(self) -> bool:
        v, u = self.some(), self.fresh()
        assert v is not None
        c = self.random.choice((1, 1, 1, 2)) if v.size > 1 else 1
        self.add(self.bent(v, f"size({v.letter})-{c}-{u}"), u, v.size - c + 1)
        return True

    def shifted(self) -> bool:
        v = self.some()
        assert v is not None
        c, m = self.random.randint(1, 3), v.letter
        other = self.some(m)
        assert other is not None
        rest = self.random.choice(("0", self.bent(other, m), self.at(v, m)))
        test, at = self.random.choice(
            ((f"{m} >= {c}", f"{m}-{c}"), (f"{m}+{c} < size({m})", f"{m}+{c}"))
        )
        form = self.random.choice(
            ("where({0}, {1}, {2})", "{2} - [{0}]*{1}", "[{0}]*{1}*{2} + {2}")
        )
        self.add(form.format(test, self.bent(v, at), rest), m, v.size)
        return True

    def masked(self) -> bool:
        found = [v for v in self.vectors if v.parts]
        if not found:
            return False
        v = self.random.choice(found)
        m, parts = v.letter, v.parts
        n = self.random.randint(1, len(parts) - 1)
        edge = " + ".join(f"size({p})" for p in parts[:n])
        test = self.random.choice(
            (
                f"{m} < {edge}",
                f"{m} >= {edge}",
                f"not ({m} < {edge})",
                f"{edge} <= {m} and {m} < size({m})",
            )
        )
        other = self.some(m)
        assert other is not None
        form = self.random.choice(
            ("[{0}]*{1}", "where({0}, {1}, {2})", "{2} + [{0}]*{1}", "[{0}]*({1} + {2})*{2}")
        )
        self.add(form.format(test, self.bent(v, m), self.bent(other, m)), m, v.size)
        return True

    def picked(self) -> bool:
        """A part of a joined vector."""
        found = [v for v in self.vectors if v.parts]
        if not found:
            return False
        v = self.random.choice(found)
        n = self.random.randrange(1, len(v.parts))
        k = v.parts[n]
        size = next(x.size for x in self.vectors if x.letter == k)
        edge = "".join(f" + size({p})" for p in v.parts[:n])
        other = self.some(k)
        assert other is not None
        self.add(f"{self.bent(v, k + edge)}*{self.at(other, k)}", k, size)
        return True

    def summed(self) -> bool:
        """A cumulative sum, a causal convolution, or a matrix product along the axis."""
        v = self.some()
        assert v is not None
        m = v.letter
        other = self.some(m)
        assert other is not None
        kind, s = self.random.randrange(4), f"s{len(self.lines)}"
        if kind == 0:
            self.add(f"sum[{s} | {s} <= {m}]({self.bent(v, s)})", m, v.size)
        elif kind == 1:
            text = f"{self.at(v, f'{m}-{s}')}*{self.at(other, s)}"
            self.add(f"sum[{s} | {s} <= {m}]({text})", m, v.size)
        elif kind == 2:
            w = f"W{len(self.wide)}"
            self.wide[w] = v.size
            self.inputs.append((w, ("o", f"z{w}"), v.size))
            self.add(f"sum[{s}]({self.at(v, s)}*{w}[o,{s}])", "o", 2)
        elif v.parts:
            edge = f"size({v.parts[0]})"
            test = self.random.choice((f"{s} < {edge}", f"{s} >= {edge}"))
            self.add(f"sum[{s} | {test}]({self.bent(v, s)})*{self.at(other, m)}", m, v.size)
        else:
            return False
        return True


def random_runs(seed: int, sample: int = 0) -> Program:
    """The program of that seed; ``sample`` draws other values for the same text."""
    pick = random.Random(seed)
    before, after = pick.choice((("", ""), ("n", ""), ("n", ""), ("", "q"), ("n", "q"), ("*p", "")))
    writer = _Writer(pick, before, after)
    sizes = (
        pick.sample((0, 1, 2, 3, 4, 5), 3) if pick.random() < 0.4 else pick.sample((2, 3, 4, 5), 3)
    )
    writer.vectors = [Vector(f"x{k}", k, n) for k, n in zip("ijk", sizes, strict=True)]
    makers = (
        *(writer.joined, writer.joined, writer.differences, writer.turned, writer.shifted),
        *(writer.masked, writer.masked, writer.picked, writer.summed),
    )
    wanted = pick.choice((1, 2, 2, 3))
    while len(writer.lines) < wanted:
        pick.choice(makers)()
    dims = {"": (), "n": (3,), "q": (2,), "*p": (2, 2)}
    generator = np.random.default_rng((seed, sample))
    shown, tensors = [], {}
    for v in writer.vectors[:3]:
        shown.append(writer.at(v, v.letter))
        shape = (*dims[before], v.size, *dims[after])
        tensors[v.name] = generator.uniform(0.3, 1.3, shape)
    for name, axes, size in writer.inputs:
        shown.append(f"{name}[{','.join(axes)}]")
        tensors[name] = generator.uniform(0.3, 1.3, (2, size))
    names = [f"e{n}" for n in range(len(writer.lines))]
    outputs = [n for n in names[:-1] if pick.random() < 0.3] + names[-1:]
    text = f"op f({', '.join(shown)}) -> {', '.join(outputs)}\n" + "\n".join(writer.lines)
    return Program(seed, text, tensors, {}, False)
