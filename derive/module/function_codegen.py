"""Generate the forward function and the autograd.Function of a program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from derive.module.arguments import in_turn
from derive.module.outside import Outside
from derive.module.pretty_printer import (
    COLUMNS,
    assigned,
    call_lines,
    formatted_statement,
    indented,
)
from derive.module.reduced import Reductions
from derive.notation.operation import Choice, Operation
from derive.program.aliasing import gradients_apart
from derive.program.cse import Line
from derive.program.dataflow import live_in
from derive.program.gradient_predication import Needs, conditions
from derive.program.mixed_precision import Precision, multiplies
from derive.program.program import Program, Tangent
from derive.program.roundings import Roundings
from derive.program.torch_ir import (
    Attribute,
    Code,
    Conditional,
    FunctionCall,
    Name,
    names_in,
    subexpressions,
    text,
)
from derive.program.torch_ops import torch_op

Body = list[tuple[Line, Needs]]
"""The lines of a backward, and the inputs whose gradients need each."""

KEPT_SHAPE = "output_shape"
"""The ctx attribute with the shape of an output whose cotangent may be None."""


@dataclass(frozen=True)
class Variant:
    """The program of one option of a choice; ``option`` is None without a choice."""

    option: str | None
    program: Program
    tangent: Tangent | None = None
    """Its own forward mode, if torch's would be wrong."""
    reductions: Reductions | None = None
    """All options, if they are reductions of one equation."""
    outside: Outside | None = None
    """All options, if they are computed outside of the Function."""


@dataclass(frozen=True)
class _Class:
    """Template fields of an autograd.Function."""

    name: str
    forward: tuple[str, ...]
    outcome: str
    setup: tuple[str, ...]
    backward_signature: tuple[str, ...]
    backward: tuple[str, ...]


@dataclass(frozen=True)
class Lines:
    """Template fields of one option: the forward, and a class unless the forward makes views."""

    signature: tuple[str, ...]
    forward: tuple[str, ...]
    composed: tuple[str, ...]
    """The forward that torch itself differentiates, if it differs."""
    classes: tuple[_Class, ...]

    def lines(self) -> Iterator[str]:
        """Yield all lines of computation."""
        yield from (*self.forward, *self.composed)
        for c in self.classes:
            yield from (*c.setup, *c.backward_signature, *c.backward)


def camel_case(name: str) -> str:
    """Return a name of words joined by _ as one of words that begin with capitals."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def function_names(op: Operation, option: str | None) -> tuple[str, str]:
    """Return (class, forward function) of one option."""
    suffix = "" if option is None else f"_{option}"
    return f"_{camel_case(op.name)}{camel_case(suffix)}", f"_{op.name}{suffix}_forward"


def arguments(op: Operation) -> list[str]:
    return [t.name for t in op.inputs] + [
        p.name for p in op.parameters if not isinstance(p, Choice)
    ]


def function_of(op: Operation, variant: Variant) -> Lines:
    program = variant.program
    results = (*program.outputs, *program.statistics)
    _, name = function_names(op, variant.option)
    reducer = [] if variant.reductions is None else _reducer(op, variant.reductions)
    return Lines(
        signature=(*reducer, *call_lines(f"def {name}(", arguments(op), "):", 0)),
        forward=_forward_body(op, program.forward, program.forward_precision, results),
        composed=_composed_function(op, variant),
        classes=() if program.rearranges else (_function_class(op, variant),),
    )


def _reducer(op: Operation, r: Reductions) -> list[str]:
    """Return the function of the chosen reduction."""
    x = Name(r.equation)
    lines = [f"def {r.function(op)}({x.id}, {r.choice}):"]
    for option, reduction in r.others.items():
        lines += [f"    if {text(r.test(option))}:", f"        return {text(reduction.of(x))}"]
    return [*lines, f"    return {x.id}", "", ""]


def _forward_body(
    op: Operation, body: Sequence[Line], precision: Precision, results: Sequence[str]
) -> tuple[str, ...]:
    """Return the body of a function that computes ``results``."""
    forward = _reused_memory(body, [t.name for t in op.inputs], 4) + _dtypes(op, precision)
    exact = precision.multiplies_wide
    indent = 8 if exact else 4
    made = cast_inputs(precision, indent)
    made += [s for line in body[:-1] for s in assigned(line, indent)]
    last = body[-1] if body else None
    if last is not None and list(results) == [last.name]:
        made += formatted_statement("return ", last.code, indent)
    else:
        made += assigned(last, indent) if last is not None else []
        made += return_statement(results, indent)
    forward += [f"with rt.no_autocast({floats_of(op)[0]}):", *indented(made, 4)] if exact else made
    return indented(forward, 4)


def _reused_memory(lines: Sequence[Line], tensors: Sequence[str], indent: int) -> list[str]:
    """Return the line that decides whether temporaries of a body are overwritten."""
    codes = (part for line in lines for part in subexpressions(line.code))
    if not any(isinstance(c, FunctionCall) and c.name.startswith("reuse.") for c in codes):
        return []
    return call_lines("reuse = rt.reuse(", tensors, ")", indent)


def _composed_function(op: Operation, variant: Variant) -> tuple[str, ...]:
    """Return the forward that torch itself differentiates, or ()."""
    program = variant.program
    if not program.composed:
        return ()
    start = call_lines(f"def {composed_name(op, variant)}(", arguments(op), "):", 0)
    own = _forward_body(op, program.composed, program.composed_precision, program.outputs)
    return (*start, *own, "", "")


def composed_name(op: Operation, variant: Variant) -> str:
    """Return the name of the forward that torch itself differentiates."""
    _, forward = function_names(op, variant.option)
    if not variant.program.composed:
        return forward
    return forward.removesuffix("forward") + "composed"


def floats_of(op: Operation) -> list[str]:
    return [t.name for t in in_turn(op) if t.kind == "float"]


def _dtypes(op: Operation, precision: Precision) -> list[str]:
    """Return the lines that compute the dtypes of a forward."""
    floats = floats_of(op)
    lines = []
    if precision.has_products:
        lines += call_lines("low = rt.autocast_product(", floats, ")", 4)
    if "dtype" in precision.names:
        lines += dtype_lines("dtype", floats, precision.listed, 4, precision.listed_where)
    return lines


def dtype_lines(
    name: str, floats: Sequence[str], listed: bool, indent: int, where: Code | None = None
) -> list[str]:
    """Return the lines that compute the dtype of a result; ``listed`` as under autocast.

    ``where`` is the test that decides this at run time.
    """
    given = tuple(map(Name, floats))
    plain: Code = FunctionCall("rt.promoted", given)
    code: Code = Attribute(given[0], "dtype") if len(given) == 1 else plain
    if listed:
        wide = FunctionCall("rt.autocast_float32", given)
        code = wide if where is None else Conditional(where, wide, code)
    return formatted_statement(f"{name} = ", code, indent)


def cast_inputs(precision: Precision, indent: int) -> list[str]:
    """Return the lines that cast the input tensors of a body to its dtypes."""
    lines: list[str] = []
    narrow, broad = precision.narrow, precision.broad
    of_product = precision.has_products
    if of_product and ("wide" in precision.names or broad):
        lines.append("wide = torch.promote_types(low, torch.float32)")
    if narrow:
        lines += unpacked_call(narrow, "rt.cast", ("low", *narrow), indent)
    if broad:
        helper, more = ("rt.cast", ("wide",)) if of_product else (_HELPERS[precision.roundings], ())
        lines += unpacked_call(broad, helper, (*more, *broad), indent)
    return lines


_HELPERS = {
    Roundings.NONE: "rt.cast_alike",
    Roundings.ONCE: "rt.widened_for_kernel",
    Roundings.MORE: "rt.widened",
}
"""The helper that casts the tensors of a body without products, by its count of roundings."""


def unpacked_call(
    names: Sequence[str], function: str, arguments: Sequence[str], indent: int
) -> list[str]:
    """Return ``names = function(arguments)``, where the function returns a list."""
    if len(names) == 1:
        return call_lines(f"{names[0]} = {function}(", arguments, ")[0]", indent)
    left = ", ".join(names)
    if len(f"{left} = {function}({', '.join(arguments)})") + indent > COLUMNS:
        lines = call_lines(f"given = {function}(", arguments, ")", indent)
        return [*lines, *_unpacked_all(names, "given", indent)]
    return call_lines(f"{left} = {function}(", arguments, ")", indent)


def _function_class(op: Operation, variant: Variant) -> _Class:
    program = variant.program
    name, forward = function_names(op, variant.option)
    lines = [x.line for x in (*program.backward, *program.first_order)]
    return _Class(
        name=name,
        forward=(f"    forward = staticmethod({forward})",),
        outcome=outcome_of(op, program),
        setup=indented(_setup_context_lines(op, program), 8),
        backward_signature=backward_signature(_cotangents(program), multiplies(lines)),
        backward=indented(_backward_method_lines(op, variant), 8),
    )


def backward_signature(cotangents: Sequence[str], exact: bool) -> tuple[str, ...]:
    """Return the head of a backward; with ``exact``, autocast is off inside."""
    head = call_lines("def backward(", ["ctx", *cotangents], "):", 4)
    return indented(["@rt.without_autocast", *head] if exact else head, 4)


def _cotangents(program: Program) -> list[str]:
    """Return the cotangent names of all outputs, an unused name where there is none."""
    own = ((name, program.pulled.get(name)) for name in program.statistics)
    given = (*program.cotangents, *own)
    return [f"_grad_{output}" if cotangent is None else cotangent for output, cotangent in given]


def _existing_cotangents(program: Program) -> list[str]:
    """Return the names of the existing cotangents."""
    return [cotangent for _, cotangent in program.cotangents if cotangent is not None]


def return_statement(values: Sequence[str], indent: int) -> list[str]:
    """Return a return statement."""
    whole = f"return {', '.join(values)}"
    return (
        [whole] if len(whole) + indent <= COLUMNS else call_lines("return (", values, ")", indent)
    )


def outcome_of(op: Operation, program: Program) -> str:
    """Return the name of the outputs tuple in setup_context."""
    return name_of_all({*arguments(op), *program.outputs, *program.statistics})


def name_of_all(taken: set[str]) -> str:
    """Return a free name for the outputs tuple; user names never begin with _."""
    return next(name for name in ("output", "result", "_output") if name not in taken)


def may_be_none(program: Program) -> bool:
    """True if torch would otherwise fill cotangents of unused outputs with zeros."""
    return len(_existing_cotangents(program)) == 1 < len(_cotangents(program))


def _setup_context_lines(op: Operation, program: Program) -> list[str]:
    """Return the lines of setup_context: parameters and shapes on ctx, tensors saved."""
    saved = {s.name for s in program.saved}
    again = _shapes_of_saved(op, program)
    setup = [line for line in program.setup if line.name not in again]
    shapes = [name for name in program.kept_shapes if f"{name}_shape" not in again]
    read = {*saved, *program.kept_parameters, *shapes}
    read |= {name for line in setup for name in names_in(line.code)}
    product = program.backward_precision.has_products or program.first_order_precision.has_products
    read |= set(floats_of(op)) if product else set()
    silent = [output for output, cotangent in program.cotangents if cotangent is None]
    silent += [name for name in program.statistics if name not in program.pulled]
    results = (*program.outputs, *program.statistics)
    lines = unpack_wanted(arguments(op), read, "inputs")
    wanted = {*saved, *silent, *(program.outputs if program.pulled else ())}
    if len(results) > 1:
        lines += unpack_wanted(results, wanted, outcome_of(op, program))
    elif wanted.intersection(program.outputs):
        lines.append(f"{program.outputs[0]} = {outcome_of(op, program)}")
    if silent:
        lines += call_lines("ctx.mark_non_differentiable(", silent, ")", 8)
    if may_be_none(program):
        lines.append("ctx.set_materialize_grads(False)")
    if program.pulled:
        lines.append(f"ctx.{KEPT_SHAPE} = {program.outputs[0]}.shape")
    lines += [s for line in setup for s in assigned(line, 8)]
    if product:
        lines += call_lines("ctx.low = rt.autocast_product(", floats_of(op), ")", 8)
    kept = (*program.kept_parameters, *program.kept_groups)
    lines += [f"ctx.{name} = {name}" for name in kept if name not in again]
    absent = {t.name for t in op.inputs if t.default is not None}
    for name in shapes:
        shape = f"{name}.shape"
        shape = f"None if {name} is None else {shape}" if name in absent else shape
        lines.append(f"ctx.{name}_shape = {shape}")
    if program.saved:
        lines += call_lines("ctx.save_for_backward(", _saved_entries(op, program), ")", 8)
    return lines or ["pass"]


def _saved_entries(op: Operation, program: Program) -> list[str]:
    """Return each saved tensor, or None if no requested gradient reads it."""
    places = {t.name: n for n, t in enumerate(op.inputs)}
    entries = []
    for s in program.saved:
        condition = " or ".join(f"ctx.needs_input_grad[{places[n]}]" for n in s.needs)
        entry = f"{s.name} if {condition} else None"
        short = len(entry) + 13 <= COLUMNS and len(s.needs) < len(program.differentiable)
        entries.append(entry if short else s.name)
    return entries


def unpack_wanted(names: Sequence[str], wanted: set[str], source: str) -> list[str]:
    """Return lines that unpack the wanted names from a tuple; ``_`` marks the others."""
    found = one_by_one([name if name in wanted else "_" for name in names], source)
    whole = _unpack([name if name in wanted else "_" for name in names], source)
    return [whole] if found and len(whole) + 8 <= COLUMNS else found


def one_by_one(names: Sequence[str], source: str) -> list[str]:
    """Return a line per name; a name that shadows the tuple comes last."""
    lines = [f"{name} = {source}[{n}]" for n, name in enumerate(names) if name != "_"]
    return sorted(lines, key=lambda line: line.startswith(f"{source} = "))


def _unpacked_all(names: Sequence[str], source: str, indent: int) -> list[str]:
    """Return lines that unpack a tuple in one statement, so that its source is read once."""
    whole = _unpack(names, source)
    if len(whole) + indent <= COLUMNS:
        return [whole]
    return ["(", *(f"    {name}," for name in names), f") = {source}"]


def _unpack(names: Sequence[str], source: str) -> str:
    inside = ", ".join(names)
    return f"({inside},) = {source}" if len(names) == 1 else f"{inside} = {source}"


def _backward_method_lines(op: Operation, variant: Variant) -> list[str]:
    """Return the lines of backward: of first order by other calls, else of any order."""
    program = variant.program
    lines = []
    if may_be_none(program):
        every = [*_existing_cotangents(program), *program.pulled.values()]
        test = " and ".join(f"{cotangent} is None" for cotangent in every)
        lines += [f"if {test}:", f"    {_no_gradient(op)}"]
    bodies = [
        ([(x.line, x.needs) for x in gradients_apart(program, body)], precision)
        for body, precision in (
            (program.first_order, program.first_order_precision),
            (program.backward, program.backward_precision),
        )
    ]
    none = _all_none(list(program.gradients.values()), 8) if len(program.gradients) > 1 else []
    first_reads, later_reads = (set(live_in([x for x, _ in body])) for body, _ in bodies)
    lines += _saved_tensors(program, first_reads | later_reads, 8)
    (first, first_precision), (later, later_precision) = bodies
    casts = _cast_entry(later_precision, 8)
    if not program.first_order:
        lines += _kept_values(op, program, later_reads)
    else:
        shared = casts == _cast_entry(first_precision, 8) and not program.pulled
        before = _common_start(first, later, program) if shared else []
        known = first_reads | later_reads if before else first_reads
        lines += _kept_values(op, program, known)
        lines += [*casts, *none] if shared else none
        lines += [s for line, _ in before for s in assigned(line, 8)]
        first, later = first[len(before) :], later[len(before) :]
        lines += _first_order_test(program)
        own = [] if shared else _cast_entry(first_precision, 12)
        lines += indented([*own, *_gradient_lines(op, program, first, 12)], 4)
        lines += _kept_values(op, program, later_reads - known)
        casts, none = ([] if shared else casts), []
    if program.pulled:
        (given,) = _existing_cotangents(program)
        statistic, *others = program.pulled.values()
        like = f"next(g for g in ({', '.join((statistic, *others))}) if g is not None)"
        like = like if others else statistic
        lines += [f"if {given} is None:", f"    {given} = {like}.new_zeros(ctx.{KEPT_SHAPE})"]
    return [*lines, *casts, *none, *_gradient_lines(op, program, later, 8)]


def _common_start(first: Body, later: Body, program: Program) -> Body:
    """Return the lines that both bodies begin with, for all gradients."""
    same = takewhile(lambda pair: pair[0] == pair[1], zip(first, later, strict=False))
    every = set(program.gradients)
    return [line for line, _ in takewhile(lambda pair: set(pair[0][1]) == every, same)]


def _first_order_test(program: Program) -> list[str]:
    """Return the head of the first-order part: no graph of the gradients is recorded."""
    codes = (part for x in program.first_order for part in subexpressions(x.line.code))
    fused = any(torch_op(code).fused for code in codes)
    tests = [f"{cotangent} is None and " for cotangent in program.pulled.values()]
    start, end = ("(rt.compiles() or ", "))") if fused and tests else ("", ")")
    start = "rt.compiles() or " if fused and not tests else start
    return call_lines(
        f"if {''.join(tests)}{start}rt.unrecorded(", _existing_cotangents(program), f"{end}:", 8
    )


def _saved_tensors(program: Program, read: set[str], indent: int) -> list[str]:
    """Return the lines that unpack the saved tensors."""
    lines = []
    saved = [s.name for s in program.saved]
    if read.intersection(saved):
        wanted = [name if name in read else "_" for name in saved]
        lines += _unpacked_all(wanted, "ctx.saved_tensors", indent)
    return lines


def _kept_values(op: Operation, program: Program, read: set[str]) -> list[str]:
    """Return the lines that read parameters and shapes, those of saved tensors from these."""
    again = _shapes_of_saved(op, program)
    kept = (*program.kept_parameters, *program.kept_groups)
    kept += tuple(f"{name}_shape" for name in program.kept_shapes)
    lines = [f"{name} = ctx.{name}" for name in kept if name in read and name not in again]
    wanted = set(read)
    for name in reversed(again):
        wanted |= set(names_in(again[name])) if name in wanted else set()
    codes = (Line(name, code) for name, code in again.items() if name in wanted)
    return lines + [s for line in codes for s in assigned(line, 8)]


def _shapes_of_saved(op: Operation, program: Program) -> dict[str, Code]:
    """Return the shapes that need not be kept: they are read from tensors that are always saved."""
    entries = _saved_entries(op, program)
    known = {t.name for t in op.inputs if t.default is None and t.name in entries}
    found: dict[str, Code] = {}
    for line in program.setup:
        if set(names_in(line.code)) <= {*known, *found}:
            found[line.name] = line.code
    shapes = {f"{n}_shape": Attribute(Name(n), "shape") for n in program.kept_shapes if n in known}
    return found | shapes


def _cast_entry(precision: Precision, indent: int) -> list[str]:
    """Return the lines that cast what a backward reads to its dtypes."""
    low = ["low = ctx.low"] if precision.has_products else []
    return low + cast_inputs(precision, indent)


def _gradient_lines(
    op: Operation, program: Program, backward: Sequence[tuple[Line, Needs]], indent: int
) -> list[str]:
    """Return the lines of each gradient under its predicate, and the results."""
    reads = [line for line, _ in backward]
    lines = _reused_memory(reads, _existing_cotangents(program), indent)
    places = {t.name: n for n, t in enumerate(op.inputs)}
    every = {name for x, _ in backward for name in (x.name, *names_in(x.code))}
    taken = {op.name, *places, *every}
    asked = conditions(backward, program.gradients, places, taken)
    for name, alternatives in asked.names:
        lines += _any_of(f"{name} = ", alternatives, "", indent)
    open_condition: tuple[str, ...] = ()
    for line, needs in backward:
        condition = asked.of[needs]
        if condition and condition != open_condition:
            lines += _any_of("if ", condition, ":", indent)
        depth = 4 if condition else 0
        lines += indented(assigned(line, indent + depth), depth)
        open_condition = condition
    results = [program.gradients.get(t.name, "None") for t in op.inputs]
    results += ["None" for p in op.parameters if not isinstance(p, Choice)]
    return [*lines, *return_statement(results, indent)]


def _no_gradient(op: Operation) -> str:
    """Return the statement that returns None for each argument."""
    return f"return (None,) * {len(arguments(op))}" if len(arguments(op)) > 1 else "return None"


def _any_of(start: str, alternatives: Sequence[str], end: str, indent: int) -> list[str]:
    """Return start + disjunction + end, over several lines if it is too long."""
    whole = f"{start}{' or '.join(alternatives)}{end}"
    if len(whole) + indent <= COLUMNS:
        return [whole]
    first, *rest = alternatives
    return [f"{start}(", f"    {first}", *(f"    or {part}" for part in rest), f"){end}"]


def _all_none(names: Sequence[str], indent: int) -> list[str]:
    """Return statements that set the names to None, as many in one as fit a line."""
    chunks: list[list[str]] = [[]]
    for name in names:
        if chunks[-1] and len(" = ".join([*chunks[-1], name, "None"])) + indent > COLUMNS:
            chunks.append([])
        chunks[-1].append(name)
    return [" = ".join([*chunk, "None"]) for chunk in chunks]
