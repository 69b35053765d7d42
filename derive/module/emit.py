"""Generate the Python source of a program; the template only places finished strings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from derive.module.arguments import ArgumentCheck
from derive.module.docstrings import Doc
from derive.module.function_codegen import (
    Lines,
    Variant,
    arguments,
    class_name,
    composed_name,
    dtype_lines,
    floats_of,
    forward_name,
    function_of,
)
from derive.module.name_mangling import Coded
from derive.module.outside import Outside, option_lines
from derive.module.pretty_printer import assigned, call_lines, collected, indented
from derive.module.public import declared, docstring, entry_lines, result_type
from derive.module.reduced import with_parameter
from derive.module.runtime import imports_of
from derive.module.tangent import dual_of, name_of_dual
from derive.module.templating import environment
from derive.notation.operation import Choice, Operation, Tensor
from derive.program.cse import Line
from derive.program.torch_ir import Code, FunctionCall, Name, Subscript, literal
from derive.program.torch_printer import COLUMNS


def emit(
    code: Coded, variants: Sequence[Variant], checks: Sequence[ArgumentCheck], doc: Doc
) -> str:
    """Return the source of a module; the lines of ``doc`` are copied unchanged."""
    op = code.operation
    called = with_parameter(op) if variants[0].reductions else op
    functions = [replace(function_of(called, v), duals=dual_of(called, v)) for v in variants]
    whole = _public_body(code, variants, checks)
    composed = any(v.program.composed for v in variants)
    more = {v.option: [composed_name(op, v)] if composed else [] for v in variants}
    table = {v.option: [*_option_functions(op, v), *more[v.option]] for v in variants}
    outputs = len(variants[0].program.outputs)
    return module_text(code, doc, functions, option_table(table), whole, outputs)


def module_text(
    code: Coded,
    doc: Doc,
    functions: Sequence[Lines],
    table: Sequence[str],
    whole: Sequence[str],
    outputs: int,
    stages: Sequence[str] = (),
) -> str:
    """Return the source of a module whose public function has the body ``whole``.

    With ``stages``, this takes the size of a block.
    """
    op, given = code.operation, declared(code)
    every = [x.name for x in (*op.inputs, *op.parameters)]
    if stages:
        given += [*([] if "*" in given else "*"), "block: int | None = None"]
        every.append("block")
    signature = call_lines(f"def {op.name}(", given, f") -> {result_type(outputs)}:", 0)
    before, body = code.public(op.name, every, whole)
    return rendered(doc, signature, body, [*table, *before], functions, stages)


def rendered(
    doc: Doc,
    signature: Sequence[str],
    body: Sequence[str],
    before: Sequence[str],
    functions: Sequence[Lines] = (),
    stages: Sequence[str] = (),
) -> str:
    """Return the source of a module: functions, then lines ``before`` the public function."""
    lines = [*stages, *(line for f in functions for line in f.lines()), *before, *body]
    return (
        environment()
        .get_template("module.py.jinja")
        .render(
            title=docstring(doc.module),
            imports=imports_of([*lines, *signature, "torch."]),
            stages=stages,
            functions=functions,
            before=before,
            signature=signature,
            doc=indented(docstring(doc.function), 4),
            body=indented(body, 4),
        )
    )


def _variant_codes(variants: Sequence[Variant]) -> Iterator[Code]:
    for program in (v.program for v in variants):
        every = (*program.forward, *program.setup, *program.backward)
        yield from (line.code for line in every)
    for tangent in (v.tangent for v in variants if v.tangent is not None):
        yield from (line.code for line in tangent.lines)
    for body in (x for v in variants if v.outside for x in v.outside.others.values()):
        yield from (line.code for line in body)


# -------------------------------------------------------------------- the public function


def option_table(functions: Mapping[str | None, Sequence[str]]) -> list[str]:
    """Return the table from the options of a choice to their functions."""
    if None in functions:
        return []
    lines = ["_OPTIONS = {"]
    for option, names in functions.items():
        entry = f'    "{option}": ({", ".join(names)}),'
        if len(names) == 1:
            lines.append(f'    "{option}": {names[0]},')
        elif len(entry) <= COLUMNS:
            lines.append(entry)
        else:
            lines += [f'    "{option}": (', *(f"        {name}," for name in names), "    ),"]
    return [*lines, "}", "", ""]


def _option_functions(op: Operation, variant: Variant) -> list[str]:
    """Return the class of an option, and its forward-mode class if there is one."""
    own = class_name(op, variant.option)
    return [own, *([name_of_dual(op, variant.option)] if variant.tangent is not None else [])]


def _public_body(
    code: Coded, variants: Sequence[Variant], checks: Sequence[ArgumentCheck]
) -> list[str]:
    op = code.operation
    lines = entry_lines(code, checks, _variant_codes(variants))
    function, *own = _option_functions(op, variants[0])
    for p in op.parameters:
        if isinstance(p, Choice) and variants[0].option is not None:
            own = ["dual"] if own else []
            other = ["composed"] if any(v.program.composed for v in variants) else []
            function = "function"
            lines.append(f"{', '.join([function, *own, *other])} = _OPTIONS[{p.name}]")
    given = arguments(with_parameter(op) if variants[0].reductions else op)
    if variants[0].program.rearranges:
        return lines + call_lines(f"return {forward_name(op)}(", given, ")", 4)
    if variants[0].outside is not None:
        return lines + _outside_lines(op, variants[0], variants[0].outside)
    before, given = _arguments(function, given, 4)
    lines += before
    for name in own:
        lines.append("if rt.forward_mode() and not torch.compiler.is_compiling():")
        lines += indented(_return_outputs(op, variants, f"{name}.apply", given, 8), 4)
    if any(v.program.composed for v in variants):
        composed = "composed" if function == "function" else composed_name(op, variants[0])
        lines.append("if rt.forward_mode():")
        lines += indented(_return_outputs(op, variants, composed, given, 8), 4)
    return lines + _return_outputs(op, variants, "rt.apply", [function, *given], 4)


def _arguments(function: str, given: list[str], indent: int) -> tuple[list[str], list[str]]:
    """Return (lines that collect the arguments if a call has a line for each, the arguments)."""
    if len(call_lines("return rt.apply(", [function, *given], ")[0]", indent)) <= 3:
        return [], given
    return collected("arguments", given, indent)


def _outside_lines(op: Operation, variant: Variant, o: Outside) -> list[str]:
    """Return the lines that call the only Function, and return the chosen option of its output."""
    read, called = o.read, _called_lines(op, variant, o)
    widened = _widened_lines([t for t in op.inputs if t.name in read and t.kind == "float"])
    if variant.program.forward_precision.has_products:
        # The dtype of a product depends on the dtypes that the Function is given.
        lines = [*called, *widened]
    else:
        lines = [*widened, *called]
    return [*dtype_lines("dtype", floats_of(op), True, 4, o.float32), *lines, *option_lines(o)]


def _widened_lines(tensors: Sequence[Tensor]) -> list[str]:
    """Return the lines that cast what the options read, whose gradients add up before rounding."""
    lines = []
    for t in tensors:
        line = f"{t.name} = {t.name}.to(torch.promote_types(dtype, torch.float32))"
        optional = t.default is not None
        lines += [f"if {t.name} is not None:", f"    {line}"] if optional else [line]
    return lines


def _called_lines(op: Operation, variant: Variant, o: Outside) -> list[str]:
    """Return the lines that assign the output of the only Function."""
    function, *own = _option_functions(op, variant)
    program = variant.program
    before, given = _arguments(function, arguments(op), 8)
    tangents = "rt.forward_mode()"
    eager = f"{tangents} and not torch.compiler.is_compiling()"
    branches = [(eager, f"{name}.apply") for name in own]
    branches += [(tangents, composed_name(op, variant))] if program.composed else []
    lines: list[str] = []
    for test, called in branches:
        more = bool(program.statistics) and not (program.composed and test == tangents)
        lines += [f"{'elif' if lines else 'if'} {test}:"]
        lines += indented(_assigned_output(o, called, given, more, 8), 4)
    more, indent = bool(program.statistics), 8 if lines else 4
    call = _assigned_output(o, "rt.apply", [function, *given], more, indent)
    return [*before, *lines, *(["else:", *indented(call, 4)] if lines else call)]


def _assigned_output(
    o: Outside, called: str, given: Sequence[str], more: bool, indent: int
) -> list[str]:
    """Return the assignment of the first result of a call; ``more`` if it has others."""
    code: Code = FunctionCall(called, tuple(map(Name, given)))
    code = Subscript(code, (literal(0),)) if more else code
    return assigned(Line(o.equation, code), indent)


def _return_outputs(
    op: Operation, variants: Sequence[Variant], function: str, given: Sequence[str], indent: int
) -> list[str]:
    """Return lines that return the outputs of a call, without any saved statistics."""
    more = [bool(v.program.statistics) for v in variants]
    if function in ("composed", *(composed_name(op, v) for v in variants if v.program.composed)):
        more = [n and not v.program.composed for n, v in zip(more, variants, strict=True)]
    if all(more):
        n = len(variants[0].program.outputs)
        end = "[0]" if n == 1 else f"[:{n}]"
        whole = f"return {function}({', '.join(given)}){end}"
        if len(whole) + indent <= COLUMNS:
            return [whole]
        return [*call_lines(f"result = {function}(", given, ")", indent), f"return result{end}"]
    if not any(more):
        return call_lines(f"return {function}(", given, ")", indent)
    last = "return result[0] if isinstance(result, tuple) else result"
    return [*call_lines(f"result = {function}(", given, ")", indent), last]
