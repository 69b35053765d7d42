"""Fuses forward and backward: values and gradients in one body, for a cotangent of 1.

Values that both compute are computed once. Equal values are found by their structure, not by name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress

from derive.algebra.substitution import fresh_numbered
from derive.program.cse import Line
from derive.program.dataflow import live
from derive.program.gradient_predication import with_needs
from derive.program.mixed_precision import LOW, Precision
from derive.program.program import Program
from derive.program.torch_ir import (
    NONE,
    Attribute,
    Code,
    Conditional,
    FunctionCall,
    MethodCall,
    Name,
    is_none,
    names_in,
)

_LOGARITHMS = {"torch.softmax": "torch.log_softmax", "rt.softmax": "rt.log_softmax"}
"""Each softmax with its logarithm."""


@dataclass(frozen=True)
class Formed:
    """Lines with the inputs whose gradients need them, and the dtypes of their arguments.

    ``gradients``: input -> the name of its gradient; ``outputs`` likewise.
    """

    lines: tuple[Line, ...]
    precision: Precision
    gradients: Mapping[str, str]
    outputs: Mapping[str, str]


def formed(program: Program, optional: Collection[str] = ()) -> Formed:
    """Return the fused body of a program whose output cotangents are all 1."""
    one, two = program.forward_precision, program.backward_precision
    both = {*one.narrow, *two.narrow} & {*one.broad, *two.broad}
    every = tuple(program.differentiable)
    merged = _Merged({*program.inputs, *program.parameters})
    for name in sorted(both):
        merged.taken.add(f"{name}_low")
        there = MethodCall(Name(name), "to", (LOW,))
        low = Conditional(is_none(name), NONE, there) if name in optional else there
        merged.add(Line(f"{name}_low", low, needs=every))
    forward = [replace(line, needs=every) for line in program.forward]
    setup = [*program.setup, *shape_lines(program, optional)]
    setup = [replace(line, needs=every) for line in setup]
    merged.run(forward, {name: f"{name}_low" for name in both.intersection(one.narrow)})
    outputs = {name: merged.names[name] for name in program.outputs}
    # The backward reads arguments as given, not as the forward may have rebound them.
    merged.names.clear()
    given = {name: f"{name}_low" for name in both.intersection(two.narrow)}
    merged.run([*setup, *program.backward], outputs | given)
    gradients = merged.apart(program.gradients, outputs.values())
    used = live(merged.lines, {*gradients.values(), *outputs.values()})
    lines = [*compress(merged.lines, used)]
    names = {name for line in lines for name in names_in(line.code)} - {*program.outputs}
    broad = [*one.broad, *(name for name in two.broad if name not in one.broad)]
    narrow = [*one.narrow, *(name for name in two.narrow if name not in one.narrow)]
    precision = Precision(
        narrow=tuple(n for n in narrow if n in names and n not in broad),
        broad=tuple(n for n in broad if n in names),
        names=one.names | two.names,
    )
    # A value that is computed once is also needed by the lines that then read it.
    made = tuple(
        replace(line, needs=tuple(t for t in every if t in (*line.needs, *read.needs)))
        for line, read in zip(lines, with_needs(lines, gradients), strict=True)
    )
    return Formed(made, precision, gradients, outputs)


def shape_lines(program: Program, optional: Collection[str]) -> list[Line]:
    """Return lines for the saved shapes of tensors; an optional tensor may be None."""
    lines = []
    for t in program.kept_shapes:
        shape: Code = Attribute(Name(t), "shape")
        if t in optional:
            shape = Conditional(is_none(t), NONE, shape)
        lines.append(Line(f"{t}_shape", shape))
    return lines


class _Merged:
    """The merged lines, each value once; ``names`` maps names of the body to merged names."""

    def __init__(self, given: set[str]) -> None:
        self.lines: list[Line] = []
        self.names: dict[str, str] = {}
        self.taken = set(given)
        self._given = frozenset(given)
        self._numbers: dict[Code, Code] = {}
        self._of: dict[str, Code] = {}
        self._held: dict[Code, str] = {}

    def run(self, lines: Sequence[Line], given: Mapping[str, str]) -> None:
        """Add the lines of a body; ``given`` maps its argument names to merged ones."""
        self.names.update(given)
        for line in lines:
            self.add(line)

    def add(self, line: Line) -> None:
        """Add a line, unless its value is available."""
        code = self._code(line.code)
        number = self._number(code)
        known = self._held.get(number)
        if known is not None:
            self.names[line.name] = known
            return
        read = line.name in names_in(line.code)
        name = line.name
        if name in self._given or (name in self._of and not read):
            name = fresh_numbered(name, self.taken)
        self.taken.add(name)
        for number_held in [n for n, held in self._held.items() if held == name]:
            del self._held[number_held]
        self.names[line.name] = name
        self._of[name] = number
        self._held[number] = name
        self.lines.append(replace(line, name=name, code=code))

    def apart(self, gradients: Mapping[str, str], others: Iterable[str]) -> dict[str, str]:
        """Return for each gradient a name that only it needs, adding lines as necessary."""
        asked = {line.name: line.needs for line in self.lines}
        taken = set(others)
        own = {}
        for t, name in gradients.items():
            made = self.names[name]
            if made in taken or asked.get(made) != (t,):
                whole = Name(made)
                made = fresh_numbered(name, self.taken) if name in self.taken else name
                self.taken.add(made)
                self.lines.append(Line(made, whole, needs=(t,)))
            taken.add(made)
            own[t] = made
        return own

    def _code(self, code: Code) -> Code:
        """Return the code with merged names; a softmax becomes exp of an available log_softmax."""
        if isinstance(code, Name):
            return Name(self.names.get(code.id, code.id))
        code = code.map(self._code)
        if isinstance(code, FunctionCall) and code.name in _LOGARITHMS:
            number = self._number(FunctionCall(_LOGARITHMS[code.name], code.args))
            if number in self._held:
                return MethodCall(Name(self._held[number]), "exp")
        if isinstance(code, Conditional) and self._number(code.then) == self._number(code.other):
            return code.then
        return code

    def _number(self, code: Code) -> Code:
        """Return the value number of the code: equal for equal operations on equal operands."""
        if isinstance(code, Name):
            return self._of.setdefault(code.id, Name(f"given {code.id}"))
        return self._numbers.setdefault(code.map(self._number), Name(f"#{len(self._numbers)}"))
