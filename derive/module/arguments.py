"""The first checks of the public function: types of tensors and parameters.

A message names the operation and the argument. A valid call costs one type comparison per
parameter; an integer or number of an unusual type goes through a conversion helper.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from derive.algebra.expr import Call, Expr, Param, walk
from derive.errors import LoweringError
from derive.lowering.ground.runtime_sizes import ShapeSources
from derive.lowering.ground.value import NeedsFlatGroups
from derive.module.pretty_printer import call_lines, indented
from derive.notation.operation import (
    AxisOf,
    Choice,
    KeepDim,
    Kind,
    Number,
    Operation,
    SizeOf,
    Tensor,
)
from derive.program.torch_ir import (
    Code,
    Keyword,
    Name,
    Slice,
    Tuple,
    operands,
    subexpressions,
    text,
)

"""Maximum columns of a line in the public function."""

NOT_POSITIVE = "{} is not positive"
WRONG_RANK = "{} has the wrong number of axes"
TWO_SIZES = "the sizes of index {} differ"
"""Clauses about an argument or an index."""


@dataclass(frozen=True)
class Reason:
    """A cause of an error for the docstring: ``clause`` with ``subject`` in place of ``{}``.

    Reasons that differ in the subject alone are joined: "stride or dilation is not positive".
    """

    error: str
    subject: str
    clause: str


@dataclass(frozen=True)
class ArgumentCheck:
    """``prepare``; if ``test``: raise ``error``(``message``); ``then``. Each part may be empty.

    ``given`` names the optional tensor of the check: if that is None, the check is skipped.
    ``reasons`` has the causes of the errors that the lines may raise.
    """

    prepare: tuple[str, ...] = ()
    test: str = ""
    error: str = "ValueError"
    message: str = ""
    then: tuple[str, ...] = ()
    given: str = ""
    reasons: tuple[Reason, ...] = ()


def argument_check(
    op: Operation,
    test: str,
    message: str,
    error: str = "ValueError",
    prepare: tuple[str, ...] = (),
    *,
    subject: str,
    clause: str,
) -> ArgumentCheck:
    """Return a check that raises ``message`` of the operation if ``test`` is true."""
    reasons = (Reason(error, subject, clause),)
    return ArgumentCheck(prepare, test, error, f"{op.name}: {message}", reasons=reasons)


def required_of(op: Operation) -> list[Tensor]:
    """Return the tensors without a default."""
    return [t for t in op.inputs if t.default is None]


def in_turn(op: Operation) -> list[Tensor]:
    """Return all tensors, those without a default first."""
    return [*required_of(op), *(t for t in op.inputs if t.default is not None)]


def checks_if_given(t: Tensor, checks: Iterable[ArgumentCheck]) -> list[ArgumentCheck]:
    """Return the checks of one tensor, skipped when an optional tensor is None."""
    return [check if t.default is None else replace(check, given=t.name) for check in checks]


KINDS: Mapping[Kind, str] = {"float": "floating-point", "int": "int64", "bool": "bool"}
"""The dtype of each kind of tensor, in words."""


def is_tensor(op: Operation, name: str, kind: Kind | None = None) -> ArgumentCheck:
    """Return the check that the argument is a tensor: not a list, NumPy array or None."""
    message = f"{name} must be a tensor, not {{type({name}).__name__}}"
    clause = "{} is not a tensor" if kind is None else not_of(kind)
    test = f"not isinstance({name}, torch.Tensor)"
    return argument_check(op, test, message, "TypeError", subject=name, clause=clause)


def not_of(kind: Kind) -> str:
    """Return the clause for an argument that is not a tensor of the kind."""
    article = "an" if kind == "int" else "a"
    return f"{{}} is not {article} {KINDS[kind]} tensor"


def is_option(op: Operation, p: Choice) -> ArgumentCheck:
    """Return the check that a choice is one of its options."""
    names = ", ".join(repr(option).replace("'", '"') for option, _ in p.outputs)
    message = f"{p.name} must be one of {names}, not {{{p.name}!r}}"
    test = f"not isinstance({p.name}, str) or {p.name} not in _OPTIONS"
    return argument_check(op, test, message, subject=p.name, clause="{} is not one of its options")


def parameter_kinds(op: Operation) -> list[ArgumentCheck]:
    """Return the type checks of the parameters: integers, numbers and flags.

    A bool or a tensor is not a number; a gradient would not reach the tensor.
    """
    result: list[ArgumentCheck] = []
    for p in op.parameters:
        if isinstance(p, Choice):
            continue
        name = p.name
        if isinstance(p, KeepDim):
            message = f"{name} must be True or False, not {{{name}!r:.60}}"
            test, clause = f"type({name}) is not bool", "{} is not a bool"
            result.append(
                argument_check(op, test, message, "TypeError", subject=name, clause=clause)
            )
        elif isinstance(p, AxisOf | SizeOf) or p.integer:
            whole = Reason("TypeError", name, "{} is not an integer")
            result.append(_converted_parameter(op, name, "is not int", "rt.integer", whole))
        else:
            number = Reason("TypeError", name, "{} is not a number")
            large = Reason("ValueError", name, "{} is too large for float64")
            result.append(
                _converted_parameter(op, name, "is not float", "rt.number", number, large)
            )
    return result


def _converted_parameter(
    op: Operation, name: str, unlike: str, helper: str, *reasons: Reason
) -> ArgumentCheck:
    """Convert a parameter of an unusual type with the helper."""
    given = f'{name}, "{op.name}: {name}"'
    lines = call_lines(f"{name} = {helper}(", [given], ")", 8)
    return ArgumentCheck(then=(f"if type({name}) {unlike}:", *indented(lines, 4)), reasons=reasons)


def divisor_checks(op: Operation, shapes: ShapeSources) -> list[ArgumentCheck]:
    """Return the checks that divisors of index sizes are positive, if a parameter sets them."""
    found: dict[Expr, None] = {}
    for extent in op.extents:
        for e in walk(extent.size) if extent.size is not None else ():
            if isinstance(e, Call) and e.function == "floordiv":
                found[e.args[1]] = None
    result: list[ArgumentCheck] = []
    for divisor in found:
        if any(isinstance(e, Param) for e in walk(divisor)):
            try:
                code = text(shapes.number(divisor))
            except (LoweringError, NeedsFlatGroups):
                continue
            words = code.replace(" ", "")
            message = f"{words} must be positive, not {{{code}}}"
            result.append(
                argument_check(op, f"{code} < 1", message, subject=words, clause=NOT_POSITIVE)
            )
    return result


def stride_checks(
    op: Operation, codes: Iterable[Code], known: Sequence[ArgumentCheck]
) -> list[ArgumentCheck]:
    """Return the checks that strides and dilations are positive, and padding not negative.

    Elsewhere a parameter may be any integer. Checks in ``known`` are not repeated.
    """
    positive, counted = set[Code](), set[Code]()
    for code in (part for whole in codes for part in subexpressions(whole)):
        match code:
            case Keyword("stride" | "dilation", value) | Slice(_, _, Code() as value):
                positive |= _tuple_item_factors(value)
            case Keyword("padding", value):
                counted |= _tuple_item_factors(value)
    result: list[ArgumentCheck] = []
    for name in [p.name for p in op.parameters if isinstance(p, Number) and p.integer]:
        for least, words, clause, names in (
            (1, "must be positive", NOT_POSITIVE, positive),
            (0, "must not be negative", "{} is negative", counted - positive),
        ):
            if Name(name) in names:
                message, test = f"{name} {words}, not {{{name}}}", f"{name} < {least}"
                result.append(argument_check(op, test, message, subject=name, clause=clause))
    asked = {check.test for check in known}
    return [check for check in result if check.test not in asked]


def _tuple_item_factors(code: Code) -> set[Code]:
    """Return the factors of a product, or of each item of a tuple."""
    items = code.items if isinstance(code, Tuple) else (code,)
    return {factor for item in items for factor in operands(item, "*")}
