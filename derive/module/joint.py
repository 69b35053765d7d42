"""Generate the source of a joint function: outputs and gradients without autograd."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from derive.lowering.joint import Cotangent, Joint
from derive.module.arguments import ArgumentCheck, spelled_check
from derive.module.docstrings import Doc
from derive.module.emit import rendered
from derive.module.name_mangling import OWN, Coded
from derive.module.pretty_printer import assigned, call_lines
from derive.module.public import check_lines, declared, entry_lines, result_type
from derive.notation.operation import Operation
from derive.program.cse import Line
from derive.program.torch_ir import NONE, text
from derive.program.value_names import Names


def emit_joint(
    name: str, code: Coded, joint: Joint, checks: Sequence[ArgumentCheck], doc: Doc
) -> str:
    """Return the source of a module with one function of that name."""
    op = code.operation
    joint = _with_names(op, joint)
    codes = [line.code for line in (*joint.forward, *joint.backward)]
    body = entry_lines(code, checks, codes)
    body += (s for line in joint.forward for s in assigned(line, 4))
    for cotangent in joint.cotangents:
        body += check_lines(map(code.said, _cotangent_checks(op, cotangent)))
    body += (s for line in joint.backward for s in assigned(line, 4))
    body += _joint_return(joint)
    every = [x.name for x in (*op.inputs, *op.parameters, *joint.cotangents)]
    before, body = code.public(name, every, body)
    values = result_type(len(joint.results))
    end = f") -> tuple[{values}, dict[str, torch.Tensor]]:"
    signature = call_lines(f"def {name}(", list(_joint_arguments(code, joint)), end, 0)
    return rendered(doc, signature, body, before)


def _with_names(op: Operation, joint: Joint) -> Joint:
    given = [*(t.name for t in op.inputs), *(c.name for c in joint.cotangents)]
    parts = [
        joint.forward,
        joint.backward,
        [Line("", code) for _, code in joint.results],
        [Line("", code) for *_, code in joint.gradients],
    ]
    # A line without a name says where a part ends, or what is returned.
    whole = [line for part in parts for line in (*part, Line("", NONE))]
    named = Names(taken=OWN).in_lines(whole, given, [p.name for p in op.parameters])
    ends = [n for n, line in enumerate(named) if line == whole[-1]]
    forward, backward, results, gradients = (
        named[start:end] for start, end in zip((0, *(n + 1 for n in ends)), ends, strict=False)
    )
    returned = [(name, line.code) for (name, _), line in zip(joint.results, results, strict=True)]
    made = [(*x[:2], line.code) for x, line in zip(joint.gradients, gradients, strict=True)]
    return Joint(forward, tuple(returned), joint.cotangents, backward, tuple(made))


def _joint_arguments(code: Coded, joint: Joint) -> Iterator[str]:
    given = declared(code)
    yield from given
    if joint.cotangents and "*" not in given:
        yield "*"
    for cotangent in joint.cotangents:
        yield f"{cotangent.name}: torch.Tensor"


def _cotangent_checks(op: Operation, c: Cotangent) -> list[ArgumentCheck]:
    """Return the checks that a cotangent is a tensor with the shape of its output."""
    message = f"{c.name} must be a tensor, not {{type({c.name}).__name__}}"
    kind = spelled_check(op, f"not isinstance({c.name}, torch.Tensor)", message, "TypeError")
    shape = text(c.shape)
    message = f"{c.name} must have the shape of {c.output}, not {{tuple({c.name}.shape)}}"
    prepare: tuple[str, ...] = ()
    if len(shape) > 40:
        prepare, shape = (f"{c.name}_shape = {shape}",), f"{c.name}_shape"
    return [kind, spelled_check(op, f"{c.name}.shape != {shape}", message, prepare=prepare)]


def _joint_return(joint: Joint) -> list[str]:
    """Return the return statement: outputs, then the gradients by name."""
    values = ", ".join(text(code) for _, code in joint.results)
    if len(joint.results) > 1:
        values = f"({values})"
    lines = [f"return {values}, {{"]
    lines += [f'    "{name}": {text(code)},' for name, _, code in joint.gradients]
    return [*lines, "}"]
