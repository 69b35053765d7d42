"""A program to Python source: strings are made here, the template only places them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

from jinja2 import BaseLoader, Environment, StrictUndefined

from derive.document import Doc
from derive.errors import LoweringError
from derive.lowering.checks import Check, constant_text
from derive.lowering.code import text
from derive.lowering.program import Program
from derive.lowering.tidy import Line, names_in
from derive.spec.operation import Choice, KeepDim, Operation

__all__ = ["Variant", "emit"]

_COLUMNS = 88


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
    setup: tuple[str, ...]
    cotangents: str
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


def emit(op: Operation, variants: Sequence[Variant], checks: Sequence[Check], doc: Doc) -> str:
    """The source of the module of ``op``; the lines of ``doc`` are placed as they are."""
    functions = tuple(_function(op, v) for v in variants)
    body = tuple(_body(op, variants, checks))
    code = "\n".join(
        [*body, *(line for f in functions for line in (*f.forward, *f.setup, *f.backward))]
    )
    helpers = tuple(
        line for name in _helper_names() if name + "(" in code for line in _helper(name)
    )
    whole = "\n".join([code, *helpers, *_signature(op)])
    imports = []
    if "math." in whole:
        imports += ["import math", ""]
    if "torch." in whole:
        imports.append("import torch")
    imports.append("from torch.autograd import Function, forward_ad")
    module = _Module(
        title=tuple(_docstring(doc.module)),
        imports=tuple(imports),
        helpers=helpers,
        functions=functions,
        options=tuple(_options(op, variants)),
        signature=tuple(_signature(op)),
        doc=_indented(_docstring(doc.function), 4),
        body=_indented(body, 4),
    )
    return _environment().get_template("module.py.jinja").render(module=module)


# -------------------------------------------------------------------- templates


class _Templates(BaseLoader):
    """The templates beside the package: in the wheel inside it, in the repository next to it."""

    def get_source(self, environment: Environment, template: str) -> tuple[str, None, None]:
        return _template(template), None, None


@cache
def _template(name: str) -> str:
    inside = files("derive").joinpath("templates", name)
    if inside.is_file():
        return inside.read_text(encoding="utf-8")
    beside = Path(__file__).resolve().parent.parent / "templates" / name
    return beside.read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    return Environment(
        loader=_Templates(),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )


def _helper_names() -> tuple[str, ...]:
    """Functions that lowered code may call, each in a template of its own."""
    return ("_product_of_others",)


def _helper(name: str) -> list[str]:
    return [*_template(f"{name.lstrip('_')}.py.jinja").rstrip("\n").split("\n"), "", ""]


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
    forward = [_assign(line) for line in program.forward]
    results = list(program.outputs)
    last = program.forward[-1] if program.forward else None
    if last is not None and results == [last.name]:
        forward[-1] = f"return {text(last.code)}"
    else:
        forward.append(f"return {', '.join(results)}")
    return _Function(
        name=name,
        plain_signature=tuple(_call(f"def {forward_name}(", _arguments(op), "):", 0)),
        forward=_indented(forward, 4),
        signature=_indented(_call("def forward(", _arguments(op), "):", 4), 4),
        call=_indented(_call(f"return {forward_name}(", _arguments(op), ")", 8), 8),
        setup=_indented(_setup(op, program), 8),
        cotangents=", ".join(
            f"_grad_{output}" if cotangent is None else cotangent
            for output, cotangent in program.cotangents
        ),
        backward=_indented(_backward(op, program), 8),
    )


def _assign(line: Line) -> str:
    return f"{line.name} = {text(line.code)}"


def _indented(lines: Iterable[str], by: int) -> tuple[str, ...]:
    return tuple(f"{' ' * by}{line}" if line else "" for line in lines)


def _needs(op: Operation, program: Program, needs: Sequence[str]) -> str | None:
    """The condition that one of these inputs wants its gradient; None where it always holds."""
    if set(needs) >= set(program.differentiable):
        return None
    names = [t.name for t in op.inputs]
    return " or ".join(f"ctx.needs_input_grad[{names.index(n)}]" for n in needs)


def _setup(op: Operation, program: Program) -> list[str]:
    """The lines of setup_context: parameters and shapes on ctx, tensors saved."""
    saved = {s.name for s in program.saved}
    read = {*saved, *program.kept_parameters, *program.kept_shapes}
    read |= {name for line in program.setup for name in names_in(line.code)}
    lines = []
    arguments = _arguments(op)
    if any(a in read for a in arguments):
        lines += _unpacked([a if a in read else "_" for a in arguments], "inputs")
    silent = [output for output, cotangent in program.cotangents if cotangent is None]
    wanted = {o for o in program.outputs if o in saved or o in silent}
    if wanted:
        names = [o if o in wanted else "_" for o in program.outputs]
        if len(names) > 1:
            lines += _unpacked(names, "output")
        else:
            lines.append(f"{names[0]} = output")
    if silent:
        lines.append(f"ctx.mark_non_differentiable({', '.join(silent)})")
    lines += [_assign(line) for line in program.setup]
    kept = (*program.kept_parameters, *program.kept_groups)
    lines += [f"ctx.{name} = {name}" for name in kept]
    lines += [f"ctx.{name}_shape = {name}.shape" for name in program.kept_shapes]
    if program.saved:
        entries = []
        for s in program.saved:
            condition = _needs(op, program, s.needs)
            entry = f"{s.name} if {condition} else None"
            short = condition is not None and len(entry) + 13 <= _COLUMNS
            entries.append(entry if short else s.name)
        lines += _call("ctx.save_for_backward(", entries, ")", 8)
    return lines or ["pass"]


def _unpacked(names: Sequence[str], source: str) -> list[str]:
    """The names that are wanted, from a tuple; ``_`` stands for one that is not."""
    whole = _unpack(names, source)
    if len(whole) + 8 <= _COLUMNS:
        return [whole]
    return [f"{name} = {source}[{n}]" for n, name in enumerate(names) if name != "_"]


def _unpack(names: Sequence[str], source: str) -> str:
    inside = ", ".join(names)
    return f"({inside},) = {source}" if len(names) == 1 else f"{inside} = {source}"


def _backward(op: Operation, program: Program) -> list[str]:
    """The lines of backward: what was kept, each gradient under its need, the results."""
    lines = []
    if program.saved:
        lines += _unpacked([s.name for s in program.saved], "ctx.saved_tensors")
    kept = (*program.kept_parameters, *program.kept_groups)
    lines += [f"{name} = ctx.{name}" for name in kept]
    lines += [f"{name}_shape = ctx.{name}_shape" for name in program.kept_shapes]
    conditional = [
        program.gradients[n] for n in program.differentiable if _needs(op, program, [n]) is not None
    ]
    if conditional:
        lines.append(f"{' = '.join(conditional)} = None")
    open_condition: str | None = None
    for entry in program.backward:
        condition = _needs(op, program, entry.needs)
        if condition is None:
            lines.append(_assign(entry.line))
        else:
            if condition != open_condition:
                lines += _condition(condition)
            lines.append(f"    {_assign(entry.line)}")
        open_condition = condition
    results = [program.gradients.get(t.name, "None") for t in op.inputs]
    results += ["None" for p in op.parameters if not isinstance(p, Choice)]
    whole = f"return {', '.join(results)}"
    if len(whole) + 8 <= _COLUMNS:
        return [*lines, whole]
    return [*lines, *_call("return (", results, ")", 8)]


def _condition(condition: str) -> list[str]:
    """An if line, taken apart where it is too long."""
    whole = f"if {condition}:"
    if len(whole) + 8 <= _COLUMNS:
        return [whole]
    first, *rest = condition.split(" or ")
    return ["if (", f"    {first}", *(f"    or {part}" for part in rest), "):"]


def _call(start: str, arguments: Sequence[str], end: str, indent: int) -> list[str]:
    """start + arguments + end as a formatter writes it: on one line, hanging, or one each."""
    whole = f"{start}{', '.join(arguments)}{end}"
    if len(whole) + indent <= _COLUMNS:
        return [whole]
    hanging = f"    {', '.join(arguments)}"
    if len(hanging) + indent <= _COLUMNS and start != "return (":
        return [start, hanging, end]
    return [start, *(f"    {a}," for a in arguments), end]


# -------------------------------------------------------------------- the public function


def _signature(op: Operation) -> list[str]:
    """The def line(s) of the public function."""
    arguments: list[str] = []
    optional_from = len(op.inputs)
    while optional_from and op.inputs[optional_from - 1].default is not None:
        optional_from -= 1
    for n, t in enumerate(op.inputs):
        arguments.append(f"{t.name}=None" if n >= optional_from else t.name)
    if op.parameters:
        arguments.append("*")
    for p in op.parameters:
        if isinstance(p, Choice):
            arguments.append(f'{p.name}="{p.outputs[0][0]}"')
        elif isinstance(p, KeepDim):
            arguments.append(f"{p.name}=False")
        elif p.default is None:
            arguments.append(p.name)
        else:
            arguments.append(f"{p.name}={constant_text(p.default)}")
    return _call(f"def {op.name}(", arguments, "):", 0)


def _docstring(doc: Sequence[str]) -> list[str]:
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
        if len(entry) <= _COLUMNS:
            lines.append(entry)
        else:
            lines += [
                f'    "{v.option}": (',
                f"        {function},",
                f"        {forward},",
                "    ),",
            ]
    return [*lines, "}", "", ""]


def _body(op: Operation, variants: Sequence[Variant], checks: Sequence[Check]) -> list[str]:
    """The lines of the public function after its docstring."""
    lines: list[str] = []
    for check in checks:
        lines += check.prepare
        if check.test:
            lines += _condition_line(check.test)
            lines += [f"    {line}" for line in _raise(check)]
        lines += check.then
    function, forward = _names(op, variants[0].option)
    for p in op.parameters:
        if isinstance(p, Choice):
            names = ", ".join(repr(option).replace("'", '"') for option, _ in p.outputs)
            message = f"{op.name}: {p.name} must be one of {names}, not {{{p.name}!r}}"
            check = Check((), f"{p.name} not in _OPTIONS", "ValueError", message)
            lines += _condition_line(check.test)
            lines += [f"    {line}" for line in _raise(check)]
            lines.append(f"function, forward = _OPTIONS[{p.name}]")
            function, forward = "function", "forward"
    arguments = _arguments(op)
    lines.append("if forward_ad._current_level >= 0:")
    lines += [f"    {line}" for line in _call(f"return {forward}(", arguments, ")", 8)]
    lines += _call(f"return {function}.apply(", arguments, ")", 4)
    return lines


def _condition_line(test: str) -> list[str]:
    if len(test) + 8 > _COLUMNS:
        raise LoweringError(f"a check that is longer than a line: {test}")
    return [f"if {test}:"]


def _raise(check: Check) -> list[str]:
    """A raise statement; a long message is taken apart between words."""
    message = check.message.replace('"', "'")
    whole = f"raise {check.error}({_fstring(message)})"
    if len(whole) + 8 <= _COLUMNS:
        return [whole]
    pieces = [""]
    for word in re.findall(r"\{[^{}]*\}|[^\s{}]+|\s+", message):
        if len(pieces[-1]) + len(word) > _COLUMNS - 15 and word.strip():
            pieces.append("")
        pieces[-1] += word
    return [f"raise {check.error}(", *(f"    {_fstring(p)}" for p in pieces), ")"]


def _fstring(message: str) -> str:
    return f'f"{message}"' if "{" in message else f'"{message}"'
