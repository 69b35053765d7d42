"""The first checks of the public function: types of tensors and parameters.

A parameter of the usual type is returned by its conversion helper at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from derive.algebra.expr import Call, Expr, Param, walk
from derive.errors import LoweringError
from derive.lowering.ground.runtime_sizes import ShapeSources
from derive.lowering.ground.value import NeedsFlatGroups
from derive.module.pretty_printer import call_lines
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
    DTYPES,
    Code,
    Keyword,
    Name,
    Slice,
    Tuple,
    operands,
    subexpressions,
    text,
)


@dataclass(frozen=True)
class ArgumentCheck:
    """``prepare``; if ``test``: raise the error; ``then``. Each part may be empty.

    With a message, the error is raised where it stands. Without one, `derive.module.public` joins
    the test with others to a single condition, and the error is found from the signature, to which
    ``clauses`` belong. ``convert`` is a line that converts a parameter before all tests. ``given``
    names the optional tensor of the check: if that is None, the check is skipped.
    """

    test: str = ""
    clauses: tuple[str, ...] = ()
    given: str = ""
    error: str = "ValueError"
    message: str = ""
    prepare: tuple[str, ...] = ()
    then: tuple[str, ...] = ()
    convert: tuple[str, ...] = ()


def spelled_check(
    op: Operation, test: str, message: str, error: str = "ValueError", prepare: tuple[str, ...] = ()
) -> ArgumentCheck:
    """Return a check that raises ``message`` of the operation if ``test`` is true."""
    return ArgumentCheck(test, error=error, message=f"{op.name}: {message}", prepare=prepare)


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


def kind_checks(op: Operation) -> list[ArgumentCheck]:
    """Return the checks that tensors are of their kinds on the device of the first.

    A call of a helper checks the required float tensors. It checks the optional ones too if few
    others could be None.
    """
    first, *others = in_turn(op)
    if first.kind != "float":
        result = [ArgumentCheck(test) for test in _kind_tests(first)]
    else:
        floats = [t for t in others if t.kind == "float"]
        required = [t.name for t in floats if t.default is None]
        optional = [t.name for t in floats if t.default is not None]
        if len(required) < 2 and optional:
            result = [ArgumentCheck(f"{name} is None") for name in required]
            optional = [*required, *optional]
        else:
            result = [ArgumentCheck(f"not rt.floating({', '.join([first.name, *required])})")]
        if optional:
            given = ", ".join([first.name, *optional])
            result.append(ArgumentCheck(f"not rt.floating_if_given({given})"))
        others = [t for t in others if t.kind != "float"]
    for t in others:
        tests = [*_kind_tests(t), f"{t.name}.device != {first.name}.device"]
        result += checks_if_given(t, map(ArgumentCheck, tests))
    return result


def _kind_tests(t: Tensor) -> list[str]:
    """Return the tests that an argument is no tensor of its kind."""
    dtype = DTYPES.get(t.kind)
    wrong = f"{t.name}.dtype != {text(dtype)}" if dtype else f"not {t.name}.is_floating_point()"
    return [f"not isinstance({t.name}, torch.Tensor)", wrong]


def is_option(p: Choice) -> ArgumentCheck:
    """Return the check that a choice is one of its options."""
    names = [option for option, _ in p.outputs]
    listed = ", ".join(f'"{name}"' for name in names) + ("," if len(names) == 1 else "")
    return ArgumentCheck(f"{p.name} not in ({listed})", (f"{p.name} in {'|'.join(names)}",))


def parameter_kinds(op: Operation) -> list[ArgumentCheck]:
    """Return the type checks of the parameters: integers, numbers and flags.

    A bool or a tensor is not a number; a gradient would not reach the tensor.
    """
    result: list[ArgumentCheck] = []
    for p in op.parameters:
        if isinstance(p, KeepDim):
            clause = f"{p.name}=keep({p.index.name})"
            result.append(ArgumentCheck(f"type({p.name}) is not bool", (clause,)))
        elif isinstance(p, AxisOf | SizeOf) or (isinstance(p, Number) and p.integer):
            result.append(_converted_parameter(op, p.name, "rt.integer"))
        elif isinstance(p, Number):
            result.append(_converted_parameter(op, p.name, "rt.number"))
    return result


def _converted_parameter(op: Operation, name: str, helper: str) -> ArgumentCheck:
    """Convert a parameter of an unusual type with the helper."""
    given = [name, f'"{op.name}: {name}"']
    return ArgumentCheck(convert=tuple(call_lines(f"{name} = {helper}(", given, ")", 4)))


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
            clause = f"{code.replace(' ', '')} is a divisor"
            result.append(ArgumentCheck(f"{code} < 1", (clause,)))
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
        if Name(name) in positive:
            result.append(ArgumentCheck(f"{name} < 1", (f"{name} is positive",)))
        elif Name(name) in counted:
            result.append(ArgumentCheck(f"{name} < 0", (f"{name} is not negative",)))
    asked = {check.test for check in known}
    return [check for check in result if check.test not in asked]


def _tuple_item_factors(code: Code) -> set[Code]:
    """Return the factors of a product, or of each item of a tuple."""
    items = code.items if isinstance(code, Tuple) else (code,)
    return {factor for item in items for factor in operands(item, "*")}
