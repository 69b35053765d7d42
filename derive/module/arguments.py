"""What the public function checks first: that tensors are tensors, and parameters numbers.

A message names the operation and the argument. A right call pays for a comparison of types; an
integer or a number of another type is looked at by a function of its own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from derive.algebra.expr import Call, Expr, Param, walk
from derive.errors import LoweringError
from derive.lowering.code import text
from derive.lowering.resolve import Shapes
from derive.lowering.value import NeedsFlatGroups
from derive.notation.operation import AxisOf, Choice, KeepDim, Number, Operation, SizeOf

__all__ = ["Check", "divisors", "is_tensor", "parameter_kinds", "steps"]


WIDTH = 84
"""Columns of a line in the public function."""


@dataclass(frozen=True)
class Check:
    """``prepare``; if ``test``: raise ``error``(``message``); ``then``. Each part may be empty."""

    prepare: tuple[str, ...] = ()
    test: str = ""
    error: str = "ValueError"
    message: str = ""
    then: tuple[str, ...] = ()


def is_tensor(op: Operation, name: str) -> Check:
    """What is given by that name is a tensor: no list, no array of another library, not None."""
    message = f"{op.name}: {name} must be a tensor, not {{type({name}).__name__}}"
    return Check((), f"not isinstance({name}, torch.Tensor)", "TypeError", message)


def parameter_kinds(op: Operation) -> list[Check]:
    """Integers are integers, numbers are numbers and flags are flags.

    A truth value is no number, and a tensor neither: the gradient would miss it.
    """
    result: list[Check] = []
    for p in op.parameters:
        if isinstance(p, Choice):
            continue
        name = p.name
        if isinstance(p, KeepDim):
            message = f"{op.name}: {name} must be True or False, not {{{name}!r:.60}}"
            result.append(Check((), f"type({name}) is not bool", "TypeError", message))
        elif isinstance(p, AxisOf | SizeOf) or p.integer:
            result.append(_taken(op, name, "is not int", "_integer"))
        else:
            result.append(_taken(op, name, "is not float", "_number"))
    return result


def _taken(op: Operation, name: str, unlike: str, helper: str) -> Check:
    """A parameter of an unusual type becomes what the helper makes of it."""
    given = f'{name}, "{op.name}: {name}"'
    lines = [f"    {name} = {helper}({given})"]
    if len(lines[0]) > WIDTH:
        lines = [f"    {name} = {helper}(", f"        {given}", "    )"]
    return Check(then=(f"if type({name}) {unlike}:", *lines))


def divisors(op: Operation, shapes: Shapes) -> list[Check]:
    """What the size of an index is divided by is positive, where parameters tell it."""
    found: dict[Expr, None] = {}
    for extent in op.extents:
        for e in walk(extent.size) if extent.size is not None else ():
            if isinstance(e, Call) and e.function == "floordiv":
                found[e.args[1]] = None
    result: list[Check] = []
    for divisor in found:
        if any(isinstance(e, Param) for e in walk(divisor)):
            try:
                code = text(shapes.number(divisor))
            except (LoweringError, NeedsFlatGroups):
                continue
            message = f"{op.name}: {code.replace(' ', '')} must be positive, not {{{code}}}"
            result.append(Check((), f"{code} < 1", message=message))
    return result


def steps(op: Operation, lines: Sequence[str]) -> list[Check]:
    """What torch takes as a stride or a dilation is positive, and as padding not negative.

    ``lines`` are those of the code. Elsewhere a parameter may be any integer.
    """
    whole = "\n".join(lines)
    result: list[Check] = []
    for p in op.parameters:
        if isinstance(p, Number) and p.integer:
            forms = (rf"\b(stride|dilation)=(\([^()]*)?\b{p.name}\b", rf"::{p.name}\b")
            for least, words, patterns in (
                (1, "must be positive", forms),
                (0, "must not be negative", (rf"\bpadding=(\([^()]*)?\b{p.name}\b",)),
            ):
                if any(re.search(pattern, whole) for pattern in patterns):
                    message = f"{op.name}: {p.name} {words}, not {{{p.name}}}"
                    result.append(Check((), f"{p.name} < {least}", message=message))
                    break
    return result
