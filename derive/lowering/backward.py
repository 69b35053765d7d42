"""Lowers one backward of an operation: which tensors it reads, and what each gradient computes.

Each line lists the gradients that need it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from derive.calculus.lets import Lets
from derive.kernels.normalization import NormalizationPattern
from derive.kernels.recognise import Pattern, SingleKernels, summed_rows
from derive.lowering.assembly import BACKWARD, FIRST_ORDER, Body, BodySpec, assemble
from derive.lowering.ground.context import Scope
from derive.lowering.ground.value import Value
from derive.lowering.layout_conversion import lines_read
from derive.lowering.lowering_input import (
    LoweringInput,
    argument_kinds,
    enter_kept,
    found_first,
    input_values,
    lowered,
    named_tensors,
    noted_patterns,
    scope_statements,
    with_display_names,
)
from derive.lowering.nodes.lower import Lowering
from derive.lowering.saved_values import Offer, readers_of, saved_of
from derive.notation.operation import Operation
from derive.passes import Pass
from derive.program.program import Program
from derive.program.torch_ir import FunctionCall, Name, names_in, values_in


@dataclass(frozen=True)
class BackwardInput:
    """A derivation to lower, and what its backward may read."""

    given: LoweringInput
    forward: Body
    outputs: Collection[str]
    """The outputs that are saved, or can be."""
    offer: Offer = field(default_factory=Offer)
    """The intermediates of the forward that are saved, or can be."""
    stored: Collection[str] = ()
    """The names that hold a tensor in its outer layout."""
    kernels: Sequence[Pattern] = ()
    smooth: bool = False
    """True if torch differentiates the calls of these kernels, in every order and mode."""
    shapeless: Collection[str] = ()
    """The tensors from which no shape is read."""
    kept: Collection[str] = ()
    """The statistics of another backward, which have the same axes in both."""
    pulled: Mapping[str, str] = field(default_factory=dict)
    """A differentiated statistic -> the name of its cotangent, which may be None."""

    @property
    def statistics(self) -> Mapping[str, Value]:
        return self.offer.values


def lower_backward(request: BackwardInput, passes: Sequence[Pass[Body]] | None = None) -> Program:
    """Return the program of this backward, in which no statistic is kept for its shape alone.

    Nor does it read a map of a statistic beside the statistic.
    """
    first_order = bool(request.statistics and request.kernels and not request.smooth)
    passes = passes or (FIRST_ORDER if first_order else BACKWARD)
    while True:
        scope, spec = _scope_and_spec(request)
        read = {name for s in scope.statements for name in names_in(s.code)}
        kept = read.intersection(request.statistics.keys() - request.pulled.keys())
        less = request.offer.without_maps_beside(kept)
        if less != request.offer:
            request = replace(request, offer=less)
            continue
        statements = with_display_names(scope_statements(scope, request.given), request.given.lets)
        body = assemble(spec, statements, passes)
        alone = _kept_for_shape(request, body)
        if not alone:
            return _as_program(request, scope, body)
        request = replace(request, shapeless=(*request.shapeless, *alone))


def _kept_for_shape(request: BackwardInput, body: Body) -> list[str]:
    """Return the statistics of which a gradient reads the shape and no elements."""
    readers = readers_of(body.lines)
    values = readers_of(body.lines, values_in)
    said = {n: request.given.lets.display_name(n) for n in request.statistics}
    return [n for n, s in said.items() if readers.get(s, set()) - values.get(s, set())]


def _scope_and_spec(request: BackwardInput) -> tuple[Lowering, BodySpec]:
    """Return the lowered statements and the spec of the body."""
    given, statistics = request.given, request.statistics
    op, lets, backward, border = given.op, given.lets, given.backward, given.border.again()
    display_name, cotangents = lets.display_name, dict(backward.cotangents)
    tensors = _backward_inputs(op, lets, cotangents, request.outputs)
    crossing = ((n, own) for n in op.outputs for own in (n, cotangents.get(n, "")))
    entry = enter_kept(op, lets, tensors, crossing)
    scope = _lowered_gradients(request, tensors)
    _add_cotangents(given, scope, request.pulled)
    read = {name for s in scope.statements for name in names_in(s.code)}
    outer = {n: t for n, t in named_tensors(lets, statistics).items() if n in request.stored}
    made = [e for e in lets.given if e not in tensors and e not in statistics]
    shaped = {n: v for n, v in statistics.items() if n not in request.shapeless}
    known = set(map(display_name, request.outputs))
    kinds = {display_name(name): value.kind for name, value in statistics.items()}
    places = {display_name(t.name): n for n, t in enumerate(op.inputs)}
    spec = BodySpec(
        given,
        border,
        entering=named_tensors(lets, tensors) | outer,
        leaving={display_name(g.name): display_name(g.tensor) for g in backward.gradients},
        inside=named_tensors(lets, [*made, *(a.name for a in backward.adjoints)]),
        entry=with_display_names(entry, lets),
        sizes={n: v for n, v in (*tensors.items(), *shaped.items()) if n in read},
        sizes_kept={t.name: tensors[t.name] for t in op.inputs if t.name not in read},
        stored=request.stored,
        kinds=argument_kinds(border.op, known)
        | kinds
        | dict.fromkeys(
            [*map(display_name, cotangents.values()), *request.pulled.values()], "float"
        ),
        kept=[*map(display_name, statistics), *request.kept],
        low=request.forward.precision.has_products,
        computed_wide={*map(display_name, statistics)} - request.forward.precision.low,
        gradients={display_name(g.tensor): display_name(g.name) for g in backward.gradients},
        places=places,
        saved=(*places, *(display_name(n) for n in op.outputs if n in request.outputs), *kinds),
    )
    return scope, spec


def _lowered_gradients(request: BackwardInput, tensors: Mapping[str, Value]) -> Lowering:
    lets, backward = request.given.lets, request.given.backward
    adjoints = {a.name: a.as_let() for a in (*backward.adjoints, *backward.gradients)}
    find = partial(found_first, adjoints, lets)
    cotangents = [own for _, own in backward.cotangents]
    like = Name(cotangents[0]) if cotangents else None
    kernels = [*request.kernels]
    if kernels and not request.smooth:
        kernels.append(SingleKernels(summed_rows(request.statistics)))
    for pattern in kernels:
        if isinstance(pattern, NormalizationPattern):
            pattern.look([let.body for let in adjoints.values()], find)
    names = [g.name for g in backward.gradients]
    pulled = [a.name for a in backward.adjoints if a.tensor in request.pulled]
    known = {**tensors, **request.statistics}
    return lowered(request.given, known, names, adjoints, like, kernels, pulled)


def _as_program(request: BackwardInput, scope: Lowering, body: Body) -> Program:
    lets, border, spec = request.given.lets, body.spec.border, body.spec
    readers = readers_of(body.lines)
    setup = lines_read(border.groups, body.lines)
    parameters = tuple(p.name for p in border.op.parameters)
    cotangents = dict(request.given.backward.cotangents)
    return Program(
        inputs=tuple(t.name for t in border.op.inputs),
        parameters=parameters,
        outputs=border.op.outputs,
        forward=request.forward.lines,
        differentiable=tuple(spec.gradients),
        cotangents=tuple(
            (lets.display_name(n), lets.display_name(cotangents[n]) if n in cotangents else None)
            for n in request.given.op.outputs
        ),
        saved=saved_of(spec.saved, spec.gradients, readers),
        kept_parameters=tuple(name for name in parameters if name in readers),
        kept_shapes=tuple(t for t in border.shapes.used if f"{t}_shape" in readers),
        backward=body.lines,
        gradients=spec.gradients,
        setup=tuple(setup),
        kept_groups=tuple(g.name for g in setup if g.name in readers),
        recognised=noted_patterns(scope, lets),
        statistics=tuple(n for n in map(lets.display_name, request.statistics) if n in readers),
        # What is held has no gradient: nothing reads the cotangent.
        pulled={lets.display_name(n): g for n, g in request.pulled.items() if g in readers},
        backward_precision=body.precision,
        log={"backward": body.log},
    )


def _add_cotangents(given: LoweringInput, scope: Scope, pulled: Mapping[str, str]) -> None:
    """Add the cotangents to the adjoints of these statistics."""
    adjoints = {a.name: pulled[a.tensor] for a in given.backward.adjoints if a.tensor in pulled}
    for n, s in enumerate(scope.statements):
        if s.name in adjoints:
            code = FunctionCall("rt.add_cotangent", (s.code, Name(adjoints[s.name])))
            scope.statements[n] = replace(s, code=code)


def _backward_inputs(
    op: Operation, lets: Lets, cotangents: Mapping[str, str], outputs: Collection[str]
) -> dict[str, Value]:
    tensors = input_values(op)
    for name in op.outputs:
        let = lets[name]
        if name in outputs:
            tensors[name] = Value(Name(name), let.formals, let.dtype)
        if name in cotangents:
            tensors[cotangents[name]] = Value(Name(cotangents[name]), let.formals)
    return tensors
