"""Generate the public function: its signature, its docstring, and its checks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import groupby

from derive.module.arguments import ArgumentCheck, is_option, stride_checks
from derive.module.checks import constant_text
from derive.module.name_mangling import Coded
from derive.module.pretty_printer import call_lines, collected, indented
from derive.module.signature import signature
from derive.notation.operation import AxisOf, Choice, KeepDim, Parameter, SizeOf
from derive.program.torch_ir import Code
from derive.program.torch_printer import COLUMNS


def declared(code: Coded) -> list[str]:
    """Return the arguments of the public function with their types and defaults.

    A parameter may be given by position, as torch's may. Python wants the name of one without a
    default that follows a default, and of all after it.
    """
    op, display_name = code.operation, code.display_name
    arguments: list[str] = []
    optional_from = len(op.inputs)
    while optional_from and op.inputs[optional_from - 1].default is not None:
        optional_from -= 1
    for n, t in enumerate(op.inputs):
        optional = " | None" if t.default is not None else ""
        default = " = None" if n >= optional_from else ""
        arguments.append(f"{display_name(t.name)}: torch.Tensor{optional}{default}")
    for p in op.parameters:
        own = f"{display_name(p.name)}: {_typed(p)}"
        if " = " not in own and arguments and " = " in arguments[-1] and "*" not in arguments:
            arguments.append("*")
        arguments.append(own)
    return arguments


def _typed(p: Parameter) -> str:
    """Return the type of a parameter, and its default."""
    if isinstance(p, Choice):
        options = [f'"{option}"' for option, _ in p.outputs]
        return f"Literal[{', '.join(options)}] = {options[0]}"
    if isinstance(p, KeepDim):
        return "bool = False"
    kind = "int" if isinstance(p, AxisOf | SizeOf) or p.integer else "float"
    if p.default is None:
        return kind
    default = constant_text(p.default)
    if kind == "float" and default.lstrip("-").isdigit():
        default += ".0"
    return f"{kind} = {default}"


def result_type(outputs: int) -> str:
    """Return the type annotation of that many outputs."""
    if outputs == 1:
        return "torch.Tensor"
    return f"tuple[{', '.join(['torch.Tensor'] * outputs)}]"


def docstring(doc: Sequence[str]) -> list[str]:
    """Return the lines as a docstring."""
    first, *rest = (line.replace("\\", "\\\\").replace('"""', "'''") for line in doc)
    return [f'"""{first}', *rest, '"""'] if rest else [f'"""{first}"""']


def entry_lines(code: Coded, given: Sequence[ArgumentCheck], codes: Iterable[Code]) -> list[str]:
    """Return the first lines of the public function: conversions and checks.

    Beside those that are given, these are the checks of the strides in its ``codes``, and of its
    choice. The tests without a message are one condition. Where it holds, the error is found from
    the signature.
    """
    op = code.operation
    options = (is_option(p) for p in op.parameters if isinstance(p, Choice))
    checks = [*given, *stride_checks(op, codes, given), *options]
    lines = [line for check in checks for line in code.said(check).convert]
    joined = [check for check in checks if check.test and not check.message]
    if joined:
        lines += [*_joined_condition(joined), *indented(_explained(code, joined), 4)]
    return lines + check_lines(code.said(c) for c in checks if c.message or c.then)


def _joined_condition(checks: Iterable[ArgumentCheck]) -> list[str]:
    """Return the if statement of a condition under which any of the checks fails."""
    tests: list[str] = []
    for given, some in groupby(checks, lambda check: check.given):
        own = [check.test for check in some]
        if given:
            tests += (f"({given} is not None and {test})" for test in own)
        else:
            tests += (part for test in own for part in test.split(" or "))
    if len(tests) == 1 and tests[0][0] == "(":
        tests = [tests[0][1:-1]]
    return _condition_lines(tests, COLUMNS)


def _condition_lines(tests: Sequence[str], columns: int, word: str = "or ") -> list[str]:
    """Return the if statement of tests joined by a word, split if it is too long."""
    line = f"if {f' {word}'.join(tests)}:"
    if len(line) + 4 <= columns:
        return [line]
    parts = (_operand_lines(test, word if n else "", columns) for n, test in enumerate(tests))
    return ["if (", *(f"    {line}" for lines in parts for line in lines), "):"]


def _operand_lines(test: str, start: str, columns: int) -> list[str]:
    """Return an operand of a condition; one that is too long is split before its operators."""
    if len(start + test) + 8 <= columns:
        return [f"{start}{test}"]
    if test[0] == "(" and test[-1] == ")":
        first, second = test[1:-1].split(" and ", 1)
        inner = _operand_lines(first, "", columns) + _operand_lines(second, "and ", columns)
        return [f"{start}(", *indented(inner, 4), ")"]
    if call := re.fullmatch(r"(not [\w.]+\()(.*)\)", test):
        return call_lines(f"{start}{call[1]}", call[2].split(", "), ")", 8)
    sides = re.split(r" (?=(?:!=|<|>=|==) )", f"{start}{test}", maxsplit=1)
    return [line for side in sides for line in _part_lines(side, columns)]


def _part_lines(part: str, columns: int) -> list[str]:
    """Return one side of a comparison; a sum, tuple or subscript that is too long is split."""
    if len(part) + 8 <= columns:
        return [part]
    if len(parts := re.split(r" (?=\+ \w+\.shape)", part)) > 1:
        return [line for p in parts for line in _part_lines(p, columns)]
    items = re.fullmatch(r"(\S+ \()((?:[^()]|\([^()]*\))*?),?\)", part)
    if items:
        return call_lines(items[1], items[2].split(", "), ")", 8)
    start, bracket, inside = part.partition("[")
    return [f"{start}[", f"    {inside[:-1]}", "]"] if bracket and part[-1] == "]" else [part]


def _explained(code: Coded, checks: Iterable[ArgumentCheck]) -> list[str]:
    """Return the statement that raises the error of a call, from the signature.

    The parameters that clauses begin with follow the tensors, in this order.
    """
    op = code.operation
    clauses = list(dict.fromkeys(clause for check in checks for clause in check.clauses))
    whole = signature(op, clauses)
    told = re.sub(r"\w+", lambda m: code.display_name(m[0]), whole)
    names = {p.name for p in op.parameters}
    read = dict.fromkeys(c.group() for c in (re.match(r"\w+", c) for c in clauses) if c)
    given = [t.name for t in op.inputs] + [name for name in read if name in names]
    more = sorted(names & set(re.findall(r"\w+", whole)) - set(given))
    keywords = [f"{code.display_name(name)}={name}" for name in more]
    start, name = "raise rt.explained(", f'"{op.name}"'
    inline = call_lines(start, [name, f'"{told}"', *given, *keywords], ")", 8)
    if len(inline) == 1:
        return inline
    raised = call_lines(start, [name, "signature", *given, *keywords], ")", 8)
    if len(raised) > 1 < len(given):
        before, values = collected("values", given, 8)
        named = call_lines(start, [name, "signature", *values, *keywords], ")", 8)
        raised = min(raised, [*before, *named], key=len)
    return [*_text_lines(told), *raised]


def _text_lines(words: str) -> list[str]:
    """Return the assignment of a signature, on several lines if it is long."""
    whole = f'signature = "{words}"'
    if len(whole) + 8 <= COLUMNS:
        return [whole]
    pieces = [""]
    for word in re.split(r"(?<=[,;] )", words):
        if len(pieces[-1] + word) + 14 > COLUMNS:
            pieces.append("")
        pieces[-1] += word
    return ["signature = (", *(f'    "{piece}"' for piece in pieces if piece), ")"]


def check_lines(checks: Iterable[ArgumentCheck]) -> list[str]:
    """Return the lines of checks with messages; those of an optional tensor run if it is given."""
    lines: list[str] = []
    for given, some in groupby(checks, lambda check: check.given):
        if given:
            inner = (line for check in some for line in _one_check_lines(check, COLUMNS - 4))
            lines += [f"if {given} is not None:", *indented(inner, 4)]
        else:
            lines += [line for check in some for line in _one_check_lines(check, COLUMNS)]
    return lines


def _one_check_lines(check: ArgumentCheck, columns: int) -> list[str]:
    lines = list(check.prepare)
    if check.test:
        word = "or " if " or " in check.test else "and "
        lines += _condition_lines(check.test.split(f" {word}"), columns, word)
        lines += [f"    {line}" for line in _raise(check, columns)]
    return [*lines, *check.then]


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
