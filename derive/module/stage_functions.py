"""The stages with their generated functions, and the arguments of their calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from derive.algebra.expr import Index
from derive.algebra.substitution import fresh_numbered
from derive.blocks.index_roles import block_error
from derive.blocks.tiling import Plan, Stage, StageInput
from derive.errors import DeriveError
from derive.lowering.ground.value import Frame, NeedsFlatGroups
from derive.lowering.lowering_input import frame_of
from derive.module.function_codegen import dtype_lines, floats_of
from derive.module.pretty_printer import call_lines
from derive.module.shape_checks import shapes_from
from derive.module.stage_codegen import StageFunction, backward_part, formed_part, forward_part
from derive.notation.operation import Choice, Operation
from derive.program.fused_backward import Formed
from derive.program.program import Program
from derive.program.torch_ir import Dim, text


@dataclass(frozen=True)
class Scheduled:
    """A stage with its code; ``formed`` is the fused version of values and gradients."""

    stage: Stage
    program: Program
    formed: Formed | None = None


OWN = frozenset(
    "start length block size wanted asked part parts formed values blocks_of tensors".split()
)
"""Local names of the driver functions."""


def own_names(op: Operation) -> frozenset[str]:
    """Return these names; raise an error if an argument is called ``block``."""
    if any(x.name == "block" for x in (*op.inputs, *op.parameters)):
        raise DeriveError(
            f"{op.name} has an argument block, which is also the name of the block size; "
            "rename the argument",
            kind="two-roles",
        )
    return OWN


@dataclass
class Stages:
    """The stages of one option with their functions; ``whole`` is its program without blocks."""

    plan: Plan
    stages: Sequence[Scheduled]
    whole: Program
    prefix: str
    taken: set[str] = field(init=False)
    forwards: list[StageFunction] = field(init=False)
    backwards: list[StageFunction | None] = field(init=False)
    formeds: list[StageFunction | None] = field(init=False)

    def __post_init__(self) -> None:
        op = self.plan.operation
        self.taken = {*self.plan.axes, *OWN, *(p.name for p in op.parameters), "low", "wide"}
        self.forwards, self.backwards, self.formeds = [], [], []
        self.gradients = {n: fresh_numbered(f"grad_{n}", self.taken) for n in self.plan.axes}
        asked = {n for n, c in self.whole.cotangents if c is not None}
        pulling = []
        for s in reversed(self.stages):
            pulling.append(asked.intersection(n for n, c in s.program.cotangents if c is not None))
            asked.update(s.program.gradients if pulling[-1] else ())
        for s, pulls in zip(self.stages, reversed(pulling), strict=True):
            stem = f"{self.prefix}_{s.stage.outputs[0]}"
            self.forwards.append(forward_part(stem, s.stage, s.program))
            pulled = None
            if pulls and s.program.gradients:
                pulled = backward_part(f"{stem}_backward", s.stage, s.program)
            self.backwards.append(pulled)
            whole = None
            if s.formed is not None:
                whole = formed_part(f"{stem}_formed", s.stage, s.program, s.formed)
            self.formeds.append(whole)
        self.is_formed = any(self.formeds)

    @property
    def inputs(self) -> list[str]:
        """The tensor arguments of the operation."""
        return [t.name for t in self.plan.operation.inputs]

    @property
    def parameters(self) -> list[str]:
        """The parameters of the operation, without its choice."""
        return [p.name for p in self.plan.operation.parameters if not isinstance(p, Choice)]

    @property
    def floats(self) -> list[str]:
        """The float tensors, those without a default first."""
        return floats_of(self.plan.operation)

    @property
    def uses_low(self) -> bool:
        """True if a function computes in the dtype of products."""
        parts = (*self.forwards, *self.backwards, *self.formeds)
        return any(p is not None and "low" in p.arguments for p in parts)

    def size_of(self, extent: str) -> str:
        """Return the code of the size of an extent, read from input shapes."""
        op = self.plan.operation
        required = [t for t in op.inputs if t.default is None]
        return text(shapes_from(op, frame_of(op), required).resolve(Dim(extent)))

    def dtypes(self, backward: bool = False, indent: int = 8) -> list[str]:
        """Return the lines that compute the dtypes of all stages from those of the inputs."""
        lines = []
        floats = self.floats
        if self.uses_low:
            lines += call_lines("low, wide = rt.product_dtypes(", floats, ")", indent)
        else:
            lines += dtype_lines("wide", floats, False, indent)
            lines.append("wide = torch.promote_types(wide, torch.float32)")
        precision = self.whole.forward_precision
        if "dtype" in {d.id for d in precision.returned.values()} and not backward:
            lines += dtype_lines("dtype", floats, precision.listed, indent)
        return lines

    def rounded(self, name: str, value: str) -> str:
        """Return an output of the operation, cast to the dtype that it is returned in."""
        dtype = self.whole.forward_precision.returned.get(name)
        is_output = name in self.plan.operation.outputs
        return value if dtype is None or not is_output else f"{value}.to({dtype.id})"

    def placed(self, name: str, axis: int | None) -> str | None:
        """Return the position of an axis, counted from the end if a group precedes it."""
        if axis is None:
            return None
        axes = tuple(i if isinstance(i, Index) else None for i in self.plan.axes[name])
        try:
            return text(Frame(()).position(axes, axis))
        except NeedsFlatGroups:
            why = f"groups of axes are on both sides of it in {name}"
            raise block_error(self.plan.index, why) from None

    def own(self, g: StageInput) -> str:
        """Return the name of an input's gradient from this stage alone."""
        return self.gradients[g.tensor] + g.name.removeprefix(g.tensor)

    def pulled(self, s: Scheduled) -> list[StageInput]:
        """Return the inputs that have a gradient in this stage, in order."""
        given = {g.name: g for g in s.stage.given}
        return [given[name] for name in s.program.gradients]

    def asked(self, s: Scheduled) -> list[str]:
        """Return the line that computes which gradients of a stage are requested."""
        flags = [self.wanted(g.tensor) if g.read else "False" for g in s.stage.given]
        return call_lines("asked = (", flags, ",)" if len(flags) == 1 else ")", 4)

    def wanted(self, name: str) -> str:
        """Return the condition that a gradient through this value is requested."""
        places = {n: at for at, n in enumerate(self.inputs)}
        leaves = [f"wanted[{places[n]}]" for n in self.plan.leaves(name)]
        return " or ".join(leaves) if leaves and self.plan.kinds[name] == "float" else "False"

    def values(self, s: Scheduled) -> dict[str, str]:
        """Return the value of each argument of the functions of a stage."""
        stage = s.stage
        optional = {t.name for t in self.plan.operation.inputs if t.default is not None}
        values = {n: n for n in ("low", "wide")} | {"wanted": "asked"}
        for g in stage.given:
            place = self.placed(g.tensor, g.axis)
            values[g.name] = _block_rows(g.tensor, place, g.tensor in optional)
        places = {n: self.placed(n, stage.rows.get(n)) for n in stage.outputs}
        values |= {n: _block_rows(n, place) for n, place in places.items()}
        for output, cotangent in s.program.cotangents:
            if cotangent is not None:
                values[cotangent] = _block_rows(self.gradients[output], places[output])
        known = {stage.start: "start", stage.length: "length"}
        for p in stage.operation.parameters:
            extent = stage.sizes.get(p.name)
            if extent is None:
                values[p.name] = known.get(p.name, p.name)
            else:
                is_whole = extent == self.plan.index.extent
                values[p.name] = "size" if is_whole else self.size_of(extent)
        return values

    @staticmethod
    def call(part: StageFunction, values: Mapping[str, str]) -> list[str]:
        return [values[name] for name in part.arguments]

    @staticmethod
    def read(s: Scheduled, part: StageFunction, made: set[str]) -> list[str]:
        """Return the stage results that a function reads."""
        tensors = {g.name: g.tensor for g in s.stage.given}
        read = (tensors.get(name, name) for name in part.arguments)
        return [name for name in read if name in made]


def _block_rows(name: str, axis: str | None, optional: bool = False) -> str:
    """Return the rows of a block, the whole tensor without an axis of them."""
    if axis is None:
        return name
    if optional:
        return f"rt.block_rows({name}, {axis}, start, length)"
    return f"{name}.narrow({axis}, start, length)"
