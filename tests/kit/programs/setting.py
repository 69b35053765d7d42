"""What a program starts from: classes of indices with their sizes, inputs, parameters."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from kit.programs.parts import Class, Size, Table

LETTERS = {"i": "iab", "j": "jcd", "k": "kef", "l": "lgh"}
WHOLE = ("nou", "ztw")
"""The letters of composite classes, in the order in which a program has them."""
POOL = (2, 3, 4, 5)
"""The sizes of single classes, each once."""
GROUPED = {"*p": (3, 2), "*q": (4,), "*r": (2,)}
"""The greatest shape of each group."""


@dataclass
class Parameter:
    """A parameter as the op line has it, and the value that a call gives; None leaves it out."""

    name: str
    text: str
    value: Any = None
    used: bool = True
    """Whether it stands there even where no expression reads it."""


@dataclass
class Setting:
    """The classes, inputs and parameters of one program."""

    classes: dict[str, Class]
    values: str
    """How arrays are drawn: ``plain``, ``signed`` or ``exact``."""
    inputs: list[Table] = field(default_factory=list)
    parameters: list[Parameter] = field(default_factory=list)
    layout: tuple[str, ...] = ()
    """The axes of the tensors whose single axes have run-time places."""
    kept: list[str] = field(default_factory=list)
    """Inputs that give sizes: they stand on the op line, read or not."""

    def single(self) -> list[str]:
        """The classes that are neither composite nor a group."""
        return [c.name for c in self.classes.values() if not c.group and not c.parts]

    def composites(self) -> list[str]:
        return [c.name for c in self.classes.values() if c.parts]

    def groups(self) -> list[str]:
        return [c.name for c in self.classes.values() if c.group]

    def parameter(self, name: str) -> Parameter | None:
        return next((p for p in self.parameters if p.name == name), None)

    def numbers(self) -> Mapping[str, Any]:
        """The values of the parameters that are positions or numbers, by name."""
        return {p.name: p.value for p in self.parameters}


def setting(pick: random.Random) -> Setting:
    """Classes of different sizes, and inputs that have them as axes."""
    values = pick.choices(("plain", "signed", "exact"), (72, 12, 16))[0]
    names = pick.sample(sorted(LETTERS), pick.choice((1, 2, 2, 3, 3)))
    sizes = dict(zip(names, pick.sample(POOL, len(names)), strict=True))
    if pick.random() < 0.08:
        sizes[pick.choice(names)] = pick.choice((0, 1))
    kind = pick.choices(("plain", "group", "axis", "sized"), (55, 20, 15, 10))[0]
    made = Setting({n: _single(n, sizes[n]) for n in names}, values)
    if kind == "group":
        for group in ("*p", "*q")[: pick.choice((1, 1, 2))]:
            made.classes[group] = _group(pick, group)
    if kind == "axis":
        _along(pick, made)
    elif len(names) > 1 and (kind == "sized" or pick.random() < 0.25):
        _composites(pick, made)
        if kind == "sized":
            _sized(pick, made)
    _inputs(pick, made)
    _parameters(pick, made)
    return made


def _single(name: str, size: int) -> Class:
    return Class(name, size, tuple(LETTERS[name]), f"v{name}[{{0}}]")


def _group(pick: random.Random, name: str) -> Class:
    whole = GROUPED[name]
    shape: Size = whole[: pick.randint(0, len(whole))]
    return Class(name, shape, (name,), f"Q{name[1:]}[{name}]")


def _along(pick: random.Random, made: Setting) -> None:
    """Groups with single classes between them, whose places are known at run time."""
    between = made.single()[: pick.choice((1, 1, 2))]
    groups = ["*p", "*q", "*r"][: len(between) + 1]
    for group in groups:
        made.classes[group] = replace(_group(pick, group), over="1")
    made.layout = (*chain.from_iterable(zip(groups, between, strict=False)), groups[-1])
    rank, before = 0, []
    for name in made.layout:
        own = made.classes[name].size
        before.append(rank)
        rank += len(own) if isinstance(own, tuple) else 1
    for n, of in enumerate(between):
        place = before[made.layout.index(of)]
        place -= rank * (pick.random() < 0.5)
        name = "dim" if len(between) == 1 else f"dim{n}"
        default = pick.random() < 0.5
        text = f"{name}=axis({of}, {place})" if default else f"{name}=axis({of})"
        given = None if default and pick.random() < 0.5 else place
        made.parameters.append(Parameter(name, text, given))


def _composites(pick: random.Random, made: Setting) -> None:
    pairs = {f"({' '.join(pick.sample(made.single(), 2))})" for _ in range(pick.choice((1, 1, 2)))}
    for n, pair in enumerate(sorted(pairs)):
        size = 1
        for part in pair[1:-1].split():
            size *= made.classes[part].count
        made.classes[pair] = Class(pair, size, tuple(WHOLE[n]), f"R{n}[{{0}}]")


def _sized(pick: random.Random, made: Setting) -> None:
    """A part of a composite whose size is a parameter, and that is an axis of no input."""
    of = pick.choice(made.classes[made.composites()[0]].parts)
    for whole in made.composites():
        split = of in made.classes[whole].parts
        made.classes[whole] = replace(made.classes[whole], sized=not split)
    size = made.classes[of].count
    if size < 1:
        return
    made.classes[of] = replace(made.classes[of], letters=(of,), over="({0} + 1)")
    draw = pick.random()
    if draw < 0.3:
        made.parameters.append(Parameter(of, f"size({of})={size}"))
    else:
        text = f"groups=size({of}, {size})" if draw < 0.6 else f"groups=size({of})"
        given = None if draw < 0.45 else size
        made.parameters.append(Parameter("groups", text, given))


def _inputs(pick: random.Random, made: Setting) -> None:
    """One vector for each class, which gives its size, and a few tensors more."""
    positive = made.values == "plain"
    single = made.single()
    owned = [n for n in single if made.classes[n].over.startswith("v")]
    if made.layout:
        _give(made, Table("A", made.layout, positive=positive))
    for of in owned:
        _give(made, Table(f"v{of}", (of,), positive=positive))
    for n in range(pick.randint(1, 3)):
        optional = pick.choice(("1", "0", "0.5")) if pick.random() < 0.08 else ""
        axes = _axes(pick, made, owned, optional)
        made.inputs.append(Table(f"X{n}", axes, positive=positive and optional != "0",
                                 default=optional))  # fmt: skip
    if not made.layout:
        for group in made.groups():
            _give(made, Table(f"Q{group[1:]}", (group,), positive=positive))
    targets = [n for n in owned if made.classes[n].count > 0]
    if targets and pick.random() < 0.4:
        axes = tuple(pick.choices(owned, k=pick.choice((1, 1, 1, 1, 2, 2, 0))))
        if made.groups() and not made.layout and pick.random() < 0.2:
            axes = (pick.choice(made.groups()), *axes[:1])
        low = -1 if pick.random() < 0.2 else 0
        made.inputs.append(Table("T", axes, "int", pick.choice(targets), low=low))
    if targets and pick.random() < 0.25:
        made.inputs.append(Table("U", (pick.choice(owned),), "int", pick.choice(targets)))
    if len(targets) > 1 and pick.random() < 0.15:
        span, target = sorted(pick.sample(targets, 2), key=lambda n: made.classes[n].count)
        made.inputs.append(Table("O", (pick.choice(owned),), "int", target, span))
    if pick.random() < 0.3:
        axes = tuple(pick.choices(owned, k=pick.choice((1, 2)))) if owned else ()
        made.inputs.append(Table("m", axes, "bool"))
    for n, of in enumerate(made.composites()):
        # The vector of a composite class gives its letters their size, as v does.
        sized = not made.classes[of].sized
        _give(made, Table(f"R{n}", (of,), positive=positive, split=sized))
        others = pick.choices([*owned, of], k=pick.choice((0, 1)))
        split = pick.random() < 0.7
        made.inputs.append(Table(f"W{n}", (of, *others), positive=positive, split=split))
        if owned and made.classes[of].count and pick.random() < 0.3:
            made.inputs.append(Table(f"T{n}", (pick.choice(owned),), "int", of))
    beside = random.Random()
    beside.setstate(pick.getstate())  # the rest of a program is the same with and without these
    for n, table in enumerate(made.inputs):
        if table.kind != "float" and beside.random() < 0.1:
            default = beside.choice(("0", "1")) if table.kind == "bool" else "0"
            made.inputs[n] = replace(table, default=default)


def _give(made: Setting, table: Table) -> None:
    made.inputs.append(table)
    made.kept.append(table.name)


def _axes(pick: random.Random, made: Setting, owned: list[str], optional: str) -> tuple[str, ...]:
    """The axes of an input: some classes, and groups among them."""
    if made.layout and pick.random() < 0.6:
        least = 1 if optional else 0.75
        kept = [a for a in made.layout if pick.random() < least]
        if pick.random() < 0.2:
            others = [n for n in owned if n not in made.layout]
            if others:
                kept.insert(pick.randint(0, len(kept)), pick.choice(others))
        return tuple(kept)
    axes = pick.choices(owned, k=pick.choice((0, 1, 2, 2, 2, 3))) if owned else []
    groups = made.groups()
    if groups and not made.layout and pick.random() < 0.55:
        for group in pick.sample(groups, pick.randint(1, len(groups))):
            axes.insert(pick.randint(0, len(axes)), group)
    return tuple(axes)


def _parameters(pick: random.Random, made: Setting) -> None:
    """Numbers, and an integer that is a position or a step."""
    if pick.random() < 0.3:
        exact = made.values == "exact"
        default, given = pick.choice((("0.5", 1.5), ("2", 0.5)) if exact else (("0.7", 1.1),))
        form = pick.choice(("given", "default", "required"))
        text = "s" if form == "required" else f"s={default}"
        value = None if form == "default" else given
        made.parameters.append(Parameter("s", text, value, used=False))
    targets = [n for n in made.single() if made.classes[n].count > 1]
    if targets and pick.random() < 0.15:
        given = 1 if pick.random() < 0.5 else None
        made.parameters.append(Parameter("n0", "n0=0", given, used=False))
