"""Generate the forward function and the autograd.Function of a program."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, takewhile

from derive.lowering.layout_conversion import lines_read
from derive.module.arguments import in_turn
from derive.module.outside import Outside
from derive.module.predicated_lines import (
    Fork,
    Item,
    fewest_lines,
    items_of,
    merged_items,
    named_conditions,
    predicated,
    unpacked,
)
from derive.module.pretty_printer import (
    all_none,
    all_of,
    assigned,
    call_lines,
    collected,
    indented,
    return_statement,
    statements,
    unpacked_statement,
    unpacked_tuple,
    with_unset,
)
from derive.module.reduced import Reductions
from derive.notation.operation import Choice, Operation
from derive.program.aliasing import gradients_apart
from derive.program.cse import Line
from derive.program.dataflow import live_in
from derive.program.gradient_predication import Conditions, conditions
from derive.program.merged_bodies import Body, Segment, merge_bodies
from derive.program.mixed_precision import Precision, multiplies
from derive.program.program import Program, Tangent
from derive.program.roundings import Roundings
from derive.program.torch_ir import (
    Attribute,
    Code,
    FunctionCall,
    Keyword,
    MethodCall,
    Name,
    names_in,
    replaced,
    subexpressions,
    text,
)
from derive.program.torch_ops import torch_op
from derive.program.torch_printer import COLUMNS, broken

FIRST_ORDER = "first_order"
"""The variable that is true where no graph of the gradients is recorded."""

_SAVED = "*ctx.saved_tensors"

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
class ClassFields:
    """Template fields of an autograd.Function."""

    name: str
    signature: tuple[str, ...]
    """The first lines of the forward."""
    forward: tuple[str, ...]
    outcome: str
    setup: tuple[str, ...]
    backward_signature: tuple[str, ...]
    backward: tuple[str, ...]

    def lines(self) -> Iterator[str]:
        """Yield all lines of the class."""
        yield from (*self.signature, *self.forward, *self.setup)
        yield from (*self.backward_signature, *self.backward)


@dataclass(frozen=True)
class Dual:
    """Template fields of a class with forward mode."""

    name: str
    base: str
    outcome: str
    body: tuple[str, ...]


@dataclass(frozen=True)
class Lines:
    """Template fields of one option: a class, or a function if it only makes views."""

    functions: tuple[str, ...]
    """The functions before the class, as the forward that torch itself differentiates."""
    classes: tuple[ClassFields, ...]
    duals: tuple[Dual, ...] = ()
    """Its own forward mode, if it has one."""

    def lines(self) -> Iterator[str]:
        """Yield all lines of computation."""
        yield from self.functions
        for c in self.classes:
            yield from c.lines()
        for dual in self.duals:
            yield from (f"rt.Dual({dual.base})", *dual.body)


def camel_case(name: str) -> str:
    """Return a name of words joined by _ as one of words that begin with capitals."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def class_name(op: Operation, option: str | None) -> str:
    """Return the name of the class of one option."""
    return f"_{camel_case(op.name)}{camel_case(_suffix(option))}"


def forward_name(op: Operation) -> str:
    """Return the name of the forward of an operation that has no class."""
    return f"_{op.name}_forward"


def _suffix(option: str | None) -> str:
    return "" if option is None else f"_{option}"


def arguments(op: Operation) -> list[str]:
    parameters = (p for p in op.parameters if not isinstance(p, Choice))
    return [x.name for x in (*op.inputs, *parameters)]


def function_of(op: Operation, variant: Variant) -> Lines:
    program = variant.program
    if program.rearranges:
        name = forward_name(op)
        return Lines(_function(op, name, program.forward, program.forward_precision, program), ())
    r = variant.reductions
    reducer = [] if r is None or r.usual else _reducer(op, r)
    composed: tuple[str, ...] = ()
    if program.composed:
        name = composed_name(op, variant)
        composed = _function(op, name, program.composed, program.composed_precision, program)
    return Lines((*reducer, *composed), (_function_class(op, variant),))


def _function(
    op: Operation, name: str, body: Sequence[Line], precision: Precision, program: Program
) -> tuple[str, ...]:
    """Return a function of the module that computes the outputs."""
    start = call_lines(f"def {name}(", arguments(op), "):", 0)
    return (*start, *_forward_body(op, body, precision, program.outputs, 4), "", "")


def _reducer(op: Operation, r: Reductions) -> list[str]:
    x = Name(r.equation)
    lines = [f"def {r.function(op)}({x.id}, {r.choice}):"]
    for option, reduction in r.others.items():
        lines += [f"    if {text(r.test(option))}:", f"        return {text(reduction.of(x))}"]
    return [*lines, f"    return {x.id}", "", ""]


def _forward_body(
    op: Operation, body: Sequence[Line], precision: Precision, results: Sequence[str], start: int
) -> tuple[str, ...]:
    """Return the body of a function that computes ``results``, indented by ``start``."""
    forward = _reused_memory(body, [t.name for t in op.inputs], start)
    forward += product_dtypes(op, precision, start)
    if "dtype" in precision.names:
        listed = precision.listed, start, precision.listed_where
        forward += dtype_lines("dtype", floats_of(op), *listed)
    body = unpacked(tuple(with_unset(body, results)))
    exact = precision.multiplies_wide
    indent = start + 4 if exact else start
    made = cast_inputs(precision, indent)
    made += returned(body, results, indent)
    forward += [f"with rt.no_autocast({floats_of(op)[0]}):", *indented(made, 4)] if exact else made
    return indented(forward, start)


def returned(body: Sequence[Line], results: Sequence[str], indent: int) -> list[str]:
    """Return the statements of a body; the last one returns the results."""
    before = statements(body[:-1], indent)
    match body[-1:]:
        case [Line(name, code)] if name == ", ".join(results):
            return [*before, *broken("return ", code, indent=indent)]
        case [Line(name, MethodCall(Name(cast), "to") as code)] if name == cast:
            last = [text(code) if n == name else n for n in results]
            return [*before, *return_statement(last, indent)]
    return [*statements(body, indent), *return_statement(results, indent)]


def _reused_memory(lines: Sequence[Line], tensors: Sequence[str], indent: int) -> list[str]:
    """Return the line that decides whether temporaries of a body are overwritten."""
    return call_lines("reuse = rt.reuse(", tensors, ")", indent) if _reuses(lines) else []


def _reuses(lines: Iterable[Line]) -> bool:
    """True if a line overwrites a temporary where it may."""
    codes = (part for line in lines for part in subexpressions(line.code))
    return any(isinstance(c, FunctionCall) and c.name.startswith("reuse.") for c in codes)


def composed_name(op: Operation, variant: Variant) -> str:
    """Return the name of the forward that torch itself differentiates."""
    if not variant.program.composed:
        return f"{class_name(op, variant.option)}.forward"
    return f"_{op.name}{_suffix(variant.option)}_composed"


def floats_of(op: Operation) -> list[str]:
    return [t.name for t in in_turn(op) if t.kind == "float"]


def product_dtypes(op: Operation, precision: Precision, indent: int, ctx: str = "") -> list[str]:
    """Return the lines that compute the dtypes of a body with products."""
    if not precision.has_products:
        return []
    start = f"{ctx}low = rt.autocast_product("
    start = f"{ctx}low, {ctx}wide = rt.product_dtypes(" if precision.has_wide else start
    return call_lines(start, floats_of(op), ")", indent)


def dtype_lines(
    name: str, floats: Sequence[str], listed: bool, indent: int, where: Code | None = None
) -> list[str]:
    """Return the lines that compute the dtype of a result; ``listed`` as under autocast.

    ``where`` is the test that decides this at run time.
    """
    given = tuple(map(Name, floats))
    plain: Code = FunctionCall("rt.promoted", given)
    code = Attribute(given[0], "dtype") if len(given) == 1 else plain
    if listed:
        when = () if where is None else (Keyword("when", where),)
        code = FunctionCall("rt.autocast_float32", (*given, *when))
    return broken(f"{name} = ", code, indent=indent)


def cast_inputs(precision: Precision, indent: int) -> list[str]:
    """Return the lines that cast the input tensors of a body to its dtypes."""
    return [line for statement in _casts(precision, indent) for line in statement]


def _casts(precision: Precision, indent: int, saved: Sequence[str] = ()) -> Iterator[list[str]]:
    """Yield the lines of each statement that casts input tensors of a body.

    ``saved`` are the first of these, where a cast unpacks the saved tensors.
    """
    narrow, broad = precision.narrow, precision.broad
    if narrow:
        yield unpacked_call(narrow, "rt.cast", ("low", *_from_ctx(narrow, saved)), indent)
    if broad:
        given = _from_ctx(broad, saved)
        if precision.has_products:
            yield unpacked_call(broad, "rt.cast", ("wide", *given), indent)
        else:
            yield unpacked_call(broad, _HELPERS[precision.roundings], given, indent)


def _from_ctx(names: Sequence[str], saved: Sequence[str]) -> Sequence[str]:
    """Return the arguments of a cast, which may unpack the saved tensors."""
    unpacks = saved and list(names[: len(saved)]) == list(saved)
    return [_SAVED, *names[len(saved) :]] if unpacks else names


_HELPERS = {
    Roundings.NONE: "rt.cast_alike",
    Roundings.ONCE: "rt.widened_for_kernel",
    Roundings.MORE: "rt.widened",
}
"""The helper that casts the tensors of a body without products, by its count of roundings."""


def unpacked_call(
    names: Sequence[str], function: str, arguments: Sequence[str], indent: int
) -> list[str]:
    """Return ``names = function(arguments)``."""
    left = ", ".join(names)
    if len(names) > 1 and len(f"{left} = {function}({', '.join(arguments)})") + indent > COLUMNS:
        lines = call_lines(f"given = {function}(", arguments, ")", indent)
        return [*lines, *unpacked_tuple(names, "given", indent)]
    return call_lines(f"{left} = {function}(", arguments, ")", indent)


def _function_class(op: Operation, variant: Variant) -> ClassFields:
    program = variant.program
    lines = (*program.backward, *program.first_order)
    results = (*program.outputs, *program.statistics)
    return ClassFields(
        name=class_name(op, variant.option),
        signature=indented(call_lines("def forward(", arguments(op), "):", 4), 4),
        forward=_forward_body(op, program.forward, program.forward_precision, results, 8),
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
    return [cotangent for _, cotangent in program.cotangents if cotangent is not None]


def outcome_of(op: Operation, program: Program) -> str:
    """Return the name of what the forward returns in setup_context: the output if it is one."""
    results = (*program.outputs, *program.statistics)
    if len(results) == 1 and results[0] not in arguments(op):
        return results[0]
    return name_of_all({*arguments(op), *results})


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
    asked = [line for line in program.setup if line.name not in again]
    asked += lines_read(program.setup, asked)
    setup = [line for line in program.setup if line in asked]
    shapes = [name for name in program.kept_shapes if f"{name}_shape" not in again]
    inner = {name for line in setup for name in names_in(line.code)}
    read = {*saved, *program.kept_parameters, *shapes, *inner}
    product = _backward_precision(program)
    read |= set(floats_of(op)) if product.has_products else set()
    silent = [output for output, cotangent in program.cotangents if cotangent is None]
    silent += [name for name in program.statistics if name not in program.pulled]
    results = (*program.outputs, *program.statistics)
    kept = [n for n in (*program.kept_parameters, *program.kept_groups) if n not in again]
    alone = {n for n in arguments(op) if n in kept and n not in {*saved, *shapes, *inner}}
    alone -= set(floats_of(op))
    lines = unpack_wanted(arguments(op), read, "inputs", alone)
    wanted = {*saved, *silent, *(program.outputs if program.pulled else ())}
    if len(results) > 1:
        lines += unpack_wanted(results, wanted, outcome_of(op, program))
    elif wanted.intersection(program.outputs) and outcome_of(op, program) != results[0]:
        lines.append(f"{results[0]} = {outcome_of(op, program)}")
    if silent:
        lines += call_lines("ctx.mark_non_differentiable(", silent, ")", 8)
    if may_be_none(program):
        lines.append("ctx.set_materialize_grads(False)")
    if program.pulled:
        (pulled,) = (o for o, cotangent in program.cotangents if cotangent is not None)
        lines.append(f"ctx.{KEPT_SHAPE} = {pulled}.shape")
    # What nothing else reads is only an attribute.
    outer = {line.name for line in setup if line.name in kept} - inner - saved
    own = [replace(x, name=f"ctx.{x.name}") if x.name in outer else x for x in setup]
    lines += [s for line in own for s in assigned(line, 8)]
    lines += product_dtypes(op, product, 8, "ctx.")
    lines += [f"ctx.{name} = {name}" for name in kept if name not in alone | outer]
    absent = {t.name for t in op.inputs if t.default is not None}
    for name in shapes:
        shape = f"{name}.shape"
        shape = f"None if {name} is None else {shape}" if name in absent else shape
        lines.append(f"ctx.{name}_shape = {shape}")
    entries, needed = _saved_entries(op, program), "ctx.needs_input_grad"
    if sum(entry.count(needed) for entry in entries) > 3 and "needs" not in read:
        lines.append(f"needs = {needed}")
        entries = [entry.replace(needed, "needs") for entry in entries]
    if entries:
        lines += call_lines("ctx.save_for_backward(", entries, ")", 8)
    return lines or ["pass"]


def _backward_precision(program: Program) -> Precision:
    """Return the precision of the order of backward that reads more dtypes."""
    orders = program.backward_precision, program.first_order_precision
    return max(orders, key=lambda order: (order.has_products, order.has_wide))


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


def unpack_wanted(
    names: Sequence[str], wanted: set[str], source: str, onto: Collection[str] = ()
) -> list[str]:
    """Return lines that unpack the wanted names from a tuple; ``_`` marks the others.

    Those of ``onto`` become attributes of ctx.
    """
    targets = [f"ctx.{n}" if n in onto else n if n in wanted else "_" for n in names]
    found = unpacked_items(targets, source)
    if len(found) <= 2:
        return found
    halves = (
        [unpacked_statement(part, f"{source}[{where}]") for part, where in parts]
        for n in range(2, len(targets) - 1)
        if (parts := ((targets[:n], f":{n}"), (targets[n:], f"{n}:")))
    )
    fit = (lines for lines in halves if max(map(len, lines)) + 8 <= COLUMNS)
    return min([found, *fit], key=len)


def unpacked_items(targets: Sequence[str], source: str) -> list[str]:
    """Return the lines that assign the items of a tuple; ``_`` marks what nothing reads."""
    single = [f"{name} = {source}[{n}]" for n, name in enumerate(targets) if name != "_"]
    whole = unpacked_statement(targets, source)
    return [whole] if len(single) > 1 and len(whole) + 8 <= COLUMNS else single


def _backward_method_lines(op: Operation, variant: Variant) -> list[str]:
    """Return the lines of backward: of first order by other calls, else of any order."""
    program = variant.program
    lines = []
    if may_be_none(program):
        every = [*_existing_cotangents(program), *program.pulled.values()]
        n = len(arguments(op))
        lines += all_of("if ", [f"{cotangent} is None" for cotangent in every], ":", 8)
        lines.append(f"    return {f'(None,) * {n}' if n > 1 else 'None'}")
    made = [gradients_apart(program, body) for body in (program.first_order, program.backward)]
    among = program.first_order_gradients, program.gradients
    bodies = [
        tuple(replace(x, needs=tuple(n for n in x.needs if n in own)) for x in body)
        for body, own in zip(made, among, strict=True)
    ]
    # The first that is shortest: an attribute that is read twice has no name then.
    ways = dict.fromkeys(tuple(_read_from_ctx(op, program, bodies, n)) for n in (1, 2))
    return lines + min((_both_orders(op, program, way) for way in ways), key=len)


def _both_orders(op: Operation, program: Program, bodies: Sequence[Body]) -> list[str]:
    """Return the lines of backward from the saved tensors on."""
    precisions = program.first_order_precision, program.backward_precision
    pairs = zip(bodies, precisions, strict=True)
    first, later = (_BackwardBody(op, program, *pair) for pair in pairs)
    # An order also casts what it does not read, so that both share a line; in first order, the
    # cotangents of statistics are None.
    whole = first if later.precision.casts_among(first.precision) else later
    if whole is first or (program.pulled and first.precision.casts_among(later.precision)):
        names = first.precision.names | later.precision.names
        precision = replace(whole.precision, names=names)
        first, later = replace(first, precision=precision), replace(later, precision=precision)
    # What reads better is the early return.
    ways = (_early_return, _one_text) if program.first_order else (_any_order,)
    before = _saved_tensors(program, first.reads | later.reads)
    saved = tuple(s.name for s in program.saved)
    orders = [first, later] if program.first_order else [later]
    if all(body.casts_first(saved) for body in orders):
        starred = [replace(body, saved=saved) for body in (first, later)]
        common = [s for c in _common_casts(*starred) for s in c] if program.first_order else []
        kept = " ".join(_kept_values(op, program, first.reads | later.reads))
        alone = len(orders) == 1 or any(_SAVED in s for s in common)
        if alone or not set(saved) & set(re.findall(r"\w+", kept)):
            before, (first, later) = [], starred
    return min(([*before, *way(first, later)] for way in ways), key=len)


@dataclass(frozen=True)
class _BackwardBody:
    """The lines of a backward of first order or of any order."""

    op: Operation
    program: Program
    lines: Body
    precision: Precision
    saved: tuple[str, ...] = ()
    """The saved tensors, if a cast unpacks them."""

    def casts_first(self, saved: tuple[str, ...]) -> bool:
        """True if these are the first tensors that a cast reads."""
        casts = self.precision.narrow, self.precision.broad
        return bool(saved) and saved in (names[: len(saved)] for names in casts)

    @property
    def reads(self) -> set[str]:
        """The names that the lines read of what is given."""
        return set(live_in(self.lines))

    def casts(self, indent: int, after: int = 0) -> list[str]:
        """Return the lines that cast what is read, without the first statements."""
        return [line for s in self.cast_statements(indent)[after:] for line in s]

    def cast_statements(self, indent: int = 8) -> list[list[str]]:
        wide = _backward_precision(self.program).has_wide
        low = ["low, wide = ctx.low, ctx.wide" if wide else "low = ctx.low"]
        given = [low] if self.precision.has_products else []
        return [*given, *_casts(self.precision, indent, self.saved)]


def _any_order(_: _BackwardBody, later: _BackwardBody) -> list[str]:
    op, program = later.op, later.program
    lines = [*_filled_cotangent(program), *later.casts(8), *_kept_values(op, program, later.reads)]
    return [*lines, *_none_yet(program), *_gradient_lines(op, program, later.lines, 8)]


def _common_casts(first: _BackwardBody, later: _BackwardBody) -> list[list[str]]:
    """Return the first statements of the casts, as far as they are those of both orders."""
    pairs = zip(first.cast_statements(), later.cast_statements(), strict=False)
    return [one for one, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)]


def _both_begin(first: _BackwardBody, later: _BackwardBody) -> list[str]:
    """Return the lines before the test of first order."""
    lines = _filled_cotangent(first.program)
    lines += [line for statement in _common_casts(first, later) for line in statement]
    lines += _kept_values(first.op, first.program, first.reads)
    return lines + _none_yet(first.program)


def _later_begins(first: _BackwardBody, later: _BackwardBody, indent: int) -> list[str]:
    """Return what any order reads and casts in addition."""
    more = _kept_values(later.op, later.program, later.reads - first.reads, indent)
    return [*more, *later.casts(indent, len(_common_casts(first, later)))]


def _early_return(first: _BackwardBody, later: _BackwardBody) -> list[str]:
    """Return first order as a block that returns, before the lines of any order."""
    op, program = first.op, first.program
    lines = _both_begin(first, later) + _first_order_test(program, "if ", ":")
    own = first.casts(12, len(_common_casts(first, later)))
    own += _gradient_lines(op, program, first.lines, 12, program.first_order_gradients)
    lines += indented(own, 4)
    lines += _later_begins(first, later, 8)
    return [*lines, *_gradient_lines(op, program, later.lines, 8)]


def _one_text(first: _BackwardBody, later: _BackwardBody) -> list[str]:
    """Return both orders with their common lines once; the others stand in forks."""
    op, program = first.op, first.program
    own_casts = partial(first.casts, after=len(_common_casts(first, later)))
    begins = own_casts, partial(_later_begins, first, later)
    head = Fork(FIRST_ORDER, *([Item((), begin)] if begin(8) else [] for begin in begins))
    taken = {op.name, *arguments(op)}
    segments = merge_bodies(first.lines, later.lines, program.gradients.values(), taken)
    lines = _both_begin(first, later) + _first_order_test(program, f"{FIRST_ORDER} = ", "")
    return [*lines, *fewest_lines(segments, partial(_merged_lines, op, program, head))]


def _merged_lines(
    op: Operation, program: Program, head: Fork, segments: Sequence[Segment]
) -> list[str]:
    """Return the shared lines and the forks of both orders, and the results."""
    every = tuple(x for s in segments for x in s.shared or (*s.first, *s.later))
    every = tuple(with_unset(every, program.gradients.values()))
    left = iter(every)
    segments = [
        replace(s, shared=tuple(islice(left, len(s.shared))))
        if s.shared
        else Segment(tuple(islice(left, len(s.first))), tuple(islice(left, len(s.later))))
        for s in segments
    ]
    asked = _conditions(op, program.gradients, every)
    lines = named_conditions(asked, 8)
    if _reuses(every):
        end = f") if {FIRST_ORDER} else torch.ops.aten"
        lines += call_lines("reuse = rt.reuse(", _existing_cotangents(program), end, 8)
    lines += predicated(list(merged_items(segments, head, asked)), 8)
    return [*lines, *_return_gradients(gradients_of(op, program), 8)]


def _filled_cotangent(program: Program) -> list[str]:
    """Return the lines that make zeros of a missing cotangent, if that of a statistic is given."""
    if not program.pulled:
        return []
    (given,) = _existing_cotangents(program)
    args = [f"ctx.{KEPT_SHAPE}", *program.pulled.values()]
    return call_lines(f"{given} = rt.filled(", [given, *args], ")", 8)


def _none_yet(program: Program) -> list[str]:
    """Return the lines that set the gradients to None, if one may be missing."""
    return all_none(list(program.gradients.values()), 8) if len(program.gradients) > 1 else []


def _first_order_test(program: Program, start: str, end: str) -> list[str]:
    """Return start + the test of first order + end: no graph of the gradients is recorded."""
    codes = (part for x in program.first_order for part in subexpressions(x.code))
    fused = any(torch_op(code).fused for code in codes)
    apart = program.gradients.keys() - program.first_order_gradients
    places = (n for n, t in enumerate(program.inputs) if t in apart)
    tests = [f"not ctx.needs_input_grad[{n}]" for n in places]
    tests += [f"{cotangent} is None" for cotangent in program.pulled.values()]
    call = f"rt.unrecorded({', '.join(_existing_cotangents(program))})"
    if fused:
        call = f"(rt.compiles() or {call})" if tests else f"rt.compiles() or {call}"
    return all_of(start, [*tests, call], end, 8)


def _saved_tensors(program: Program, read: set[str]) -> list[str]:
    """Return the lines that unpack the saved tensors."""
    wanted = [s.name if s.name in read else "_" for s in program.saved]
    return unpacked_tuple(wanted, "ctx.saved_tensors", 8) if read.intersection(wanted) else []


def _kept_values(op: Operation, program: Program, read: set[str], indent: int = 8) -> list[str]:
    """Return the lines that read parameters and shapes, those of saved tensors from these."""
    again = _shapes_of_saved(op, program)
    kept = (*program.kept_parameters, *program.kept_groups)
    kept += tuple(f"{name}_shape" for name in program.kept_shapes)
    lines = [f"{name} = ctx.{name}" for name in kept if name in read and name not in again]
    wanted = set(read)
    for name in reversed(again):
        wanted |= set(names_in(again[name])) if name in wanted else set()
    codes = (Line(name, code) for name, code in again.items() if name in wanted)
    return lines + [s for line in codes for s in assigned(line, indent)]


def _read_from_ctx(
    op: Operation, program: Program, bodies: Sequence[Body], most: int
) -> Iterator[Body]:
    """Yield the bodies with ``tensor.shape``, and ``ctx.name`` where each reads it so often."""
    kept = {*program.kept_parameters, *program.kept_groups}
    kept |= {f"{name}_shape" for name in program.kept_shapes}
    codes: dict[str, Code] = {n: Attribute(Name("ctx"), n) for n in kept}
    codes |= (again := _shapes_of_saved(op, program))
    made = {line.name for body in bodies for line in body}
    counts = [Counter(n for line in body for n in names_in(line.code)) for body in bodies]
    new: dict[Code, Code] = {
        Name(n): code
        for n, code in codes.items()
        if isinstance(code, Attribute)
        and (n in again or all(count[n] <= most for count in counts))
        and not made.intersection((n, *names_in(code)))
    }
    for body in bodies:
        yield tuple(replace(line, code=replaced(line.code, new)) for line in body)


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


def _gradient_lines(
    op: Operation,
    program: Program,
    body: Body,
    indent: int,
    first_order: Mapping[str, str] | None = None,
) -> list[str]:
    """Return the lines of each gradient under its predicate, and the results.

    In first order, an only gradient is computed in the return statement if it fits one line.
    """
    lines = _reused_memory(body, _existing_cotangents(program), indent)
    asked = _conditions(op, first_order or program.gradients, body)
    lines += named_conditions(asked, indent)
    body = unpacked(tuple(with_unset(body, program.gradients.values())))
    results = gradients_of(op, program)
    if first_order and len(program.gradients) == 1 and body[-1].name in results:
        last = body[-1]
        made = [text(last.code) if x == last.name else x for x in results]
        if len(return_statement(made, indent)) == 1:
            body, results = body[:-1], made
    lines += predicated(items_of(body, asked), indent)
    return [*lines, *_return_gradients(results, indent)]


def _return_gradients(values: Sequence[str], indent: int) -> list[str]:
    """Return the statement that returns the gradients; two if it has a line for each."""
    whole = return_statement(values, indent)
    if len(whole) <= 3:
        return whole
    before, few = collected("grads", values, indent)
    return [*before, *return_statement(few, indent)]


def _conditions(op: Operation, gradients: Mapping[str, str], body: Body) -> Conditions:
    """Return the predicates of the lines of a backward, which computes these gradients."""
    places = {t.name: n for n, t in enumerate(op.inputs)}
    every = {name for x in body for name in (x.name, *names_in(x.code))}
    return conditions(body, gradients, places, {op.name, *places, *every})


def gradients_of(op: Operation, program: Program) -> list[str]:
    """Return what a backward returns for each argument."""
    return [program.gradients.get(name, "None") for name in arguments(op)]
