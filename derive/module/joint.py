"""Generate the source of a joint function: outputs and gradients without autograd."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from derive.lowering.joint import Cotangent, Joint
from derive.module.arguments import ArgumentCheck, argument_check, is_tensor, stride_checks
from derive.module.docstrings import Doc, raises
from derive.module.name_mangling import OWN, Coded
from derive.module.pretty_printer import assigned, call_lines, indented
from derive.module.public import check_lines, declared, docstring, result_type
from derive.module.runtime import imports_of
from derive.module.templating import environment
from derive.notation.operation import Operation
from derive.program.torch_ir import text
from derive.program.value_names import Names


@dataclass(frozen=True)
class _JointModule:
    """Template fields of the module."""

    title: tuple[str, ...]
    imports: tuple[str, ...]
    before: tuple[str, ...]
    signature: tuple[str, ...]
    doc: tuple[str, ...]
    body: tuple[str, ...]


def emit_joint(
    name: str, code: Coded, joint: Joint, checks: Sequence[ArgumentCheck], doc: Doc
) -> str:
    """Return the source of a module with one function of that name."""
    op = code.operation
    given = [x.name for x in (*op.inputs, *op.parameters, *joint.cotangents)]
    lines = Names(taken=OWN).in_lines([*joint.forward, *joint.backward], given)
    statements = [assigned(line, 4) for line in lines]
    forward, backward = statements[: len(joint.forward)], statements[len(joint.forward) :]
    codes = [line.code for line in lines]
    asked = [code.said(check) for check in (*checks, *stride_checks(op, codes, checks))]
    body = check_lines(asked)
    body += chain.from_iterable(forward)
    for cotangent in joint.cotangents:
        shape = code.said(_shape_check(op, cotangent))
        about = [is_tensor(op, cotangent.name), shape]
        body += check_lines(about)
        asked += about
    body += chain.from_iterable(backward)
    body += _joint_return(joint)
    before, body = code.public(name, given, body)
    values = result_type(len(joint.results))
    end = f") -> tuple[{values}, dict[str, torch.Tensor]]:"
    signature = call_lines(f"def {name}(", list(_joint_arguments(code, joint)), end, 0)
    module = _JointModule(
        title=tuple(docstring(doc.module)),
        imports=tuple(imports_of([*before, *body, *signature])),
        before=tuple(before),
        signature=tuple(signature),
        doc=indented(docstring([*doc.function, *raises(asked)]), 4),
        body=indented(body, 4),
    )
    return environment().get_template("value_and_grad.py.jinja").render(module=module)


def _joint_arguments(code: Coded, joint: Joint) -> Iterator[str]:
    given = declared(code)
    yield from given
    if joint.cotangents and "*" not in given:
        yield "*"
    for cotangent in joint.cotangents:
        yield f"{cotangent.name}: torch.Tensor"


def _shape_check(op: Operation, c: Cotangent) -> ArgumentCheck:
    shape = text(c.shape)
    message = f"{c.name} must have the shape of {c.output}, not {{tuple({c.name}.shape)}}"
    prepare: tuple[str, ...] = ()
    if len(shape) > 40:
        prepare, shape = (f"{c.name}_shape = {shape}",), f"{c.name}_shape"
    test, clause = f"{c.name}.shape != {shape}", f"{{}} does not have the shape of {c.output}"
    return argument_check(op, test, message, prepare=prepare, subject=c.name, clause=clause)


def _joint_return(joint: Joint) -> list[str]:
    """Return the return statement: outputs, then the gradients by name."""
    values = ", ".join(text(code) for _, code in joint.results)
    if len(joint.results) > 1:
        values = f"({values})"
    lines = [f"return {values}, {{"]
    lines += [f'    "{name}": {text(code)},' for name, _, code in joint.gradients]
    return [*lines, "}"]
