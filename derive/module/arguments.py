"""What the public function checks first: that tensors are tensors, and parameters numbers.

A message names the operation and the argument. A right call pays for a comparison of types; an
integer or a number of another type is looked at by a function of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from derive.algebra.expr import Call, Expr, Param, walk
from derive.errors import LoweringError
from derive.lowering.ground.extents import Shapes
from derive.lowering.ground.value import NeedsFlatGroups
from derive.notation.operation import AxisOf, Choice, KeepDim, Number, Operation, SizeOf, Tensor
from derive.program.code import (
    Code,
    Keyword,
    Name,
    Slice,
    Tuple,
    operands,
    subexpressions,
    text,
)

WIDTH = 84
"""Columns of a line in the public function."""


@dataclass(frozen=True)
class Check:
    """``prepare``; if ``test``: raise ``error``(``message``); ``then``. Each part may be empty.

    ``given`` names the optional tensor that it is about: where that is None nothing is asked.
    """

    prepare: tuple[str, ...] = ()
    test: str = ""
    error: str = "ValueError"
    message: str = ""
    then: tuple[str, ...] = ()
    given: str = ""


def refused(
    op: Operation,
    test: str,
    message: str,
    error: str = "ValueError",
    prepare: tuple[str, ...] = (),
) -> Check:
    """What is wrong with an argument of the operation."""
    return Check(prepare, test, error, f"{op.name}: {message}")


def required_of(op: Operation) -> list[Tensor]:
    """The tensors that are given in every call."""
    return [t for t in op.inputs if t.default is None]


def in_turn(op: Operation) -> list[Tensor]:
    """All tensors, first those that are given in every call."""
    return [*required_of(op), *(t for t in op.inputs if t.default is not None)]


def about(t: Tensor, checks: Iterable[Check]) -> list[Check]:
    """The checks of one tensor, asked where it is given."""
    return [check if t.default is None else replace(check, given=t.name) for check in checks]


def is_tensor(op: Operation, name: str) -> Check:
    """What is given by that name is a tensor: no list, no array of another library, not None."""
    message = f"{name} must be a tensor, not {{type({name}).__name__}}"
    return refused(op, f"not isinstance({name}, torch.Tensor)", message, "TypeError")


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
            message = f"{name} must be True or False, not {{{name}!r:.60}}"
            result.append(refused(op, f"type({name}) is not bool", message, "TypeError"))
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
            message = f"{code.replace(' ', '')} must be positive, not {{{code}}}"
            result.append(refused(op, f"{code} < 1", message))
    return result


def steps(op: Operation, codes: Iterable[Code], known: Sequence[Check]) -> list[Check]:
    """What torch takes as a stride or a dilation is positive, and as padding not negative.

    Elsewhere a parameter may be any integer. What is ``known`` is not asked again.
    """
    positive, counted = set[Code](), set[Code]()
    for code in (part for whole in codes for part in subexpressions(whole)):
        match code:
            case Keyword("stride" | "dilation", value) | Slice(_, _, Code() as value):
                positive |= _factors(value)
            case Keyword("padding", value):
                counted |= _factors(value)
    result: list[Check] = []
    for name in [p.name for p in op.parameters if isinstance(p, Number) and p.integer]:
        for least, words, names in (
            (1, "must be positive", positive),
            (0, "must not be negative", counted - positive),
        ):
            if Name(name) in names:
                message = f"{name} {words}, not {{{name}}}"
                result.append(refused(op, f"{name} < {least}", message))
    asked = {check.test for check in known}
    return [check for check in result if check.test not in asked]


def _factors(code: Code) -> set[Code]:
    """What is multiplied, in each item of a tuple."""
    items = code.items if isinstance(code, Tuple) else (code,)
    return {factor for item in items for factor in operands(item, "*")}
