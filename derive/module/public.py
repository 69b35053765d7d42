"""Generate the public function: its signature, its docstring, and its checks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import groupby

from derive.errors import LoweringError
from derive.module.arguments import ArgumentCheck
from derive.module.checks import constant_text
from derive.module.name_mangling import Coded
from derive.module.pretty_printer import COLUMNS, indented
from derive.notation.operation import AxisOf, Choice, KeepDim, Parameter, SizeOf


def declared(code: Coded) -> list[str]:
    """Return the arguments of the public function with their types and defaults."""
    op, display_name = code.operation, code.display_name
    arguments: list[str] = []
    optional_from = len(op.inputs)
    while optional_from and op.inputs[optional_from - 1].default is not None:
        optional_from -= 1
    for n, t in enumerate(op.inputs):
        optional = " | None" if t.default is not None else ""
        default = " = None" if n >= optional_from else ""
        arguments.append(f"{display_name(t.name)}: torch.Tensor{optional}{default}")
    if op.parameters:
        arguments.append("*")
    return arguments + [f"{display_name(p.name)}: {_typed(p)}" for p in op.parameters]


def _typed(p: Parameter) -> str:
    """Return the type of a parameter, and its default."""
    if isinstance(p, Choice):
        options = [f'"{option}"' for option, _ in p.outputs]
        return f"Literal[{', '.join(options)}] = {options[0]}"
    if isinstance(p, KeepDim):
        return "bool = False"
    kind = "int" if isinstance(p, AxisOf | SizeOf) or p.integer else "float"
    return kind if p.default is None else f"{kind} = {constant_text(p.default)}"


def result_type(outputs: int) -> str:
    """Return the type annotation of that many outputs."""
    if outputs == 1:
        return "torch.Tensor"
    return f"tuple[{', '.join(['torch.Tensor'] * outputs)}]"


def docstring(doc: Sequence[str]) -> list[str]:
    """Return the lines as a docstring."""
    first, *rest = (line.replace("\\", "\\\\").replace('"""', "'''") for line in doc)
    return [f'"""{first}', *rest, '"""'] if rest else [f'"""{first}"""']


def check_lines(checks: Iterable[ArgumentCheck]) -> list[str]:
    """Return the lines of checks; those of an optional tensor run only if it is given."""
    lines: list[str] = []
    for given, some in groupby(checks, lambda check: check.given):
        if given:
            inner = (line for check in some for line in _one_check_lines(check, COLUMNS - 4))
            lines += [f"if {given} is not None:", *indented(inner, 4)]
        else:
            lines += [line for check in some for line in _one_check_lines(check, COLUMNS)]
    return lines


def _one_check_lines(check: ArgumentCheck, columns: int) -> list[str]:
    """Return the lines of one check."""
    lines = list(check.prepare)
    if check.test:
        lines += _condition_lines(check.test, columns)
        lines += [f"    {line}" for line in _raise(check, columns)]
    return [*lines, *check.then]


def _condition_lines(test: str, columns: int) -> list[str]:
    """Return an if statement, split before its operators if it is too long."""
    if len(test) + 8 <= columns:
        return [f"if {test}:"]
    operands = re.split(r" (?=or |!= )", test)
    lines = [line for operand in operands for line in _operand_lines(operand, columns)]
    if any(len(line) + 8 > columns for line in lines):
        raise LoweringError(f"a check is longer than one line: {test}")
    return ["if (", *(f"    {line}" for line in lines), "):"]


def _operand_lines(operand: str, columns: int) -> list[str]:
    if len(operand) + 8 <= columns or not operand.endswith("]"):
        return [operand]
    start, _, inside = operand.partition("[")
    return [f"{start}[", f"    {inside[:-1]}", "]"]


def _raise(check: ArgumentCheck, columns: int) -> list[str]:
    """Return a raise statement; a long message is split between words."""
    message = check.message.replace('"', "'")
    whole = f"raise {check.error}({_fstring(message)})"
    if len(whole) + 8 <= columns:
        return [whole]
    pieces = [""]
    for word in re.findall(r"\{[^{}]*\}|[^\s{}]+|\s+", message):
        if len(pieces[-1]) + len(word) > columns - 15 and word.strip():
            pieces.append("")
        pieces[-1] += word
    return [f"raise {check.error}(", *(f"    {_fstring(p)}" for p in pieces), ")"]


def _fstring(message: str) -> str:
    return f'f"{message}"' if "{" in message else f'"{message}"'
