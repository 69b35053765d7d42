"""Assemble the lines of a body: every body goes through a list of passes over its lines.

A body is a forward, a backward of any order, a first-order backward, the tangents of forward mode,
or outputs and gradients in one function. Their lists differ only in the passes that a body needs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from derive.algebra import substitution
from derive.lowering.ground.group_axes import named_later
from derive.lowering.ground.value import Value
from derive.lowering.layout_conversion import (
    Border,
    enter_layout,
    leave_layout,
    lines_read,
    own_shapes,
    resolve_sizes,
    shapes_before,
    store_layout,
)
from derive.lowering.lowering_input import (
    LoweringInput,
    differences_of,
    long_defaults,
    sources_of,
    vectors_of,
)
from derive.lowering.saved_values import with_kept_shapes, with_saved_shapes
from derive.notation.operation import Choice, Kind, Operation
from derive.passes import Pass, as_pass, stages
from derive.program.aliasing import is_rearrangement, unalias_outputs
from derive.program.cse import Line, is_brief, named_once, tidy
from derive.program.gradient_predication import (
    fill_output_masks,
    ordered,
    softmaxes_shared,
    with_needs,
)
from derive.program.guard_elimination import unguarded
from derive.program.legalize import legalize_arange, legalize_group_axes, legalize_vmap_calls
from derive.program.mixed_precision import (
    NAMES,
    PLAIN,
    Precision,
    all_wide,
    cast_where_made,
    in_precision,
    rounded,
)
from derive.program.program import Logged
from derive.program.public_calls import with_public_calls, with_subscripts
from derive.program.reduced_axes import with_kept_axes
from derive.program.roundings import Roundings
from derive.program.torch_ir import MethodCall, Name, names_in, values_in


@dataclass(frozen=True)
class BodySpec:
    """What a body reads and returns. All names are display names."""

    given: LoweringInput
    border: Border
    entering: Mapping[str, str]
    """name -> the tensor whose outer layout it has before the body."""
    leaving: Mapping[str, str]
    """result -> the tensor whose outer layout it has after the body."""
    inside: Mapping[str, str] = field(default_factory=dict)
    """name -> the tensor that the body computes for itself; either layout may be stored."""
    layouts: Mapping[str, bool] = field(default_factory=dict)
    """name -> True if its outer layout is stored, where that is decided already."""
    keeps_axes: bool = False
    """True if flags may keep reduced axes of the results."""
    entry: Sequence[Line] = ()
    """Lines that add the axes to arguments that flags may have kept."""
    sizes: Mapping[str, Value] = field(default_factory=dict)
    """The tensors whose shapes may be read, by canonical name."""
    sizes_kept: Mapping[str, Value] = field(default_factory=dict)
    """The tensors of which only the shape is kept, by canonical name."""
    stored: Collection[str] = ()
    """The arguments that hold a computed tensor in its outer layout, by canonical name."""
    present: Collection[str] = ()
    """The arguments whose shapes are read from the tensors themselves."""
    kinds: Mapping[str, Kind] = field(default_factory=dict)
    """argument -> its kind; float arguments are cast in this order."""
    returned: Collection[str] = ()
    """The float results that are rounded to the dtype of the arguments."""
    low: bool = True
    """True if matrix products may have a lower precision."""
    exact: bool = False
    """True if results keep the precision of float32, as other bodies read them."""
    gradients: Mapping[str, str] = field(default_factory=dict)
    """input -> the name of its gradient, in a backward."""
    places: Mapping[str, int] = field(default_factory=dict)
    """input -> its number among the arguments of the operation."""
    saved: Sequence[str] = ()
    """The names that a backward can save."""
    kept: Collection[str] = ()
    """The values that a forward saves for a backward, which keep their axes."""
    computed_wide: Collection[str] = ()
    """The saved values that the forward computed in the dtype wide."""
    unaliased: Collection[str] = ()
    """The results that may not share memory with an argument or with each other."""


@dataclass(frozen=True)
class Body:
    """The lines of a body between two passes."""

    spec: BodySpec
    lines: tuple[Line, ...]
    precision: Precision = PLAIN
    log: tuple[Logged, ...] = ()
    """The lines after each pass that changed them."""


def assemble(spec: BodySpec, statements: Sequence[Line], passes: Sequence[Pass[Body]]) -> Body:
    """Run the passes over the statements of a body."""
    body = Body(spec, tuple(statements))
    log = [Logged(*_LOWERED, (), body.lines)]
    for step, made in stages(passes, body):
        if made.lines != body.lines:
            log.append(Logged(step.name, step.states, body.lines, made.lines))
        body = made
    return replace(body, log=tuple(log))


_LOWERED = "lower", "An equation is a call, a pattern, or arithmetic on named axes"


@as_pass
def convert_layouts(body: Body) -> Body:
    """A composite axis (a b) is two axes inside; a name holds the layout that takes fewer views."""
    spec, border = body.spec, body.spec.border
    read = {name for line in body.lines for name in names_in(line.code)}
    held = {name: tensor for name, tensor in spec.entering.items() if name in read}
    lines, entry = enter_layout(border, list(body.lines), held)
    lines = store_layout(border, lines, spec.inside, spec.layouts)
    for name, tensor in spec.leaving.items():
        lines, code = leave_layout(border, lines, name, tensor, spec.keeps_axes)
        lines += [] if code is Name(name) else [Line(name, code)]
    return replace(body, lines=(*entry, *lines))


@as_pass
def read_sizes(body: Body) -> Body:
    """A size is an entry of an available shape."""
    spec, border, lets = body.spec, body.spec.border, body.spec.given.lets
    kept = [
        replace(source, shape=Name(f"{source.tensor}_shape"))
        for source in sources_of(border, lets, spec.sizes_kept)
    ]
    sources = sources_of(border, lets, spec.sizes, spec.stored)
    lines = resolve_sizes(border, body.lines, sources, kept)
    return replace(body, lines=tuple(own_shapes(lines, set(spec.present) - border.entered)))


@as_pass
def eliminate_guards(body: Body) -> Body:
    """where(c, a, b) is a if all its readers discard it where not c."""
    numbers = [p.name for p in body.spec.border.op.parameters]
    return replace(body, lines=tuple(unguarded(body.lines, tuple(body.spec.leaving), numbers)))


@as_pass
def assign_precision(body: Body) -> Body:
    """Products are computed in the dtype low, all else in wide."""
    spec, op = body.spec, body.spec.border.op
    floats = [name for name, kind in spec.kinds.items() if kind == "float"]
    integers = long_defaults(op) | (spec.kinds.keys() - floats)
    if spec.low:
        differences = differences_of(spec.given.lets)
        known = vectors_of(op), integers, differences, spec.computed_wide
        made = in_precision(body.lines, floats, spec.returned, *known)
    else:
        made = all_wide(body.lines, floats, integers)
    lines, precision = made
    if spec.exact and precision.roundings is Roundings.ONCE:
        precision = replace(precision, roundings=Roundings.MORE)
    lines = cast_where_made(lines, {*spec.leaving, *op.outputs, *spec.kept})
    return replace(body, lines=tuple(lines), precision=precision)


@as_pass
def share_subexpressions(body: Body) -> Body:
    """A repeat or a part of a long expression gets a name; a name that is read once goes."""
    reserved = body.spec.given.taken()
    return replace(body, lines=tuple(tidy(body.lines, reserved | NAMES)))


@as_pass
def name_group_axes(body: Body) -> Body:
    """The axes of a group have the name that the user gave it."""
    lines = (line.having(substitution.replace(line.code, named_later)) for line in body.lines)
    return replace(body, lines=tuple(lines))


@as_pass
def keep_reduced_axes(body: Body) -> Body:
    """A reduction keeps its axes if all readers insert them again."""
    spec = body.spec
    numbers = [p.name for p in spec.border.op.parameters]
    results = {*spec.leaving, *spec.border.op.outputs, *spec.kept}
    return replace(body, lines=tuple(with_kept_axes(body.lines, results, numbers)))


@as_pass
def call_publicly(body: Body) -> Body:
    """A call that only saves time is a public function of torch."""
    lines = (line.having(with_public_calls(line.code)) for line in body.lines)
    return replace(body, lines=tuple(lines))


@as_pass
def read_by_subscripts(body: Body) -> Body:
    """The elements of a first axis at positions are x[positions]."""
    lines = (line.having(with_subscripts(line.code)) for line in body.lines)
    return replace(body, lines=tuple(lines))


@as_pass
def share_long_terms(body: Body) -> Body:
    """What is long or a reduction, and computed twice, gets a name; all else stands in its line."""
    reserved = body.spec.given.taken()
    return replace(body, lines=tuple(tidy(body.lines, set(reserved), is_brief)))


@as_pass
def add_kept_axes(body: Body) -> Body:
    """An argument without the axes that a flag can keep gets them."""
    return replace(body, lines=(*lines_read(body.spec.entry, body.lines), *body.lines))


@as_pass
def predicate_gradients(body: Body) -> Body:
    """A line runs if a gradient that reads it is wanted; no gradient reads a dead line."""
    gradients = body.spec.gradients
    read = [line for line in with_needs(body.lines, gradients) if line.needs]
    return replace(body, lines=tuple(with_needs(ordered(read), gradients)))


@as_pass
def read_saved_shapes(body: Body) -> Body:
    """A shape is read from a tensor that is saved anyway, or saved on its own."""
    spec, border = body.spec, body.spec.border
    saved = [name for name in spec.saved if name not in border.entered]
    inputs = [name for name in spec.places if name not in border.entered]
    lines = with_saved_shapes(body.lines, saved)
    lines = named_once(with_kept_shapes(lines, inputs, border))
    return replace(body, lines=tuple(with_needs(lines, spec.gradients)))


@as_pass
def read_shapes_of_saved(body: Body) -> Body:
    """A shape is read from a tensor whose elements are read too."""
    border = body.spec.border
    read = {name for line in body.lines for name in values_in(line.code)}
    saved = [name for name in body.spec.saved if name in read and name not in border.entered]
    return replace(body, lines=tuple(own_shapes(body.lines, saved)))


@as_pass
def share_softmaxes(body: Body) -> Body:
    """exp(log_softmax(x)) is one softmax for all gradients."""
    return replace(body, lines=tuple(softmaxes_shared(body.lines, body.spec.places)))


@as_pass
def legalize_calls(body: Body) -> Body:
    """Calls that some tensor types or empty groups refuse are replaced."""
    lines = [line.having(legalize_arange(line.code)) for line in body.lines]
    if body.spec.border.has_groups:
        lines = [line.having(legalize_group_axes(line.code)) for line in lines]
    return replace(body, lines=tuple(lines))


@as_pass
def legalize_for_vmap(body: Body) -> Body:
    """Calls without a batching rule of autograd are replaced."""
    lines = (line.having(legalize_vmap_calls(line.code)) for line in body.lines)
    return replace(body, lines=tuple(lines))


@as_pass
def mask_outputs(body: Body) -> Body:
    """A call with several results computes those that are wanted."""
    return replace(body, lines=tuple(fill_output_masks(body.lines, body.spec.places)))


@as_pass
def round_results(body: Body) -> Body:
    """An output has the dtype to which the arguments promote."""
    return replace(body, lines=tuple(rounded(body.lines, body.precision.returned)))


@as_pass
def separate_aliases(body: Body) -> Body:
    """No output shares memory with an input or another output."""
    op = body.spec.border.op
    if rearranges(op, body.lines):
        return body
    inputs = [t.name for t in op.inputs]
    lines = unalias_outputs(body.lines, tuple(body.spec.unaliased), inputs)
    return replace(body, lines=tuple(lines))


@as_pass
def copy_returned_inputs(body: Body) -> Body:
    """An output that is an input is a copy: torch saves no input that is returned."""
    inputs = {Name(t.name) for t in body.spec.border.op.inputs}

    def own(line: Line) -> Line:
        returned = line.name in body.spec.unaliased and line.code in inputs
        return line.having(MethodCall(line.code, "clone")) if returned else line

    return replace(body, lines=tuple(map(own, body.lines)))


def rearranges(op: Operation, forward: Sequence[Line]) -> bool:
    """True if the forward returns only views of its inputs, for every option of a choice."""
    chosen = any(isinstance(p, Choice) for p in op.parameters)
    return not chosen and is_rearrangement(forward, op.outputs, [t.name for t in op.inputs])


@as_pass
def read_shapes_first(body: Body) -> Body:
    """Shapes of inputs and groups are read before all else."""
    return replace(body, lines=(*shapes_before(body.spec.border, body.lines), *body.lines))


FORWARD = (
    convert_layouts,
    name_group_axes,
    read_sizes,
    keep_reduced_axes,
    assign_precision,
    share_subexpressions,
    legalize_calls,
    round_results,
    separate_aliases,
    read_shapes_first,
)
_READ_LATER = (
    add_kept_axes,
    predicate_gradients,
    read_saved_shapes,
    share_softmaxes,
    legalize_for_vmap,
    legalize_calls,
    mask_outputs,
)
_READ_FIRST = convert_layouts, name_group_axes, read_sizes
BACKWARD = (
    *_READ_FIRST,
    *(keep_reduced_axes, assign_precision, share_subexpressions),
    *_READ_LATER,
)
FIRST_ORDER = (*_READ_FIRST, eliminate_guards, *BACKWARD[len(_READ_FIRST) :])
TANGENTS = (
    convert_layouts,
    name_group_axes,
    read_sizes,
    keep_reduced_axes,
    add_kept_axes,
    assign_precision,
    share_subexpressions,
    legalize_calls,
    read_shapes_first,
)
_PLAIN = (
    *(convert_layouts, name_group_axes, read_sizes),
    *(keep_reduced_axes, call_publicly, share_long_terms, read_by_subscripts),
)
PLAIN_FORWARD = (*_PLAIN, copy_returned_inputs, read_shapes_first)
PLAIN_BACKWARD = (*_PLAIN, add_kept_axes, predicate_gradients, read_shapes_of_saved)
