"""A joint function to Python source: outputs and gradients without autograd."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from derive.lowering.code import text
from derive.lowering.joint import Cotangent, Joint
from derive.module.arguments import Check, is_tensor, steps
from derive.module.document import Doc
from derive.module.emit import (
    checked,
    declared,
    docstring,
    environment,
    helpers_in,
    imports_of,
)
from derive.module.statements import assigned, called, indented
from derive.notation.operation import Operation

__all__ = ["emit_joint"]


@dataclass(frozen=True)
class _Module:
    """What the template places."""

    title: tuple[str, ...]
    imports: tuple[str, ...]
    helpers: tuple[str, ...]
    signature: tuple[str, ...]
    doc: tuple[str, ...]
    body: tuple[str, ...]


def emit_joint(name: str, op: Operation, joint: Joint, checks: Sequence[Check], doc: Doc) -> str:
    """The source of a module with one function, of that name."""
    forward = [s for line in joint.forward for s in assigned(line, 4)]
    backward = [s for line in joint.backward for s in assigned(line, 4)]
    known = {check.test for check in checks}
    more = [check for check in steps(op, [*forward, *backward]) if check.test not in known]
    body = [line for check in (*checks, *more) for line in checked(check)]
    body += forward
    for cotangent in joint.cotangents:
        body += checked(is_tensor(op, cotangent.name))
        body += checked(_shape_check(op, cotangent))
    body += backward
    body += _results(joint)
    helpers = tuple(helpers_in(body))
    signature = called(f"def {name}(", list(_arguments(op, joint)), "):", 0)
    module = _Module(
        title=tuple(docstring(doc.module)),
        imports=tuple(imports_of([*body, *helpers, *signature])),
        helpers=helpers,
        signature=tuple(signature),
        doc=indented(docstring(doc.function), 4),
        body=indented(body, 4),
    )
    return environment().get_template("value_and_grad.py.jinja").render(module=module)


def _arguments(op: Operation, joint: Joint) -> Iterator[str]:
    given = declared(op)
    yield from given
    if joint.cotangents and "*" not in given:
        yield "*"
    for cotangent in joint.cotangents:
        yield cotangent.name


def _shape_check(op: Operation, c: Cotangent) -> Check:
    shape = text(c.shape)
    message = f"{op.name}: {c.name} has shape {{tuple({c.name}.shape)}}, not that of {c.output}"
    if len(shape) > 40:
        return Check(
            (f"{c.name}_shape = {shape}",), f"{c.name}.shape != {c.name}_shape", message=message
        )
    return Check((), f"{c.name}.shape != {shape}", message=message)


def _results(joint: Joint) -> list[str]:
    """The return statement: outputs, then the gradients by name."""
    values = ", ".join(text(code) for _, code in joint.results)
    if len(joint.results) > 1:
        values = f"({values})"
    lines = [f"return {values}, {{"]
    lines += [f'    "{name}": {text(code)},' for name, _, code in joint.gradients]
    return [*lines, "}"]
