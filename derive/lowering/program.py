"""Lowers one operation to a program: its forward, its saved tensors, and its backward.

The differentiable backward reads only inputs and outputs, and recomputes all else. The first-order
backward also reads what the forward offers (`derive.lowering.saved_values`). Each backward line
lists the gradients that need it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from derive.calculus.adjoint import Backward
from derive.calculus.lets import Let, Lets
from derive.kernels.attention_rewrite import Attentions
from derive.kernels.normalization import NormalizationPattern
from derive.kernels.recognise import (
    Pattern,
    SingleKernels,
    backward_rows,
    forward_rows,
    summed_rows,
)
from derive.kernels.table import ATTENTIONS, KERNELS, NORMALISATIONS
from derive.lowering.assembly import (
    WIDTH,
    LoweringInput,
    float_axes,
    float_outputs,
    frame_of,
    input_values,
    integer_tensors,
    integers_of,
    legalize_lines,
    like_input,
    named_tensors,
    noted_patterns,
    scope_statements,
    short_axes,
    sources_of,
    vectors_of,
    with_display_names,
)
from derive.lowering.forward import forward_of, rearranges
from derive.lowering.ground.context import Scope
from derive.lowering.ground.value import Frame, NeedsFlatGroups, Value
from derive.lowering.keepdim import entered_axes
from derive.lowering.layout_conversion import (
    Border,
    enter_layout,
    leave_layout,
    lines_read,
    multiplied_once,
    resolve_sizes,
    store_layout,
)
from derive.lowering.nodes.lower import Lowering
from derive.lowering.saved_tensors import readers_of, saved_of, with_kept_shapes, with_saved_shapes
from derive.lowering.saved_values import Offer, Statistics
from derive.notation.operation import Choice, Operation, Tensor
from derive.program.cse import Line, tidy
from derive.program.gradient_predication import (
    fill_output_masks,
    needed_by,
    ordered,
    softmaxes_shared,
)
from derive.program.guard_elimination import unguarded
from derive.program.legalize import legalize_vmap_calls
from derive.program.mixed_precision import NAMES, all_wide, in_precision
from derive.program.program import BackwardLine, Program, with_first_order
from derive.program.torch_ir import (
    Conditional,
    FunctionCall,
    MethodCall,
    Name,
    names_in,
    values_in,
)
from derive.program.torch_ops import count

Pulled = Callable[[Sequence[str], bool], LoweringInput | None]
"""Derives the backward with adjoints of equations as results; the flag flattens groups."""


def program(
    given: LoweringInput,
    flat: Callable[[], LoweringInput],
    available: Collection[str] | None = None,
    keeps: bool = True,
    pulled: Pulled | None = None,
) -> Program:
    """Lower the forward and the backward; ``flat`` returns the input with flattened groups.

    ``available`` are the outputs that the backward may read. If it is given, or if ``keeps`` is
    false, the backward reads no statistics. ``pulled`` derives a backward through a statistic, for
    use where no input need then be kept for the statistic alone.

    Flattened groups are less readable and equally fast. Kernels take groups as they are, so that
    possibly only the body without kernels needs flattening.
    """
    try:
        return _program_of_layouts(given, given, available, keeps, _of_layout(pulled, False))
    except NeedsFlatGroups:
        other = flat()
    try:
        return _program_of_layouts(given, other, available, keeps)
    except NeedsFlatGroups:
        return _program_of_layouts(other, other, available, keeps, _of_layout(pulled, True))


def _of_layout(
    pulled: Pulled | None, flat: bool
) -> Callable[[Sequence[str]], LoweringInput | None] | None:
    return None if pulled is None else lambda names: pulled(names, flat)


def _program_of_layouts(
    given: LoweringInput,
    every: LoweringInput,
    available: Collection[str] | None,
    keeps: bool,
    pulled: Callable[[Sequence[str]], LoweringInput | None] | None = None,
) -> Program:
    """Return the program whose differentiable body is that of ``every``."""
    own = replace(given, lets=given.lets.apart())
    given, every = own, own if every is given else every
    named = Statistics(given.lets).named
    norms = [NormalizationPattern(NORMALISATIONS, named, pulled) for pulled in (False, True)]
    known = short_axes(given.op, given.lets), float_axes(given.op, given.lets)
    ahead, back = SingleKernels(forward_rows(*known)), SingleKernels(backward_rows(*known))
    optional = [t.name for t in given.op.inputs if t.default is not None]
    none = Attentions({})
    keeps = keeps and available is None
    means = none
    if keeps:
        means = Attentions.of(ATTENTIONS, given.lets, given.backward, named, optional)
    forward = forward_of(given, [means, norms[0], ahead])
    if every is not given and not forward.scope.results:
        raise NeedsFlatGroups("a body without kernels")
    lines, precision, found = forward.lines()

    def first(outputs: Collection[str], statistics: Mapping[str, Value]) -> Program:
        known = means if means.kept <= set(statistics) else none
        kernels: list[Pattern] = [known, norms[1], back, SingleKernels(summed_rows(statistics))]
        held = (outputs, statistics, forward.stored)
        return _lower_backward(given, lines, precision.has_products, kernels, *held, means.kept)

    def plain(outputs: Collection[str], kept: Collection[str] = ()) -> Program:
        held = {n: v for n, v in forward.offered.values.items() if n in kept}
        known = (outputs, held, forward.stored)
        return _lower_backward(every, lines, precision.has_products, (), *known)

    outputs = [
        n for n in given.op.outputs if available is None or given.lets.display_name(n) in available
    ]

    def through(names: Sequence[str]) -> Program | None:
        """Return the body that reads statistics like outputs, which have cotangents then."""
        other = None if pulled is None else pulled(names)
        if other is None:
            return None
        held = {name: forward.offered.values[name] for name in names}
        kept = (outputs, held, forward.stored)
        return _lower_backward(other, lines, precision.has_products, (), *kept, pulled=names)

    offered = forward.offered if keeps else Offer()
    made = _in_orders(given, outputs, first, plain, through, offered, every is given)
    if made.statistics:
        said = {given.lets.display_name(name): name for name in forward.offered.values}
        lines, precision, found = forward.lines([said[name] for name in made.statistics])
        made = replace(made, forward=lines)
    chosen = any(isinstance(p, Choice) for p in given.border.op.parameters)
    if forward.scope.results or (chosen and made.statistics):
        # If one option of a choice has such a body, every option returns its outputs alone.
        composed, exact, _ = forward_of(every, [ahead]).lines()
        made = replace(made, composed=composed, composed_precision=exact)
    views = rearranges(given.border.op, lines)
    recognised = tuple(dict.fromkeys((*found, *made.recognised)))
    return replace(made, recognised=recognised, rearranges=views, forward_precision=precision)


def _in_orders(
    given: LoweringInput,
    outputs: Sequence[str],
    first_order: Callable[[Collection[str], Mapping[str, Value]], Program],
    plain: Callable[..., Program],
    through: Callable[[Sequence[str]], Program | None],
    offered: Offer,
    alike: bool,
) -> Program:
    """Return the backward of any order, and a first-order one with kernels and statistics.

    Both share the saved tensors: an output that only one of the bodies would save is recomputed.
    """
    display_name = given.lets.display_name
    first = first_order(outputs, offered.values)
    called = {display_name(name): name for name in offered.values}
    while (less := offered.without_maps_beside([called[s] for s in first.statistics])) != offered:
        offered = less
        first = first_order(outputs, offered.values)
    if first.statistics:
        with suppress(NeedsFlatGroups):
            first = min(first_order(outputs, {}), first, key=_count_operations)
    kernels = any(r.pattern in KERNELS for r in first.recognised)
    if not kernels and not first.statistics:
        return first if alike and not offered.values else plain(outputs)
    saved = {s.name for s in first.saved}
    kept = [name for name in outputs if display_name(name) in saved]
    # An integer position has no derivative, so both bodies may read it.
    places = [n for n, v in offered.values.items() if v.kind == "int" and display_name(n) in saved]
    places = places if alike else []
    every = plain(outputs, places)
    if {s.name for s in every.saved}.intersection(map(display_name, outputs)) - saved:
        others = [every, plain(kept, places)]
        every = min(others, key=lambda m: len(saved.union(s.name for s in m.saved)))
    if first.backward == every.backward:
        return every
    return _saving_less(given, through, offered, every, first)


def _saving_less(
    given: LoweringInput,
    through: Callable[[Sequence[str]], Program | None],
    offered: Offer,
    every: Program,
    first: Program,
) -> Program:
    """Merge both bodies; the graph leads through a statistic if that keeps fewer inputs."""
    made = with_first_order(every, first)
    saved, own = ({s.name for s in p.saved} for p in (made, first))
    if saved <= own or sum(c is not None for _, c in every.cotangents) != 1:
        return made
    inputs = {t.name: len(t.axes) for t in given.border.op.inputs}
    chosen: list[str] = []
    for name, value in offered.values.items():
        let = given.lets.given.get(name)
        if given.lets.display_name(name) not in own or let is None or value.kind != "float":
            continue
        others = [x for x in given.lets.given.values() if x is not let]
        read = {
            given.lets.display_name(n) for n in let.reads().difference(*(x.reads() for x in others))
        }
        large = {n for n in read & (saved - own) if inputs.get(n, 0) >= len(let.formals)}
        with suppress(NeedsFlatGroups):
            other = through([*chosen, name]) if large else None
            if other is not None:
                less = with_first_order(other, first)
                left = {s.name for s in less.saved}
                if left < saved and not large <= left:
                    chosen, made, saved = [*chosen, name], less, left
    return made


def _count_operations(made: Program) -> int:
    """Return the number of operations of the backward."""
    return sum(count([x.line.code for x in made.backward]))


def _lower_backward(
    given: LoweringInput,
    forward: tuple[Line, ...],
    products: bool,
    kernels: Sequence[Pattern],
    outputs_at_hand: Collection[str],
    statistics: Mapping[str, Value],
    stored: Collection[str],
    shapeless: Collection[str] = (),
    pulled: Sequence[str] = (),
) -> Program:
    """Return the program of this backward; it reads no shape from ``shapeless`` tensors.

    Statistics that are ``pulled`` are differentiated: each has a cotangent, which may be None.
    """
    op, lets, backward, border = given.op, given.lets, given.backward, given.border.again()
    frame, taken = frame_of(op), given.taken()
    display_name, cotangents = lets.display_name, dict(backward.cotangents)
    tensors = _backward_inputs(op, lets, cotangents, outputs_at_hand)
    entry = _enter_kept(op, lets, frame, cotangents, tensors)
    adjoints = {a.name: a.as_let() for a in (*backward.adjoints, *backward.gradients)}
    like = Name(next(iter(cotangents.values()))) if cotangents else like_input(op)

    def find(name: str) -> Let | None:
        return adjoints.get(name) or lets.get(name)

    names = frozenset(adjoints)
    available = {**tensors, **statistics}
    scope = Lowering(find, frame, available, like, integers_of(op), names, kernels)
    bodies = [let.body for let in adjoints.values()]
    for pattern in kernels:
        if isinstance(pattern, NormalizationPattern):
            pattern.look(bodies, find)
    for g in backward.gradients:
        scope.tensor(g.name)
    added = _with_cotangents(given, scope, pulled)
    gradients = {display_name(g.tensor): display_name(g.name) for g in backward.gradients}
    held = (tensors, statistics, stored, shapeless)
    lines = _lines_across_border(op.inputs, lets, backward, border, scope, *held, gradients)
    if statistics and kernels:
        # First order only: values that only a guard reads need not be saved.
        own = tuple(gradients.values())
        lines = [line for line, _ in unguarded([(line, ()) for line in lines], own)]
    floats = [t.name for t in border.op.inputs if t.kind == "float"]
    known = {display_name(name) for name in outputs_at_hand}
    outer = [name for name in float_outputs(border.op) if name in known]
    kept = [display_name(name) for name in statistics]
    taken_in = [
        *floats,
        *outer,
        *(display_name(n) for n, v in statistics.items() if v.kind == "float"),
    ]
    taken_in += [*map(display_name, cotangents.values()), *added.values()]
    integers = integer_tensors(border.op)
    integers |= {display_name(name) for name, value in statistics.items() if value.kind != "float"}
    if products:
        vectors = vectors_of(border.op)
        lines, precision = in_precision(lines, taken_in, vectors=vectors, integers=integers)
    else:
        lines, precision = all_wide(lines, taken_in, integers)
    lines = tidy(multiplied_once(border, lines, taken), taken | NAMES, WIDTH)
    lines = [*lines_read(with_display_names(entry, lets), lines), *lines]
    found = zip(lines, needed_by(lines, gradients), strict=True)
    read = [(line, own) for line, own in found if own]
    lines = ordered([line for line, _ in read], [own for _, own in read])
    needs = needed_by(lines, gradients)
    places = {display_name(t.name): n for n, t in enumerate(op.inputs)}
    outputs = {name: display_name(name) for name in op.outputs}
    said = (*places, *(outputs[name] for name in outputs_at_hand), *kept)
    lines = with_saved_shapes(lines, needs, [n for n in said if n not in border.entered])
    lines = with_kept_shapes(lines, needs, [n for n in places if n not in border.entered], border)
    readers = readers_of(lines, needs)
    values = readers_of(lines, needs, values_in) if statistics else readers
    if alone := [
        n
        for n in statistics
        if readers.get(display_name(n), set()) - values.get(display_name(n), set())
    ]:
        # Do not keep a tensor alive for its shape alone.
        less = (*shapeless, *alone)
        at_first = (outputs_at_hand, statistics, stored)
        return _lower_backward(given, forward, products, kernels, *at_first, less, pulled)
    shared = softmaxes_shared(lines, needs, places, WIDTH)
    made = legalize_lines(
        border, [replace(line, code=legalize_vmap_calls(line.code)) for line, _ in shared]
    )
    shared = fill_output_masks(
        [(x, wanted) for x, (_, wanted) in zip(made, shared, strict=True)], places
    )
    setup = lines_read(border.groups, lines)
    parameters = tuple(p.name for p in border.op.parameters)
    return Program(
        inputs=tuple(t.name for t in border.op.inputs),
        parameters=parameters,
        outputs=border.op.outputs,
        forward=forward,
        differentiable=tuple(gradients),
        cotangents=tuple(
            (display_names, display_name(cotangents[name]) if name in cotangents else None)
            for name, display_names in outputs.items()
        ),
        saved=saved_of(said, gradients, readers),
        kept_parameters=tuple(name for name in parameters if name in readers),
        kept_shapes=tuple(t for t in border.shapes.used if f"{t}_shape" in readers),
        backward=tuple(BackwardLine(line, wanted) for line, wanted in shared),
        gradients=gradients,
        setup=tuple(setup),
        kept_groups=tuple(g.name for g in setup if g.name.endswith("_shape")),
        recognised=noted_patterns(scope, lets),
        statistics=tuple(name for name in kept if name in readers),
        pulled=added,
        backward_precision=precision,
    )


def _with_cotangents(given: LoweringInput, scope: Scope, pulled: Sequence[str]) -> dict[str, str]:
    """Add cotangents to the adjoints of these statistics; return their names by statistic."""
    lets, found = given.lets, dict[str, str]()
    for name in pulled:
        (adjoint,) = (a for a in given.backward.adjoints if a.tensor == name)
        cotangent = found[lets.display_name(name)] = lets.display_name(
            lets.derived_name(name, f"G_{lets.display_name(name)}")
        )
        for n, s in enumerate(scope.statements):
            if s.name == adjoint.name:
                code = FunctionCall("_with_cotangent", (s.code, Name(cotangent)))
                scope.statements[n] = replace(s, code=code)
    return found


def _backward_inputs(
    op: Operation, lets: Lets, cotangents: Mapping[str, str], outputs: Collection[str]
) -> dict[str, Value]:
    """Return inputs, these outputs, and cotangents."""
    tensors = input_values(op)
    for name in op.outputs:
        let = lets[name]
        if name in outputs:
            tensors[name] = Value(Name(name), let.formals, let.dtype)
        if name in cotangents:
            tensors[cotangents[name]] = Value(Name(cotangents[name]), let.formals)
    return tensors


def _lines_across_border(
    inputs: Sequence[Tensor],
    lets: Lets,
    backward: Backward,
    border: Border,
    scope: Scope,
    tensors: Mapping[str, Value],
    statistics: Mapping[str, Value],
    stored: Collection[str],
    shapeless: Collection[str],
    gradients: Mapping[str, str],
) -> list[Line]:
    """Return the statements between tensors in outer layout, with sizes read from saved tensors."""
    read = {name for s in scope.statements for name in names_in(s.code)}
    lines = with_display_names(scope_statements(scope), lets)
    known = named_tensors(lets, [name for name in tensors if name in read])
    kept = named_tensors(lets, [name for name in statistics if name in read])
    known |= {name: tensor for name, tensor in kept.items() if name in stored}
    lines, first = enter_layout(border, lines, known)
    made = [e for e in lets.given if e not in tensors and e not in statistics]
    lines = store_layout(
        border, lines, named_tensors(lets, [*made, *(a.name for a in backward.adjoints)])
    )
    for tensor, name in gradients.items():
        lines, code = leave_layout(border, lines, name, tensor)
        lines += [Line(name, code)] if code is not Name(name) else []
    available = {name: value for name, value in tensors.items() if name in read}
    others = {t.name: tensors[t.name] for t in inputs if t.name not in read}
    saved = [
        replace(source, shape=Name(f"{source.tensor}_shape"))
        for source in sources_of(border, lets, others)
    ]
    shaped = {name: statistics[name] for name in statistics if name not in shapeless}
    available |= {name: value for name, value in shaped.items() if name in read}
    return [
        *first,
        *resolve_sizes(border, lines, sources_of(border, lets, available, stored), saved),
    ]


def _enter_kept(
    op: Operation,
    lets: Lets,
    frame: Frame,
    cotangents: Mapping[str, str],
    tensors: dict[str, Value],
) -> list[Line]:
    """Give outputs and cotangents the axes that flags may have kept; return the lines for it."""
    entry = []
    for output in op.outputs:
        axes, missing = entered_axes(op, lets[output].formals, frame)
        for name in (output, cotangents.get(output)):
            if name in tensors and missing:
                assert name is not None
                tensors[name] = replace(tensors[name], axes=axes)
                whole = Name(name)
                for flag, place in missing:
                    wide = MethodCall(whole, "unsqueeze", (place,))
                    entry.append(Line(name, Conditional(flag, whole, wide)))
    return entry
