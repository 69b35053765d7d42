"""Generate a plain module: formulas, a Function in public calls of torch, and a short function.

What people read: one forward, one backward, the names of the formulas. `templates/plain.py.jinja`
shows its shape.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from derive.lowering.groups import group_shapes
from derive.lowering.layout_conversion import Border, lines_read, own_shapes
from derive.lowering.lowering_input import like_input
from derive.module.checks import constant_text
from derive.module.docstrings import OMITTED, title
from derive.module.function_codegen import (
    ClassFields,
    arguments,
    backward_signature,
    camel_case,
    gradients_of,
    returned,
    unpacked_items,
)
from derive.module.name_mangling import Coded
from derive.module.pretty_printer import (
    assigned,
    call_lines,
    indented,
    return_statement,
    statements,
    unpacked_tuple,
)
from derive.module.public import declared, docstring, result_type
from derive.module.runtime import imports_of
from derive.module.templating import environment
from derive.notation.operation import Choice, Operation, Tensor
from derive.program.aliasing import gradients_apart
from derive.program.cse import Line
from derive.program.program import Program
from derive.program.torch_ir import (
    DTYPES,
    Attribute,
    Code,
    FunctionCall,
    Keyword,
    Literal,
    MethodCall,
    Name,
    Tuple,
    names_in,
    replaced,
)
from derive.reports.result import Formulas


@dataclass(frozen=True)
class PlainPart:
    """A Function: the option that it computes, or None, its operation and its program."""

    option: str | None
    operation: Operation
    program: Program


@dataclass(frozen=True)
class PlainModule:
    """The Functions of a module, and what its public function computes around them."""

    parts: tuple[PlainPart, ...]
    """One, or one for each option of a choice."""
    finish: Mapping[str, tuple[Line, ...]]
    """option -> the lines that make its output of that of the only Function."""


def emit_plain(code: Coded, module: PlainModule, formulas: Sequence[Formulas]) -> str:
    """Return the source of a plain module; ``formulas`` are those of each Function."""
    op = code.operation
    taken = {op.name, *(x.name for x in (*op.inputs, *op.parameters, *op.equations))}
    classes = [_function_class(part, _class_name(op, part, taken)) for part in module.parts]
    whole = _public_body(code, module, [c.name for c in classes])
    result = result_type(len(module.parts[0].program.outputs))
    signature = call_lines(f"def {op.name}(", declared(code), f") -> {result}:", 0)
    every = [x.name for x in (*op.inputs, *op.parameters)]
    before, body = code.public(op.name, every, whole)
    lines = [line for c in classes for line in c.lines()]
    return (
        environment()
        .get_template("plain.py.jinja")
        .render(
            title=docstring(_document(op, module, formulas)),
            imports=imports_of([*lines, *whole, *signature, "torch."]),
            classes=classes,
            before=before,
            signature=signature,
            body=indented(body, 4),
        )
    )


def _class_name(op: Operation, part: PlainPart, taken: set[str]) -> str:
    """Return the name of a Function, which no tensor has."""
    name = camel_case(op.name) + camel_case(part.option or "")
    return f"_{name}" if name in taken else name


# ------------------------------------------------------------------ the docstring


def _document(op: Operation, module: PlainModule, formulas: Sequence[Formulas]) -> list[str]:
    equations = list(dict.fromkeys(f"    {f}" for d in formulas for f in d.equations))
    lines = [title(op.name), "", *equations]
    for part, d in zip(module.parts, formulas, strict=True):
        lines += ["", _heading(op, part, d), "", *(f"    {f}" for f in d.shown)]
    return [*lines, "", OMITTED]


def _heading(op: Operation, part: PlainPart, d: Formulas) -> str:
    """Return the line above the gradients: G = ∂L/∂Y."""
    choice = next((p.name for p in op.parameters if isinstance(p, Choice)), "")
    option = "" if part.option is None else f' for {choice}="{part.option}"'
    meanings = (f"{name} = ∂L/∂{output}" for output, name in d.cotangents)
    word = "Gradients" if len(d.shown) > 1 else "Gradient"
    return f"{', '.join((f'{word}{option}', *meanings))}:"


# ------------------------------------------------------------------ the Function


def _function_class(part: PlainPart, name: str) -> ClassFields:
    op, program = part.operation, part.program
    cotangents = [cotangent or f"_{output}" for output, cotangent in program.cotangents]
    return ClassFields(
        name=name,
        signature=indented(call_lines("def forward(", arguments(op), "):", 4), 4),
        forward=indented(returned(program.forward, program.outputs, 8), 8),
        outcome=_outcome(op, program),
        setup=indented(_setup(op, program), 8),
        backward_signature=backward_signature(cotangents, False),
        backward=indented(_backward(op, program), 8),
    )


def _outcome(op: Operation, program: Program) -> str:
    """Return the name of what forward returned: that of the only output, if no input has it."""
    alone = program.outputs if len(program.outputs) == 1 else ()
    names: tuple[str, ...] = (*alone, "outputs", "_outputs")
    taken = set(arguments(op))
    return next(name for name in names if name not in taken)


def _setup(op: Operation, program: Program) -> list[str]:
    """Return the lines of setup_context: what the backward reads is kept."""
    saved = [s.name for s in program.saved]
    silent = [output for output, cotangent in program.cotangents if cotangent is None]
    here, later = _sizes_at(program)
    parameters = _kept_parameters(program, later)
    shapes = [x for x in program.kept_shapes if x not in saved]
    read = {*saved, *shapes, *(name for x in here for name in names_in(x.code))}
    targets = (f"ctx.{n}" if n in parameters else n if n in read else "_" for n in arguments(op))
    lines = unpacked_items([*targets], "inputs")
    outcome = _outcome(op, program)
    if len(program.outputs) > 1 or outcome != program.outputs[0]:
        names = [name if name in (*saved, *silent) else "_" for name in program.outputs]
        lines += unpacked_items(names, outcome) if len(names) > 1 else [f"{names[0]} = {outcome}"]
    lines += call_lines("ctx.mark_non_differentiable(", silent, ")", 8) if silent else []
    given: dict[Code, Code] = {Name(name): _on_ctx(name) for name in parameters}
    lines += statements([replace(x, code=replaced(x.code, given)) for x in here], 8)
    lines += [f"ctx.{name} = {name}" for name in _kept_sizes(program, here, later)]
    lines += [f"ctx.{name}_shape = {name}.shape" for name in shapes]
    if saved and saved == arguments(op):
        return [*lines[1:], "ctx.save_for_backward(*inputs)"]
    lines += call_lines("ctx.save_for_backward(", saved, ")", 8) if saved else []
    return lines or ["pass"]


def _sizes_at(program: Program) -> tuple[list[Line], list[Line]]:
    """Return the lines of sizes that setup_context computes, and those that the backward can.

    The backward has the saved tensors, the parameters, and all sizes that are kept.
    """
    known = {*(s.name for s in program.saved), *program.parameters}
    here: list[Line] = []
    later: list[Line] = []
    for line in program.setup:
        (later if known.issuperset(names_in(line.code)) else here).append(line)
        known.add(line.name)
    return here, later


def _kept_sizes(program: Program, here: Sequence[Line], later: Sequence[Line]) -> list[str]:
    """Return the sizes of setup_context that the backward reads."""
    lines = [*later, *program.backward]
    read = {name for x in lines for name in names_in(x.code)}
    return [x.name for x in here if x.name in read]


def _kept_parameters(program: Program, later: Sequence[Line]) -> list[str]:
    """Return the parameters that the backward reads, with those that these lines read."""
    read = {*program.kept_parameters, *(name for x in later for name in names_in(x.code))}
    return [name for name in program.parameters if name in read]


def _backward(op: Operation, program: Program) -> list[str]:
    """Return the lines of backward: what is saved, then each gradient."""
    saved = [s.name for s in program.saved]
    here, later = _sizes_at(program)
    shapes = {t: Line(f"{t}_shape", Attribute(Name(t), "shape")) for t in program.kept_shapes}
    own = [line for t, line in shapes.items() if t in saved]
    lines = [*later, *own, *_gradient_lines(program)]
    kept = _kept_sizes(program, here, later)
    kept += [line.name for t, line in shapes.items() if t not in saved]
    lines, first = _with_kept(lines, (*_kept_parameters(program, later), *kept))
    made = unpacked_tuple(saved, "ctx.saved_tensors", 8) if saved else []
    made += statements([*first, *lines], 8)
    return [*made, *return_statement(gradients_of(op, program), 8)]


_OFTEN = 3
"""Reads of a parameter from which on it has a name in the backward."""


def _with_kept(lines: list[Line], kept: Sequence[str]) -> tuple[list[Line], list[Line]]:
    """Return the lines with what is kept read from ctx, and lines that name what is read often."""
    reads = Counter(name for line in lines for name in names_in(line.code))
    bound = {line.name for line in lines}
    often = [name for name in kept if reads[name] >= _OFTEN or name in bound]
    new: dict[Code, Code] = {Name(name): _on_ctx(name) for name in kept if name not in often}
    read = [Line(line.name, replaced(line.code, new)) for line in lines]
    return read, [Line(name, _on_ctx(name)) for name in often]


def _on_ctx(name: str) -> Code:
    return Attribute(Name("ctx"), name)


def _gradient_lines(program: Program) -> list[Line]:
    """Return the lines of the gradients; one that would share the memory of another is copied."""
    apart = gradients_apart(program, program.backward)
    copied = {x.name for x in apart if x not in program.backward}
    last = {line.name: n for n, line in enumerate(program.backward)}
    return [
        Line(x.name, MethodCall(x.code, "clone")) if x.name in copied and last[x.name] == n else x
        for n, x in enumerate(program.backward)
    ]


# ------------------------------------------------------------------ the public function


def _public_body(code: Coded, module: PlainModule, classes: Sequence[str]) -> list[str]:
    """Return the lines of the public function: defaults, the Function, the choice of an output."""
    op, lines = code.operation, _default_lines(code.operation)
    choice = next((p for p in op.parameters if isinstance(p, Choice)), None)
    calls = [f"{name}.apply(" for name in classes]
    given = [arguments(part.operation) for part in module.parts]
    if choice is None:
        return lines + call_lines(f"return {calls[0]}", given[0], ")", 4)
    options: dict[str, list[str]] = {}
    if module.finish:
        (part,) = module.parts
        (output,) = part.program.outputs
        lines += call_lines(f"{output} = {calls[0]}", given[0], ")", 4)
        for option, made in module.finish.items():
            results = [made[-1].name if made else output]
            options[option] = returned(made, results, 8)
    else:
        for part, call, own in zip(module.parts, calls, given, strict=True):
            options[part.option or ""] = call_lines(f"return {call}", own, ")", 8)
    (default, _), *_ = choice.outputs
    others = [option for option in options if option != default]
    for option in sorted(others, key=lambda option: len(options[option])):
        lines += [f'if {choice.name} == "{option}":', *indented(options[option], 4)]
    return lines + options[default]


def _default_lines(op: Operation) -> list[str]:
    """Return the statements that put the default of an optional input in the place of None."""
    border = Border.of(op)
    optional = {t.name: t for t in op.inputs if t.default is not None}
    made = [Line(name, _default(op, border, t)) for name, t in optional.items()]
    made = own_shapes(made, [t.name for t in op.inputs if t.name not in optional])
    lines = [s for line in lines_read(group_shapes(op), made) for s in assigned(line, 4)]
    for line in made:
        lines += [f"if {line.name} is None:", *indented(assigned(line, 8), 4)]
    return lines


def _default(op: Operation, border: Border, t: Tensor) -> Code:
    """Return a tensor of the default of an optional input: ones, zeros, or another constant."""
    number = constant_text(t.default)
    word = {"0": "zeros", "1": "ones"}.get(number, "full")
    value = () if word != "full" else (Literal(number),)
    alike = (x for x in op.inputs if x.default is None and x.kind == t.kind and x.axes == t.axes)
    if (other := next(alike, None)) is not None:
        return FunctionCall(f"torch.{word}_like", (Name(other.name), *value))
    dtype = DTYPES.get(t.kind)
    kind = () if dtype is None else (Keyword("dtype", dtype),)
    arguments = (Tuple(border.outer_sizes(t.name)), *value, *kind)
    return MethodCall(like_input(op), f"new_{word}", arguments)
