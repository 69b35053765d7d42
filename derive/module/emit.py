"""A program to Python source: strings are made here, the template only places them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from derive.errors import LoweringError
from derive.lowering.program import Program
from derive.module.arguments import Check, refused, steps
from derive.module.checks import constant_text
from derive.module.document import Doc
from derive.module.naming import Coded, with_own_meanings
from derive.module.statements import COLUMNS, assigned, called, indented, stated
from derive.notation.operation import Choice, KeepDim, Operation
from derive.program.code import Code, names_in
from derive.program.needs import conditions

if TYPE_CHECKING:
    from jinja2 import Environment


@dataclass(frozen=True)
class Variant:
    """The program of one option of a choice; ``option`` is None without a choice."""

    option: str | None
    program: Program


@dataclass(frozen=True)
class _Function:
    """What the template places for one autograd.Function."""

    name: str
    plain_signature: tuple[str, ...]
    forward: tuple[str, ...]
    signature: tuple[str, ...]
    call: tuple[str, ...]
    outcome: str
    setup: tuple[str, ...]
    backward_signature: tuple[str, ...]
    backward: tuple[str, ...]


@dataclass(frozen=True)
class _Module:
    """What the template places for a module."""

    title: tuple[str, ...]
    imports: tuple[str, ...]
    helpers: tuple[str, ...]
    functions: tuple[_Function, ...]
    options: tuple[str, ...]
    signature: tuple[str, ...]
    doc: tuple[str, ...]
    body: tuple[str, ...]


def emit(code: Coded, variants: Sequence[Variant], checks: Sequence[Check], doc: Doc) -> str:
    """The source of a module; the lines of ``doc`` are placed as they are."""
    op = code.operation
    functions = tuple(_function(op, v) for v in variants)
    lines = [line for f in functions for line in (*f.forward, *f.setup, *f.backward)]
    whole = _body(code, variants, [*checks, *steps(op, _codes(variants), checks)])
    helpers = tuple(helpers_in(["\n".join([*whole, *lines])]))
    signature = called(f"def {op.name}(", declared(code), "):", 0)
    imports = imports_of([*whole, *lines, *helpers, *signature])
    every = [x.name for x in (*op.inputs, *op.parameters)]
    before, body = code.public(op.name, every, whole)
    imports.append("from torch.autograd import Function, forward_ad")
    module = _Module(
        title=tuple(docstring(doc.module)),
        imports=tuple(imports),
        helpers=helpers,
        functions=functions,
        options=(*_options(op, variants), *before),
        signature=tuple(signature),
        doc=indented(docstring(doc.function), 4),
        body=indented(body, 4),
    )
    text = environment().get_template("module.py.jinja").render(module=module)
    return with_own_meanings(text, op.name)


def _codes(variants: Sequence[Variant]) -> Iterator[Code]:
    """All that is computed."""
    for program in (v.program for v in variants):
        backward = (entry.line for entry in program.backward)
        yield from (line.code for line in (*program.forward, *program.setup, *backward))


def imports_of(lines: Sequence[str]) -> list[str]:
    """The import statements that the code needs."""
    whole = "\n".join(lines)
    found = ["import math", ""] if "math." in whole else []
    return [*found, "import torch"] if "torch." in whole else found


# -------------------------------------------------------------------- templates


@cache
def _template(name: str) -> str:
    """A template beside the package: in the wheel inside it, in the repository next to it."""
    inside = files("derive").joinpath("templates", name)
    if inside.is_file():
        return inside.read_text(encoding="utf-8")
    beside = Path(__file__).resolve().parents[2] / "templates" / name
    return beside.read_text(encoding="utf-8")


@cache
def environment() -> Environment:
    """Where templates are found and how they are read."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    return Environment(
        loader=FunctionLoader(_template),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )


@cache
def _helpers() -> dict[str, list[str]]:
    """Functions that lowered code may call, each before those that it calls: name -> lines."""
    files = (_template(f"helpers/{name}.py") for name in ("parameters", "ieee", "scans"))
    parts = (part for text in files for part in text.rstrip("\n").split("\n\n\n"))
    functions = (part for part in parts if part.startswith("def "))
    return {f[len("def ") : f.index("(")]: f.split("\n") for f in functions}


def helpers_in(lines: Sequence[str]) -> list[str]:
    """The source of the functions that the code calls."""
    found: list[str] = []
    for name, own in _helpers().items():
        if any(f"{name}(" in line for line in (*lines, *found)):
            found += [*own, "", ""]
    return found


# -------------------------------------------------------------------- functions


def _camel(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def _names(op: Operation, option: str | None) -> tuple[str, str]:
    """(class, forward function) of one option."""
    suffix = "" if option is None else f"_{option}"
    return f"_{_camel(op.name)}{_camel(suffix)}", f"_{op.name}{suffix}_forward"


def _arguments(op: Operation) -> list[str]:
    return [t.name for t in op.inputs] + [
        p.name for p in op.parameters if not isinstance(p, Choice)
    ]


def _function(op: Operation, variant: Variant) -> _Function:
    program = variant.program
    name, forward_name = _names(op, variant.option)
    forward = [s for line in program.forward[:-1] for s in assigned(line, 4)]
    results = list(program.outputs)
    last = program.forward[-1] if program.forward else None
    if last is not None and results == [last.name]:
        forward += stated("return ", last.code, 4)
    else:
        forward += assigned(last, 4) if last is not None else []
        forward += _returned(results, 4)
    return _Function(
        name=name,
        plain_signature=tuple(called(f"def {forward_name}(", _arguments(op), "):", 0)),
        forward=indented(forward, 4),
        signature=indented(called("def forward(", _arguments(op), "):", 4), 4),
        call=indented(called(f"return {forward_name}(", _arguments(op), ")", 8), 8),
        outcome=_outcome(program),
        setup=indented(_setup(op, program), 8),
        backward_signature=indented(
            called("def backward(", ["ctx", *_cotangents(program)], "):", 4), 4
        ),
        backward=indented(_backward(op, program), 8),
    )


def _cotangents(program: Program) -> list[str]:
    """The names of the cotangents of all outputs; of one that has none, a name that is not read."""
    return [
        f"_grad_{output}" if cotangent is None else cotangent
        for output, cotangent in program.cotangents
    ]


def _returned(values: Sequence[str], indent: int) -> list[str]:
    """A return statement."""
    whole = f"return {', '.join(values)}"
    return [whole] if len(whole) + indent <= COLUMNS else called("return (", values, ")", indent)


def _outcome(program: Program) -> str:
    """What setup_context calls the outputs all together: no output has the name."""
    return "result" if "output" in program.outputs else "output"


def _setup(op: Operation, program: Program) -> list[str]:
    """The lines of setup_context: parameters and shapes on ctx, tensors saved."""
    saved = {s.name for s in program.saved}
    read = {*saved, *program.kept_parameters, *program.kept_shapes}
    read |= {name for line in program.setup for name in names_in(line.code)}
    silent = [output for output, cotangent in program.cotangents if cotangent is None]
    lines = _unpacked(_arguments(op), read, "inputs")
    wanted = {*saved, *silent}
    if len(program.outputs) > 1:
        lines += _unpacked(program.outputs, wanted, _outcome(program))
    elif wanted.intersection(program.outputs):
        lines.append(f"{program.outputs[0]} = {_outcome(program)}")
    if silent:
        lines += called("ctx.mark_non_differentiable(", silent, ")", 8)
    lines += [s for line in program.setup for s in assigned(line, 8)]
    kept = (*program.kept_parameters, *program.kept_groups)
    lines += [f"ctx.{name} = {name}" for name in kept]
    lines += [f"ctx.{name}_shape = {name}.shape" for name in program.kept_shapes]
    if program.saved:
        lines += called("ctx.save_for_backward(", _entries(op, program), ")", 8)
    return lines or ["pass"]


def _entries(op: Operation, program: Program) -> list[str]:
    """Each tensor that is saved, only where a gradient is asked for that reads it."""
    places = {t.name: n for n, t in enumerate(op.inputs)}
    entries = []
    for s in program.saved:
        condition = " or ".join(f"ctx.needs_input_grad[{places[n]}]" for n in s.needs)
        entry = f"{s.name} if {condition} else None"
        short = len(entry) + 13 <= COLUMNS and len(s.needs) < len(program.differentiable)
        entries.append(entry if short else s.name)
    return entries


def _unpacked(names: Sequence[str], wanted: set[str], source: str) -> list[str]:
    """The names that are wanted, from a tuple; ``_`` stands for one that is not."""
    found = [f"{name} = {source}[{n}]" for n, name in enumerate(names) if name in wanted]
    whole = _unpack([name if name in wanted else "_" for name in names], source)
    return [whole] if found and len(whole) + 8 <= COLUMNS else found


def _unpacked_all(names: Sequence[str], source: str) -> list[str]:
    """The names from a tuple that is made anew each time that it is asked for."""
    whole = _unpack(names, source)
    if len(whole) + 8 <= COLUMNS:
        return [whole]
    return ["(", *(f"    {name}," for name in names), f") = {source}"]


def _unpack(names: Sequence[str], source: str) -> str:
    inside = ", ".join(names)
    return f"({inside},) = {source}" if len(names) == 1 else f"{inside} = {source}"


def _backward(op: Operation, program: Program) -> list[str]:
    """The lines of backward: what was kept, each gradient under its need, the results."""
    lines = []
    if program.saved:
        lines += _unpacked_all([s.name for s in program.saved], "ctx.saved_tensors")
    kept = (*program.kept_parameters, *program.kept_groups)
    lines += [f"{name} = ctx.{name}" for name in kept]
    lines += [f"{name}_shape = ctx.{name}_shape" for name in program.kept_shapes]
    places = {t.name: n for n, t in enumerate(op.inputs)}
    backward = [(entry.line, entry.needs) for entry in program.backward]
    taken = {op.name, *places, *(name for x, _ in backward for name in (x.name, *names_in(x.code)))}
    asked = conditions(backward, program.gradients, places, taken)
    for name, alternatives in asked.names:
        lines += _any_of(f"{name} = ", alternatives, "")
    if len(program.gradients) > 1:
        lines += _all_none(list(program.gradients.values()))
    open_condition: tuple[str, ...] = ()
    for line, needs in backward:
        condition = asked.of[needs]
        if condition and condition != open_condition:
            lines += _any_of("if ", condition, ":")
        depth = 4 if condition else 0
        lines += indented(assigned(line, 8 + depth), depth)
        open_condition = condition
    results = [program.gradients.get(t.name, "None") for t in op.inputs]
    results += ["None" for p in op.parameters if not isinstance(p, Choice)]
    return [*lines, *_returned(results, 8)]


def _any_of(start: str, alternatives: Sequence[str], end: str) -> list[str]:
    """start + one alternative or another + end, taken apart where it is too long."""
    whole = f"{start}{' or '.join(alternatives)}{end}"
    if len(whole) + 8 <= COLUMNS:
        return [whole]
    first, *rest = alternatives
    return [f"{start}(", f"    {first}", *(f"    or {part}" for part in rest), f"){end}"]


def _all_none(names: Sequence[str]) -> list[str]:
    """Statements that set the names to None, as many in one as fit a line."""
    chunks: list[list[str]] = [[]]
    for name in names:
        if chunks[-1] and len(" = ".join([*chunks[-1], name, "None"])) + 8 > COLUMNS:
            chunks.append([])
        chunks[-1].append(name)
    return [" = ".join([*chunk, "None"]) for chunk in chunks]


# -------------------------------------------------------------------- the public function


def declared(code: Coded) -> list[str]:
    """The arguments of the public function with their defaults."""
    op, say = code.operation, code.say
    arguments: list[str] = []
    optional_from = len(op.inputs)
    while optional_from and op.inputs[optional_from - 1].default is not None:
        optional_from -= 1
    for n, t in enumerate(op.inputs):
        arguments.append(f"{say(t.name)}=None" if n >= optional_from else say(t.name))
    if op.parameters:
        arguments.append("*")
    for p in op.parameters:
        if isinstance(p, Choice):
            arguments.append(f'{say(p.name)}="{p.outputs[0][0]}"')
        elif isinstance(p, KeepDim):
            arguments.append(f"{say(p.name)}=False")
        elif p.default is None:
            arguments.append(say(p.name))
        else:
            arguments.append(f"{say(p.name)}={constant_text(p.default)}")
    return arguments


def docstring(doc: Sequence[str]) -> list[str]:
    """The lines as a docstring."""
    first, *rest = (line.replace("\\", "\\\\").replace('"""', "'''") for line in doc)
    return [f'"""{first}', *rest, '"""'] if rest else [f'"""{first}"""']


def _options(op: Operation, variants: Sequence[Variant]) -> list[str]:
    """The table from the options of a choice to their functions."""
    if variants[0].option is None:
        return []
    lines = ["_OPTIONS = {"]
    for v in variants:
        function, forward = _names(op, v.option)
        entry = f'    "{v.option}": ({function}, {forward}),'
        if len(entry) <= COLUMNS:
            lines.append(entry)
        else:
            lines += [
                f'    "{v.option}": (',
                f"        {function},",
                f"        {forward},",
                "    ),",
            ]
    return [*lines, "}", "", ""]


def _body(code: Coded, variants: Sequence[Variant], checks: Sequence[Check]) -> list[str]:
    """The lines of the public function after its docstring."""
    op = code.operation
    lines = [line for check in checks for line in checked(code.said(check))]
    function, forward = _names(op, variants[0].option)
    for p in op.parameters:
        if isinstance(p, Choice):
            names = ", ".join(repr(option).replace("'", '"') for option, _ in p.outputs)
            message = f"{p.name} must be one of {names}, not {{{p.name}!r}}"
            test = f"not isinstance({p.name}, str) or {p.name} not in _OPTIONS"
            lines += checked(code.said(refused(op, test, message)))
            lines.append(f"function, forward = _OPTIONS[{p.name}]")
            function, forward = "function", "forward"
    arguments = _arguments(op)
    lines.append("if forward_ad._current_level >= 0:")
    lines += [f"    {line}" for line in called(f"return {forward}(", arguments, ")", 8)]
    lines += called(f"return {function}.apply(", arguments, ")", 4)
    return lines


def checked(check: Check) -> list[str]:
    """The lines of one check."""
    lines = list(check.prepare)
    if check.test:
        lines += _condition_lines(check.test)
        lines += [f"    {line}" for line in _raise(check)]
    return [*lines, *check.then]


def _condition_lines(test: str) -> list[str]:
    """An if statement, taken apart before its operators where it is longer than a line."""
    if len(test) + 8 <= COLUMNS:
        return [f"if {test}:"]
    operands = re.split(r" (?=or |!= )", test)
    lines = [line for operand in operands for line in _operand_lines(operand)]
    if any(len(line) + 8 > COLUMNS for line in lines):
        raise LoweringError(f"a check that is longer than a line: {test}")
    return ["if (", *(f"    {line}" for line in lines), "):"]


def _operand_lines(operand: str) -> list[str]:
    if len(operand) + 8 <= COLUMNS or not operand.endswith("]"):
        return [operand]
    start, _, inside = operand.partition("[")
    return [f"{start}[", f"    {inside[:-1]}", "]"]


def _raise(check: Check) -> list[str]:
    """A raise statement; a long message is taken apart between words."""
    message = check.message.replace('"', "'")
    whole = f"raise {check.error}({_fstring(message)})"
    if len(whole) + 8 <= COLUMNS:
        return [whole]
    pieces = [""]
    for word in re.findall(r"\{[^{}]*\}|[^\s{}]+|\s+", message):
        if len(pieces[-1]) + len(word) > COLUMNS - 15 and word.strip():
            pieces.append("")
        pieces[-1] += word
    return [f"raise {check.error}(", *(f"    {_fstring(p)}" for p in pieces), ")"]


def _fstring(message: str) -> str:
    return f'f"{message}"' if "{" in message else f'"{message}"'
