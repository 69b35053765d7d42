"""Options of a choice that are computed outside of the only Function, where torch differentiates.

    average = sum[n](loss[n])/count  ->  loss = rt.apply(_Loss, ..);  (loss.sum() / count).to(dtype)

The Function returns loss before it is rounded; the option is rounded once, at the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from derive.algebra import substitution
from derive.algebra.expr import (
    Access,
    Add,
    And,
    Expr,
    Guard,
    Index,
    Mul,
    Not,
    Num,
    Or,
    Param,
    Pow,
    Reduce,
    Rel,
    Size,
    Where,
    walk,
)
from derive.module.pretty_printer import indented, statements
from derive.module.reduced import unrounded
from derive.notation.common_output import CommonOutput
from derive.notation.operation import KeepDim
from derive.program.cse import Line
from derive.program.mixed_precision import DTYPE, NAMES, Precision, multiplies
from derive.program.program import Program
from derive.program.roundings import Roundings
from derive.program.torch_ir import (
    Binary,
    Code,
    FunctionCall,
    Literal,
    MethodCall,
    Name,
    Subscript,
    literal,
    names_in,
    subexpressions,
)
from derive.program.torch_ops import is_float32_under_autocast
from derive.program.torch_printer import broken


@dataclass(frozen=True)
class Outside:
    """The options of a choice as lines that read the output of the only Function."""

    choice: str
    option: str
    """The option that is the output itself."""
    equation: str
    others: Mapping[str, tuple[Line, ...]]
    listed: bool
    """True if autocast returns also the output itself in float32."""
    is_view: bool
    """True if the Function returns the output as a view of a temporary."""

    @property
    def read(self) -> set[str]:
        """The names that the options read."""
        return {n for lines in self.others.values() for x in lines for n in names_in(x.code)}

    @property
    def float32(self) -> Code | None:
        """The test under which autocast returns float32; None if it always does."""
        return None if self.listed else Binary("!=", Name(self.choice), Literal(f'"{self.option}"'))


def is_rational(split: CommonOutput) -> bool:
    """True if each option is made of sums, products and quotients.

    torch's derivatives of these are finite wherever those by the rules are.
    """
    keeps = any(isinstance(p, KeepDim) for p in split.common.parameters)
    equations = [e for rest in split.others.values() for e in rest.equations]
    return not keeps and all(_is_rational(part) for e in equations for part in walk(e.body))


def _is_rational(e: Expr) -> bool:
    match e:
        case Reduce(kind):
            return kind in ("sum", "mean")
        case Pow(_, Num(value)):
            return value == -1
        case Num() | Index() | Size() | Param() | Access() | Add() | Mul() | Where() | Guard():
            return True
    return isinstance(e, Rel | And | Or | Not)


def outside(split: CommonOutput, common: Program, others: Mapping[str, Program]) -> Outside | None:
    """Return the options as lines around the program.

    None if autocast would change them; and if torch would keep tensors for the gradients of inputs
    that they read, where the program keeps inputs and outputs alone.
    """
    bodies = [p.forward for p in others.values()]
    read = {name for lines in bodies for line in lines for name in names_in(line.code)}
    keeps = read.intersection(common.differentiable) and not common.statistics
    if common.rearranges or keeps or not all(map(_is_in_float32, bodies)):
        return None
    (name,) = common.outputs

    def checked(lines: Sequence[Line]) -> tuple[Line, ...]:
        return tuple(replace(line, code=_with_checked_reads(line.code)) for line in lines)

    made = {option: checked(p.forward) for option, p in others.items()}
    precision, results = common.forward_precision, (*common.forward, *common.composed)
    is_view = any(unrounded(x.code, precision)[1] for x in results if x.name == name)
    return Outside(split.choice, split.option, name, made, precision.listed, is_view)


def _with_checked_reads(code: Code) -> Code:
    """Return the code in which a negative position is an error: x[at] would wrap.

    >>> from derive.program.torch_ir import Subscript, text
    >>> text(_with_checked_reads(Subscript(Name("x"), (Name("at"),))))
    'rt.index_select(x, 0, at)'
    """

    def visit(part: Code) -> Code | None:
        match part:
            case Subscript(Name() as x, (Name() | FunctionCall() | MethodCall() as at,)):
                args = x, literal(0), _with_checked_reads(at)
                return FunctionCall("rt.index_select", args)
        return None

    return substitution.replace(code, visit)


def _is_in_float32(lines: Sequence[Line]) -> bool:
    """True if torch computes the lines in float32 under autocast as well."""
    every = (part for line in lines for part in subexpressions(line.code))
    return any(map(is_float32_under_autocast, every)) and not multiplies(lines)


def with_wide_output(program: Program) -> Program | None:
    """Return the program whose output is not rounded; None if its bodies do not round it."""
    (output,) = program.outputs
    (cotangent,) = (c for o, c in program.cotangents if o == output)
    backward = (program.backward_precision, program.first_order_precision)
    if cotangent is None or any(cotangent in p.narrow for p in backward):
        return None
    forward = _wide(program.forward, program.forward_precision, output)
    composed = _wide(program.composed, program.composed_precision, output)
    if forward is None or (program.composed and composed is None):
        return None
    program = replace(program, forward=forward[0], forward_precision=forward[1])
    if composed is None:
        return program
    return replace(program, composed=composed[0], composed_precision=composed[1])


def _wide(
    lines: Sequence[Line], precision: Precision, output: str
) -> tuple[tuple[Line, ...], Precision] | None:
    """Return the lines of a forward without the rounding of its output, and their precision."""
    at = max((n for n, line in enumerate(lines) if line.name == output), default=None)
    if at is None or precision.returned.get(output) != DTYPE or not precision.broad:
        return None
    code, _ = unrounded(lines[at].code, precision)
    made = (*lines[:at], replace(lines[at], code=code), *lines[at + 1 :])
    if code == Name(output):
        made = (*lines[:at], *lines[at + 1 :])
    read = {name for line in made for name in names_in(line.code)}
    names = frozenset(read & NAMES)
    if DTYPE.id in names:
        return None
    return made, replace(precision, names=names, listed=False, roundings=Roundings.MORE)


def option_lines(o: Outside) -> list[str]:
    """Return the statements that return the chosen option of the output, rounded."""
    output: Code = Name(o.equation)
    output = FunctionCall("rt.no_view", (output,)) if o.is_view else output
    made = {o.option: (Line(o.equation, output),), **o.others}
    *short, longest = sorted(made, key=lambda option: len(_returned(made[option], 8)))
    lines: list[str] = []
    for option in short:
        lines += [f'if {o.choice} == "{option}":', *indented(_returned(made[option], 8), 4)]
    return [*lines, *_returned(made[longest], 4)]


def _returned(lines: Sequence[Line], indent: int) -> list[str]:
    """Return the statements of lines of which the last is returned."""
    *first, last = lines
    code = MethodCall(last.code, "to", (DTYPE,))
    return [*statements(first, indent), *broken("return ", code, indent=indent)]
