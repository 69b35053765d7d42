"""Generate the forward mode of a program: a function of the tangents, and a Function with jvp.

torch cannot compile a Function with ``jvp``, so this is a separate class. torch calls ``jvp`` with
forward mode disabled, so a second derivative would be 0, and its tensors still carry the tangents
of that level. The code therefore enables forward mode and strips these tangents.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from derive.module.arguments import required_of
from derive.module.checks import constant_text, shape_of_absent
from derive.module.function_codegen import (
    Variant,
    arguments,
    cast_inputs,
    floats_of,
    function_names,
    may_be_none,
    outcome_of,
    return_statement,
    unpack_wanted,
)
from derive.module.pretty_printer import assigned, call_lines, formatted_statement, indented
from derive.notation.operation import Operation
from derive.program.program import Program, Tangent
from derive.program.torch_ir import names_in, text


@dataclass(frozen=True)
class Dual:
    """Template fields: a function of the tangents, and a class that calls it."""

    signature: tuple[str, ...]
    body: tuple[str, ...]
    name: str
    base: str
    batched: tuple[str, ...]
    setup_base: str
    outcome: str
    setup: tuple[str, ...]
    jvp_signature: tuple[str, ...]
    jvp: tuple[str, ...]

    def lines(self) -> Iterator[str]:
        """Yield all lines of computation."""
        yield from (*self.body, *self.batched, *self.setup, *self.jvp)


def name_of_dual(op: Operation, option: str | None) -> str:
    """Return the forward-mode class of one option."""
    return f"{function_names(op, option)[0]}Dual"


def dual_of(op: Operation, variant: Variant) -> tuple[Dual, ...]:
    """Return the forward mode of one option, if it has its own."""
    if variant.tangent is None:
        return ()
    program, tangent = variant.program, variant.tangent
    base, plain = function_names(op, variant.option)
    function = f"{plain.removesuffix('_forward')}_tangent"
    body = _tangent_body(op, tangent)
    read = {name for line in tangent.lines for name in names_in(line.code)}
    read |= _read_before(op, tangent)
    given = [n for n in (*arguments(op), *program.outputs, *tangent.given.values()) if n in read]
    outcome = outcome_of(op, program)
    every = ["ctx", *(tangent.given.get(n, f"_{n}") for n in arguments(op))]
    return (
        Dual(
            signature=tuple(call_lines(f"def {function}(", given, "):", 0)),
            body=indented(body, 4),
            name=name_of_dual(op, variant.option),
            base=base,
            batched=indented(
                call_lines("return rt.vmapped(", [plain, "in_dims", "given"], ")", 8), 8
            ),
            setup_base=f"{base}.setup_context(ctx, inputs, {outcome})",
            outcome=outcome,
            setup=indented(_tangent_setup(op, program, tangent, read), 8),
            jvp_signature=indented(call_lines("def jvp(", every, "):", 4), 4),
            jvp=indented(_jvp(op, program, tangent, function, given), 8),
        ),
    )


def _absent_tensors(op: Operation, tangent: Tangent) -> Iterator[tuple[str, str, str]]:
    """Yield (name, constant, shape) of each optional tensor, or its tangent, that is read."""
    read = {name for line in tangent.lines for name in names_in(line.code)}
    for t in op.inputs:
        if t.default is not None:
            shape = text(shape_of_absent(op, t))
            for name, constant in (
                (t.name, constant_text(t.default)),
                (tangent.given.get(t.name, ""), "0"),
            ):
                if name in read:
                    yield name, constant, shape


def _like(op: Operation) -> str:
    """Return the tensor whose dtype and device new tensors take."""
    return next(t.name for t in required_of(op) if t.kind == "float")


def _read_before(op: Operation, tangent: Tangent) -> set[str]:
    """Return the names that the prelude reads."""
    found = set(floats_of(op)) if tangent.precision.has_products else set()
    for t in op.inputs:
        if t.default is not None:
            found |= {_like(op), *names_in(shape_of_absent(op, t))}
    return found


def _tangent_body(op: Operation, tangent: Tangent) -> list[str]:
    """Return the lines of the tangent function."""
    lines = []
    if tangent.precision.has_products:
        lines += call_lines("low = rt.autocast_product(", floats_of(op), ")", 4)
    for name, constant, shape in _absent_tensors(op, tangent):
        whole = f"{_like(op)}.new_full((), {constant}).expand({shape})"
        lines += [f"if {name} is None:", f"    {name} = {whole}"]
    lines += cast_inputs(tangent.precision, 4)
    results = list(tangent.results.values())
    *before, last = tangent.lines
    lines += [s for line in before for s in assigned(line, 4)]
    if results == [last.name]:
        return [*lines, *formatted_statement("return ", last.code, 4)]
    return [*lines, *assigned(last, 4), *return_statement(results, 4)]


def _tangent_setup(op: Operation, program: Program, tangent: Tangent, read: set[str]) -> list[str]:
    """Return the lines of setup_context after those of the base class."""
    tensors = _saved_for_tangents(op, program, tangent, read)
    parameters = [p.name for p in op.parameters if p.name in read]
    new = set(parameters) - set(program.kept_parameters)
    outputs = [n for n in (*program.outputs, *program.statistics) if n in tensors]
    lines = unpack_wanted(arguments(op), {*tensors, *new}, "inputs")
    results = (*program.outputs, *program.statistics)
    if len(results) > 1:
        lines += unpack_wanted(results, set(outputs), outcome_of(op, program))
    elif outputs and outcome_of(op, program) != outputs[0]:
        lines.append(f"{outputs[0]} = {outcome_of(op, program)}")
    lines += [f"ctx.{n} = {n}" for n in parameters if n in new]
    if may_be_none(program):
        # A missing tangent becomes zeros.
        lines.append("ctx.set_materialize_grads(True)")
    return [*lines, *call_lines("ctx.save_for_forward(", tensors, ")", 8)]


def _saved_for_tangents(
    op: Operation, program: Program, tangent: Tangent, read: set[str]
) -> list[str]:
    """Return the inputs that are read, the outputs that are read, and all results with tangents."""
    inputs = [t.name for t in op.inputs if t.name in read]
    outputs = [n for n in program.outputs if n in read or n in tangent.results]
    return [*inputs, *outputs, *(n for n in program.statistics if n in tangent.results)]


def _jvp(
    op: Operation, program: Program, tangent: Tangent, function: str, given: list[str]
) -> list[str]:
    """Return the lines of jvp: the tangents of all outputs, each in the dtype of its output."""
    read = set(given)
    tensors = _saved_for_tangents(op, program, tangent, read)
    left = f"({tensors[0]},)" if len(tensors) == 1 else ", ".join(tensors)
    lines = [f"{left} = rt.primals(ctx.saved_tensors)"]
    lines += [f"{p.name} = ctx.{p.name}" for p in op.parameters if p.name in read]
    results = list(tangent.results.values())
    inside = call_lines(f"{', '.join(results)} = {function}(", given, ")", 12)
    values = [
        f"{tangent.results[n]}.to({n}.dtype)" if n in tangent.results else "None"
        for n in program.outputs
    ]
    # The forward may save a statistic with its group flattened to one axis.
    values += [
        f"{tangent.results[n]}.reshape({n}.shape).to({n}.dtype)" if n in tangent.results else "None"
        for n in program.statistics
    ]
    inside += return_statement(values, 12)
    return [*lines, "with rt.in_forward_mode():", *indented(inside, 4)]
