"""The functions that call the stages of an operation in turn: forward, and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from derive.algebra.expr import Index
from derive.algebra.substitution import numbered
from derive.blocks.roles import refused
from derive.blocks.stages import Given, Plan, Stage
from derive.lowering.ground.value import Frame, NeedsFlatGroups
from derive.lowering.program import frame_of
from derive.module.arguments import in_turn
from derive.module.axes import shapes_from
from derive.module.passes import (
    Part,
    backward_part,
    formed_part,
    forward_part,
    none_of,
    returned,
    unpacked,
)
from derive.module.statements import called, indented
from derive.notation.operation import Choice
from derive.program.code import Dim, text
from derive.program.formed import Formed
from derive.program.program import Program


@dataclass(frozen=True)
class Scheduled:
    """A stage with its code; ``formed`` has its values and gradients in one."""

    stage: Stage
    program: Program
    formed: Formed | None = None


OWN = frozenset(
    "start length block size wanted asked part parts formed values blocks_of tensors".split()
)
"""The names that the functions here give to things of their own."""


@dataclass
class Driver:
    """The functions of one option; ``whole`` is its program without blocks."""

    plan: Plan
    stages: Sequence[Scheduled]
    whole: Program
    prefix: str
    taken: set[str] = field(init=False)
    forwards: list[Part] = field(init=False)
    backwards: list[Part | None] = field(init=False)
    formeds: list[Part | None] = field(init=False)

    def __post_init__(self) -> None:
        op = self.plan.operation
        self.taken = {*self.plan.axes, *OWN, *(p.name for p in op.parameters), "low", "wide"}
        self.forwards, self.backwards, self.formeds = [], [], []
        self._gradients = {n: numbered(f"grad_{n}", self.taken) for n in self.plan.axes}
        for s in self.stages:
            stem = f"{self.prefix}_{s.stage.outputs[0]}"
            self.forwards.append(forward_part(stem, s.stage, s.program))
            pulls = s.program.gradients and any(c for _, c in s.program.cotangents)
            pulled = backward_part(f"{stem}_backward", s.stage, s.program) if pulls else None
            self.backwards.append(pulled)
            whole = None
            if s.formed is not None:
                whole = formed_part(f"{stem}_formed", s.stage, s.program, s.formed)
            self.formeds.append(whole)
        self.is_formed = any(self.formeds)

    # names

    @property
    def inputs(self) -> list[str]:
        """The tensors that the operation is given."""
        return [t.name for t in self.plan.operation.inputs]

    @property
    def parameters(self) -> list[str]:
        """The parameters that the operation is given."""
        return [p.name for p in self.plan.operation.parameters if not isinstance(p, Choice)]

    @property
    def floats(self) -> list[str]:
        """The floating-point tensors, first those that are given in every call."""
        return [t.name for t in in_turn(self.plan.operation) if t.kind == "float"]

    @property
    def uses_low(self) -> bool:
        """Whether anything is computed in the dtype of products."""
        parts = (*self.forwards, *self.backwards, *self.formeds)
        return any(p is not None and "low" in p.arguments for p in parts)

    def size_of(self, extent: str) -> str:
        """The number of values of an extent, read on inputs."""
        op = self.plan.operation
        required = [t for t in op.inputs if t.default is None]
        return text(shapes_from(op, frame_of(op), required).resolve(Dim(extent)))

    # precision

    def dtypes(self, backward: bool = False, indent: int = 8) -> list[str]:
        """The dtypes of all stages, from those of the inputs."""
        lines = []
        floats = self.floats
        if self.uses_low:
            lines += called("low = _of_product(", floats, ")", indent)
            lines.append("wide = torch.promote_types(low, torch.float32)")
        elif len(floats) == 1:
            lines.append(f"wide = torch.promote_types({floats[0]}.dtype, torch.float32)")
        else:
            lines += called("wide = _promoted(", floats, ")", indent)
            lines.append("wide = torch.promote_types(wide, torch.float32)")
        precision = self.whole.forward_precision
        if "dtype" in {d.id for d in precision.returned.values()} and not backward:
            helper = "_of_float32" if precision.listed else "_promoted"
            lines += called(f"dtype = {helper}(", floats, ")", indent)
        return lines

    def _rounded(self, name: str, value: str) -> str:
        """An output of the operation in the dtype that it is returned in."""
        dtype = self.whole.forward_precision.returned.get(name)
        is_output = name in self.plan.operation.outputs
        return value if dtype is None or not is_output else f"{value}.to({dtype.id})"

    # forward

    def forward(self) -> list[str]:
        """The function that computes the outputs."""
        return self._forward(f"{self.prefix}_forward", self.forwards)

    def formed(self) -> list[str]:
        """The function that computes outputs and, for later, gradients."""
        parts = [one or two for one, two in zip(self.formeds, self.forwards, strict=True)]
        return self._forward(f"{self.prefix}_formed", parts, self.formed_arguments())

    def formed_arguments(self) -> list[str]:
        """What the function that forms gradients is given beside what the forward is."""
        return [*(["low"] if self.uses_low else []), "wide", "formed"]

    def _forward(self, name: str, parts: Sequence[Part], more: Sequence[str] = ()) -> list[str]:
        arguments = [*self.inputs, *self.parameters, "block", *more]
        lines = self.dtypes(indent=4)
        if more:
            lines = lines[len(self.dtypes(backward=True, indent=4)) :]
        lines.append(f"size = {self.size_of(self.plan.index.extent)}")
        if more:
            each = [f"{name} is not None and {name}.requires_grad" for name in self.inputs]
            optional = {t.name for t in self.plan.operation.inputs if t.default is not None}
            each = [
                e if n in optional else f"{n}.requires_grad"
                for n, e in zip(self.inputs, each, strict=True)
            ]
            lines += called("wanted = (", each, ",)" if len(each) == 1 else ")", 4)
        for s, part in zip(self.stages, parts, strict=True):
            lines += self._run(s, part, part in self.formeds)
        if more:
            values = self._recomputed()
            if values:
                lines += called(
                    'formed["values"] = (', values, ",)" if len(values) == 1 else ")", 4
                )
        op = self.plan.operation
        rows = {n for s in self.stages for n in s.stage.rows}
        results = [n if n in rows else self._rounded(n, n) for n in op.outputs]
        lines += returned(results, 4)
        return [*called(f"def {name}(", arguments, "):", 0), *indented(lines, 4), "", ""]

    def _run(
        self, s: Scheduled, part: Part, forming: bool = False, left: Sequence[str] = ()
    ) -> list[str]:
        """The lines that run a stage, but for what is ``left``.

        ``forming`` adds up its gradients beside.
        """
        stage = s.stage
        values = self._values(s)
        if not stage.looped:
            names = ["_" if n in left else n for n in stage.outputs]
            return called(f"{', '.join(names)} = {part.name}(", self._call(part, values), ")", 4)
        lines: list[str] = []
        entries = [(n, self._placed(n, stage.rows.get(n))) for n in stage.outputs]
        own: list[tuple[str, str | None]] = []
        if forming:
            own = [(self._own(g), self._placed(g.tensor, g.axis)) for g in self._pulled(s)]
            lines += self._asked(s)
        names = [n for n, _ in (*entries, *own)]
        lines += none_of([n for n in names if n not in left], 4)
        lines.append("for start, length in _blocks(size, block):")
        totals = {r: name for r, name in zip(part.results, names, strict=True) if r in part.totals}
        inner = called(f"parts = {part.name}(", self._call(part, values | totals), ")", 8)
        single = len(names) == 1
        for n, (name, axis) in enumerate((*entries, *own)):
            value = "parts" if single else f"parts[{n}]"
            if part.results[n] in totals:
                inner.append(f"{name} = {value}")
            elif n >= len(entries):
                inner += self._gathered_gradient(name, axis, value)
            elif name not in left:
                inner += self._gathered(name, axis, self._rounded_rows(name, axis, value))
        lines += indented(inner, 4)
        if forming:
            given = [name for name, _ in own]
            key = f'formed["{stage.outputs[0]}"] = ('
            lines += called(key, given, ",)" if len(given) == 1 else ")", 4)
        return lines

    def _placed(self, name: str, axis: int | None) -> str | None:
        """The place of the rows in a tensor, None where it has none."""
        return None if axis is None else self._place(name, axis)

    def _place(self, name: str, axis: int) -> str:
        """The place of an axis, from the end behind a group of axes."""
        axes = tuple(i if isinstance(i, Index) else None for i in self.plan.axes[name])
        try:
            return text(Frame(()).position(axes, axis))
        except NeedsFlatGroups:
            why = f"groups of axes stand on both sides of it in {name}"
            raise refused(self.plan.index, why) from None

    def _rounded_rows(self, name: str, axis: str | None, value: str) -> str:
        return value if axis is None else self._rounded(name, value)

    @staticmethod
    def _gathered(name: str, axis: str | None, value: str) -> list[str]:
        """A part of what the blocks give, added or put in its place."""
        if axis is None:
            return called(f"{name} = _added(", [name, value], ")", 8)
        return called(f"{name} = _placed(", [name, value, axis, "start", "size"], ")", 8)

    def _gathered_gradient(self, name: str, axis: str | None, value: str) -> list[str]:
        """A part of a gradient, which is rounded with the whole."""
        value = value if axis is None or not self.uses_low else f"_unrounded({value})"
        return self._gathered(name, axis, value)

    def _own(self, g: Given) -> str:
        """The gradient of what a pass is given, of this pass alone."""
        return self._gradients[g.tensor] + ("_rows" if g.name != g.tensor else "")

    def _pulled(self, s: Scheduled) -> list[Given]:
        """What the gradients of a stage are of, in order."""
        given = {g.name: g for g in s.stage.given}
        return [given[name] for name in s.program.gradients]

    def _asked(self, s: Scheduled) -> list[str]:
        """The line that says which gradients of a stage are asked for."""
        flags = [self._wanted(g.tensor) if g.read else "False" for g in s.stage.given]
        return called("asked = (", flags, ",)" if len(flags) == 1 else ")", 4)

    def _wanted(self, name: str) -> str:
        """Whether a gradient is asked for that a value leads to."""
        places = {n: at for at, n in enumerate(self.inputs)}
        leaves = [f"wanted[{places[n]}]" for n in self.plan.leaves(name)]
        return " or ".join(leaves) if leaves and self.plan.kinds[name] == "float" else "False"

    # calls

    def _values(self, s: Scheduled) -> dict[str, str]:
        """What each argument of the functions of a stage is here."""
        stage = s.stage
        optional = {t.name for t in self.plan.operation.inputs if t.default is not None}
        values = {n: n for n in ("low", "wide")} | {"wanted": "asked"}
        for g in stage.given:
            place = self._placed(g.tensor, g.axis)
            values[g.name] = g.tensor if place is None else _rows(g.tensor, place, optional)
        for output in stage.outputs:
            axis = stage.rows.get(output)
            place = self._placed(output, axis)
            values[output] = output if place is None else _rows(output, place)
        for output, cotangent in s.program.cotangents:
            if cotangent is not None:
                axis = stage.rows.get(output)
                name = self._gradients[output]
                place = self._placed(output, axis)
                values[cotangent] = name if place is None else _rows(name, place)
        for p in stage.operation.parameters:
            extent = stage.sizes.get(p.name)
            known = {stage.start: "start", stage.length: "length"}
            if extent is not None:
                values[p.name] = (
                    "size" if extent == self.plan.index.extent else self.size_of(extent)
                )
            else:
                values[p.name] = known.get(p.name, p.name)
        return values

    @staticmethod
    def _call(part: Part, values: Mapping[str, str]) -> list[str]:
        return [values[name] for name in part.arguments]

    # backward

    def _recomputed(self) -> list[str]:
        """What a stage makes, is no output, and the backward of a stage reads."""
        names: list[str] = []
        outputs = self.plan.operation.outputs
        made = {n for s in self.stages for n in s.stage.outputs}
        for s, part in zip(self.stages, self.backwards, strict=True):
            if part is None or (self.is_formed and s.stage.looped):
                continue
            names += self._read(s, part, made)
        return [n for n in dict.fromkeys(names) if n not in outputs]

    @staticmethod
    def _read(s: Scheduled, part: Part, made: set[str]) -> list[str]:
        """Those of the names made by stages that a function reads."""
        tensors = {g.name: g.tensor for g in s.stage.given}
        read = (tensors.get(name, name) for name in part.arguments)
        return [name for name in read if name in made]

    def again(self) -> list[tuple[Scheduled, Part]]:
        """The stages that the backward runs again for what it reads of them."""
        made = {n for s in self.stages for n in s.stage.outputs}
        outputs = set(self.plan.operation.outputs)
        needed: set[str] = set()
        for s, part in zip(self.stages, self.backwards, strict=True):
            if part is not None:
                needed |= set(self._read(s, part, made)) - outputs
        found: list[tuple[Scheduled, Part]] = []
        for s, part in zip(reversed(self.stages), reversed(self.forwards), strict=True):
            if needed & set(s.stage.outputs):
                found.append((s, part))
                needed |= set(self._read(s, part, made)) - outputs
        return found[::-1]

    def saved(self) -> tuple[list[str], list[str]]:
        """(inputs and outputs that are saved, parameters that are kept) for the backward."""
        read: set[str] = set()
        parts = [(s, p) for s, p in zip(self.stages, self.backwards, strict=True) if p is not None]
        formed = zip(
            self.stages,
            (one or two for one, two in zip(self.formeds, self.forwards, strict=True)),
            strict=True,
        )
        for s, part in (*parts, *self.again(), *(formed if self.is_formed else ())):
            values = self._values(s)
            for argument in (a for a in part.arguments if a not in part.totals):
                tensors = {g.name: g.tensor for g in s.stage.given}
                tensors |= {n: n for n in s.stage.outputs}
                read.add(tensors.get(argument, values[argument]))
                if argument in s.stage.sizes:
                    read.add(values[argument].partition(".")[0])
        read.add(self.size_of(self.plan.index.extent).partition(".")[0])
        outputs = self.plan.operation.outputs
        read |= set(self.floats if self.is_formed else ())
        kept = [n for n in (*self.inputs, *outputs) if n in read]
        return kept, [p for p in self.parameters if p in read]

    def backward_arguments(self) -> list[str]:
        """What the function of the backward is given."""
        tensors, parameters = self.saved()
        arguments = ["wanted", *tensors, *parameters, "block"]
        arguments += ["low"] if self.uses_low else []
        arguments += ["wide"]
        arguments += [c for _, c in self.whole.cotangents if c is not None]
        return arguments + (["formed"] if self.is_formed else [])

    def backward(self) -> list[str]:
        """The function that gives the gradients of all float inputs."""
        lines = [f"size = {self.size_of(self.plan.index.extent)}"]
        contributed: set[str] = set()
        for output, cotangent in self.whole.cotangents:
            if cotangent is not None:
                lines.append(f"{self._gradients[output]} = {cotangent}")
                contributed.add(output)
        again = self.again()
        if again:
            left = self.plan.operation.outputs
            made = [line for s, part in again for line in self._run(s, part, left=left)]
            if self.is_formed:
                values = self._recomputed()
                lines += ["if formed is None:", *indented(made, 4)]
                if values:
                    lines += ["else:", *indented(unpacked(values, 'formed["values"]', 8), 4)]
            else:
                lines += made
        for s, part in zip(reversed(self.stages), reversed(self.backwards), strict=True):
            if part is not None:
                lines += self._pull(s, part, contributed)
        results = [
            self._gradients[n] if n in contributed else "None"
            for n in self.inputs
            if self.plan.kinds[n] == "float"
        ]
        lines += returned([*results, ""] if len(results) == 1 else results, 4)
        lines[-1] = lines[-1].rstrip() if len(results) == 1 else lines[-1]
        name = f"{self.prefix}_backward"
        return [
            *called(f"def {name}(", self.backward_arguments(), "):", 0),
            *indented(lines, 4),
            "",
            "",
        ]

    def _pull(self, s: Scheduled, part: Part, contributed: set[str]) -> list[str]:
        """The lines that add the gradients of a stage to those of what it is given."""
        given = self._pulled(s)
        read = [g for g in given if g.read]
        if not read:
            return []
        values = self._values(s)
        lines = self._asked(s)
        names = [self._own(g) for g in given]
        fresh = {
            g: f"{self._own(g)}_part" if self._is_again(g, contributed, read) else self._own(g)
            for g in read
        }
        lines += none_of([fresh[g] for g in read], 4)
        single = len(names) == 1
        call = called(f"parts = {part.name}(", self._call(part, values), ")", 8)
        places = {g: "parts" if single else f"parts[{n}]" for n, g in enumerate(given)}
        body: list[str] = []
        if s.stage.looped:
            inner = list(call)
            for g in read:
                inner += self._gathered_gradient(
                    fresh[g], self._placed(g.tensor, g.axis), places[g]
                )
            body += ["for start, length in _blocks(size, block):", *indented(inner, 4)]
        else:
            body += [*call, *(f"{fresh[g]} = {places[g]}" for g in read)]
        if s.formed is not None:
            cotangent = self._gradients[s.stage.outputs[0]]
            scaled = [f'parts = formed["{s.stage.outputs[0]}"]']
            for n, g in enumerate(given):
                if g.read:
                    scaled += called(f"{fresh[g]} = _scaled(", [f"parts[{n}]", cotangent], ")", 8)
            lines += ["if formed is not None and any(asked):", *indented(scaled, 4)]
            lines += ["elif any(asked):", *indented(body, 4)]
        else:
            lines += ["if any(asked):", *indented(body, 4)]
        for g in read:
            target = self._gradients[g.tensor]
            if g.tensor in contributed:
                lines.append(f"{target} = _both({target}, {fresh[g]})")
            elif fresh[g] != target:
                lines.append(f"{target} = {fresh[g]}")
            contributed.add(g.tensor)
        return lines

    def _is_again(self, g: Given, contributed: set[str], read: Sequence[Given]) -> bool:
        """Whether a gradient comes of this stage and of another, or of it twice."""
        return g.tensor in contributed or sum(x.tensor == g.tensor for x in read) > 1

    def parts(self) -> Iterator[str]:
        """The functions of the stages and those that call them."""
        for group in zip(self.forwards, self.backwards, self.formeds, strict=True):
            for part in group:
                if part is not None:
                    yield from part.lines
        if self.is_formed:
            yield from self.formed()
        yield from self.backward()


def _rows(name: str, axis: str, optional: set[str] | frozenset[str] = frozenset()) -> str:
    """The rows of a block."""
    if name in optional:
        return f"_rows({name}, {axis}, start, length)"
    return f"{name}.narrow({axis}, start, length)"
