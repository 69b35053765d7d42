"""Generate the functions of a stage: forward, backward, and both fused."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from derive.blocks.tiling import Stage
from derive.module.function_codegen import unpacked_call
from derive.module.in_place_variants import grouped
from derive.module.name_mangling import OWN
from derive.module.predicated_lines import Item, named_conditions, predicated
from derive.module.pretty_printer import all_none, assigned, call_lines, indented, return_statement
from derive.program.aliasing import gradients_apart, unalias_outputs
from derive.program.argument_types import forward_types
from derive.program.buffer_reuse import InPlaceWriter
from derive.program.cse import Line
from derive.program.dataflow import live_in
from derive.program.fused_backward import Formed, shape_lines
from derive.program.gemm_fusion import has_groups
from derive.program.gradient_predication import conditions
from derive.program.mixed_precision import DTYPE, LOW, WIDE, Precision
from derive.program.program import Program
from derive.program.torch_ir import (
    Attribute,
    Binary,
    Code,
    FunctionCall,
    MethodCall,
    Name,
    names_in,
    replaced,
    text,
)
from derive.program.types import Types
from derive.program.value_names import Names

WANTED = Name("wanted")
_ASKED = Attribute(Name("ctx"), "needs_input_grad")


@dataclass(frozen=True)
class StageFunction:
    """A generated function: its name, arguments, results and lines."""

    name: str
    arguments: tuple[str, ...]
    results: tuple[str, ...]
    lines: tuple[str, ...]
    totals: tuple[str, ...] = ()
    """The results that are accumulated in place: they are also arguments."""


def forward_part(name: str, stage: Stage, program: Program) -> StageFunction:
    """Return the forward of a stage; its outputs are not rounded."""
    body = _unrounded(stage, program, program.forward)
    lines = _cast(program.forward_precision)
    body = list(Names(taken=OWN).in_lines(body, (*program.inputs, *program.outputs)))
    lines += [s for line in body if _says(line) for s in assigned(line, 4)]
    precision = program.forward_precision
    return _stage_function(name, stage, program, lines, body, program.outputs, precision)


def backward_part(name: str, stage: Stage, program: Program) -> StageFunction:
    """Return the backward of a stage; ``wanted`` has a flag per input."""
    optional = {t.name for t in stage.operation.inputs if t.default is not None}
    setup = [*program.setup, *shape_lines(program, optional)]
    lines = [*_cast(program.backward_precision), *(s for x in setup for s in assigned(x, 4))]
    given = {*program.inputs, *program.outputs, *(c for _, c in program.cotangents if c)}
    summed = {g.name for g in stage.given if g.axis is None} if stage.looped else set()
    own = {name for t, name in program.gradients.items() if t in summed}
    apart = gradients_apart(program, unalias_outputs(program.backward, own, given))
    made = _unrounded(stage, program, apart)
    lines += _predicated_lines(stage, made, program.gradients)
    body = [*setup, *made]
    results = tuple(program.gradients.values())
    return _stage_function(name, stage, program, lines, body, results, program.backward_precision)


def formed_part(name: str, stage: Stage, program: Program, formed: Formed) -> StageFunction:
    """Return the fused function of the outputs of a stage and their gradients."""
    op = stage.operation
    # Each result is accumulated over blocks, or scaled by the cotangent, in place.
    own = {*formed.outputs.values(), *formed.gradients.values()}
    made = _unrounded(stage, program, unalias_outputs(formed.lines, own, program.inputs))
    results = (*formed.outputs.values(), *formed.gradients.values())
    trace = forward_types(op)
    places = {t.name: n for n, t in enumerate(op.inputs)}
    writer = InPlaceWriter(
        results=results,
        places=places,
        taken={*places, *(n for x in made for n in (x.name, *names_in(x.code)))},
        is_large=lambda shape: len(shape) > 1,
        grouped=grouped(op, program),
    )
    written = list(writer.write(made, [trace]))
    body, totals = _accumulated(stage, written, formed.gradients, trace, writer.grouped)
    lines = [*_cast(formed.precision), *_predicated_lines(stage, body, formed.gradients, totals)]
    return _stage_function(name, stage, program, lines, body, results, formed.precision, totals)


def _accumulated(
    stage: Stage,
    lines: Sequence[Line],
    gradients: Mapping[str, str],
    trace: Types,
    grouped: Collection[str],
) -> tuple[list[Line], tuple[str, ...]]:
    """Return the lines with matrix products added to totals over blocks, and the totals."""
    summed = {gradients[g.name] for g in stage.given if g.axis is None and g.name in gradients}
    totals = []
    made = []
    for n, x in enumerate(lines):
        others = [*lines[:n], *lines[n + 1 :]]
        alone = all(o.name != x.name for o in others)
        alone = alone and not any(x.name in names_in(o.code) for o in others)
        match x.code:
            case Binary("@", a, b) as product if (
                alone
                and x.name in summed
                and all(len(trace.shape(x) or ()) == 2 for x in (a, b))
                and not has_groups(product, grouped)
            ):
                totals.append(x.name)
                code = FunctionCall("rt.accumulate_product", (Name(x.name), a, b))
                made.append(replace(x, code=code))
            case _:
                made.append(x)
    return made, tuple(totals)


def _unrounded(stage: Stage, program: Program, lines: Sequence[Line]) -> list[Line]:
    """Return the lines in the wide dtype: nothing is rounded, and ``x.dtype`` is wide."""
    names = [t.name for t in stage.operation.inputs if t.kind == "float"]
    names += [n for o, c in program.cotangents if c is not None for n in (o, c)]
    dtypes: dict[Code, Code] = {Attribute(Name(n), "dtype"): WIDE for n in names}

    def exact(code: Code) -> Code:
        if isinstance(code, MethodCall) and code.name == "to" and code.args == (DTYPE,):
            return exact(code.obj)
        return dtypes[code] if code in dtypes else code.map(exact)

    return [replace(line, code=exact(line.code)) for line in lines]


def _says(line: Line) -> bool:
    """True if a line is not ``x = x``."""
    return line.code is not Name(line.name)


def _stage_function(
    name: str,
    stage: Stage,
    program: Program,
    lines: Sequence[str],
    body: Sequence[Line],
    results: Sequence[str],
    precision: Precision,
    totals: tuple[str, ...] = (),
) -> StageFunction:
    made = {line.name for line in body}
    read = {*precision.narrow, *precision.broad, *live_in(body), *(set(results) - made)}
    read |= {LOW.id} if precision.narrow else set()
    read |= {WIDE.id} if precision.broad else set()
    cotangents = [c for _, c in program.cotangents if c is not None]
    known = [*program.inputs, *program.outputs, *cotangents]
    known += [p.name for p in stage.operation.parameters]
    given = [*(n for n in known if n in read), *totals]
    given += [n for n in (LOW.id, WIDE.id) if n in read]
    if WANTED.id in read or any(WANTED.id in line for line in lines):
        given.insert(0, WANTED.id)
    whole = [*call_lines(f"def {name}(", given, "):", 0), *indented(lines, 4)]
    whole += indented(return_statement(results, 4), 4)
    return StageFunction(name, tuple(given), tuple(results), (*whole, "", ""), totals)


def _cast(precision: Precision) -> list[str]:
    """Return the lines that cast the input tensors of a body to its dtypes."""
    lines: list[str] = []
    for dtype, names in ((LOW, precision.narrow), (WIDE, precision.broad)):
        lines += unpacked_call(names, "rt.cast", (dtype.id, *names), 4) if names else ()
    return lines


def _predicated_lines(
    stage: Stage, body: Sequence[Line], gradients: Mapping[str, str], totals: Sequence[str] = ()
) -> list[str]:
    """Return the lines, each under its predicate; ``totals`` are initialized already."""
    places = {t.name: n for n, t in enumerate(stage.operation.inputs)}
    named = Names(taken=OWN).in_lines(body, places)
    taken = {*places, *(n for x in named for n in (x.name, *names_in(x.code)))}
    asked = conditions(named, gradients, places, taken)
    names = tuple((name, _of_wanted(own)) for name, own in asked.names)
    lines = named_conditions(replace(asked, names=names), 4)
    if len(gradients) > 1:
        lines += all_none([n for n in gradients.values() if n not in totals], 4)
    items = []
    for line in named:
        if _says(line):
            made = line.having(replaced(line.code, {_ASKED: WANTED}))
            items.append(Item(_of_wanted(asked.of[line.needs]), partial(assigned, made)))
    return [*lines, *predicated(items, 4)]


def _of_wanted(conditions: Sequence[str]) -> tuple[str, ...]:
    """Return the conditions in terms of the argument that says which gradients are wanted."""
    return tuple(c.replace(text(_ASKED), WANTED.id) for c in conditions)
