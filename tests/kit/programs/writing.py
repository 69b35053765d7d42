"""A program's text and arguments."""

import random
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from kit.programs.equations import Equations
from kit.programs.parts import STRANGE, Program, Table
from kit.programs.setting import Setting, setting

KINDS = {"float": "", "int": ": int", "bool": ": bool"}


def random_program(seed: int, sample: int = 0) -> Program:
    """The program of that seed; ``sample`` draws other values for the same text."""
    pick = random.Random(seed)
    start = setting(pick)
    writer = Equations(pick, start, random.Random(f"alike {seed}"))
    equations = list(writer.equations())
    names = [re.split(r"[\[ ]", equation)[0] for equation in equations]
    body = "\n".join(equations)
    used = [t for t in start.inputs if t.name in start.kept or _named(t.name, body)]
    outputs, choice = _outputs(pick, names, writer)
    parameters = [p for p in start.parameters if p.used]
    shown = [p.text for p in parameters] + choice[:1]
    values = {p.name: p.value for p in parameters if p.value is not None}
    values |= choice[1] if choice else {}
    kept = _flag(pick, start, names, outputs, equations)
    if kept:
        shown.append(f"keepdim=keep({kept})")
        values["keepdim"] = pick.random() < 0.7
    tensors = ", ".join(_declared(t, start) for t in used)
    line = f"op f({tensors}{'; ' if shown else ''}{', '.join(shown)}) -> {outputs}"
    text = f"{line}\n{body}" if pick.random() < 0.95 else f"{line}; " + "; ".join(equations)
    generator = np.random.default_rng((seed, sample))
    arrays = _arrays(pick, used, start, generator)
    if random.Random(f"outside {seed}").random() < _OUTSIDE:
        arrays = {name: _partly_outside(array, generator) for name, array in arrays.items()}
    twins = _twins(pick, used, start)
    if twins:
        arrays[twins[1]] = arrays[twins[0]]
    return Program(seed, text, arrays, values, start.values == "exact", twins)


def _named(name: str, body: str) -> bool:
    return bool(re.search(rf"\b{name}\b", body))


def _outputs(pick: random.Random, names: Sequence[str], writer: Equations) -> tuple[str, list[Any]]:
    """What follows the arrow, and for a choice its parameter and value."""
    floats = [t.name for t in writer.tables if t.kind == "float"]
    if len(names) > 1 and all(n in floats for n in names) and pick.random() < 0.12:
        chosen = list(names[-3:])
        words = ("mean", "sum", "none")[: len(chosen)]
        pairs = " | ".join(f"{w}: {n}" for w, n in zip(words, chosen, strict=True))
        value = {"reduction": pick.choice(words)} if pick.random() < 0.8 else {}
        return pairs, [f"reduction={'|'.join(words)}", value]
    named = [name for name in names[:-1] if pick.random() < 0.3] + list(names[-1:])
    return ", ".join(named), []


def _flag(
    pick: random.Random,
    start: Setting,
    names: Sequence[str],
    outputs: str,
    equations: Sequence[str],
) -> str:
    """A class that some output lost, for a flag that keeps it; mostly none."""
    if pick.random() < (0.4 if start.layout else 0.95):
        return ""
    lost = [
        of
        for of in start.single()
        if any(of in t.axes for t in start.inputs if t.name in start.kept)
        and any(
            _named(name, outputs) and of not in re.split(r"[\[\],() ]", equation.split(" =")[0])
            for name, equation in zip(names, equations, strict=True)
        )
    ]
    if start.layout:
        lost = [of for of in lost if of in start.layout]
    return pick.choice(lost) if lost else ""


def _declared(table: Table, start: Setting) -> str:
    """An input on the op line; a composite axis is shown whole or by its parts."""
    axes = []
    for of in table.axes:
        found = start.classes[of]
        axes.append(found.letters[0] if found.parts and not table.split else of)
    shown = f"{table.name}[{','.join(axes)}]" if axes else table.name
    return shown + KINDS[table.kind] + (f"={table.default}" if table.default else "")


# Data


def _arrays(
    pick: random.Random, used: Sequence[Table], start: Setting, generator: np.random.Generator
) -> dict[str, np.ndarray | None]:
    low = pick.choice((-1, 0, 1))
    left_out = pick.random() < 0.5
    arrays: dict[str, np.ndarray | None] = {}
    for table in used:
        drawn = _array(table, start, low, generator)
        arrays[table.name] = None if table.default and left_out else drawn
    return arrays


def _array(table: Table, start: Setting, low: int, generator: np.random.Generator) -> np.ndarray:
    """Values of one input: floats of the setting's kind, positions, truth values."""
    return np.asarray(_values(table, start, low, generator))


_OUTSIDE = 0.15
"""How many programs get positions that lie on no axis."""


def _partly_outside(array: np.ndarray | None, generator: np.random.Generator) -> np.ndarray | None:
    """Integers of which some are no positions, as a condition may exclude them."""
    if array is None or array.dtype.kind != "i":
        return array
    strange = generator.choice(STRANGE, array.shape)
    return np.asarray(np.where(generator.random(array.shape) < 0.3, strange, array))


def _values(table: Table, start: Setting, low: int, generator: np.random.Generator) -> Any:
    shape = _shape(table, start)
    if table.kind == "int":
        high = start.classes[table.target].count
        if table.span:
            high -= start.classes[table.span].count - 1
        return generator.integers(table.low, max(high, table.low + 1), shape)
    if table.kind == "bool":
        return generator.random(shape) < 0.6
    if start.values == "exact":
        return generator.integers(low, low + 4, shape) / (2.0 if low == 1 else 1.0)
    if start.values == "signed":
        return generator.uniform(-1.5, 1.5, shape)
    return generator.uniform(0.3, 1.3, shape)


def _shape(table: Table, start: Setting) -> tuple[int, ...]:
    shape: list[int] = []
    for of in table.axes:
        size = start.classes[of].size
        shape += size if isinstance(size, tuple) else (size,)
    return tuple(shape)


def _twins(pick: random.Random, used: Sequence[Table], start: Setting) -> tuple[str, str] | None:
    """Two float inputs of one shape, one tensor in a share of programs."""
    if pick.random() < 0.9:
        return None
    smooth = [t for t in used if t.kind == "float" and not t.default]
    for n, a in enumerate(smooth):
        for b in smooth[n + 1 :]:
            if _shape(a, start) == _shape(b, start):
                return a.name, b.name
    return None
