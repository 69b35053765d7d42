"""Elaborate parameters, run-time axes, choices and groups: the op line after ``;``."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from derive.algebra.expr import RELATIONS, Const, Expr, Index, Num, walk
from derive.notation import syntax
from derive.notation.advice import nearest
from derive.notation.operation import (
    BOUNDS,
    AxisOf,
    Choice,
    Equation,
    KeepDim,
    Number,
    Parameter,
    SizeOf,
    Tensor,
)
from derive.notation.sizes import SizeSolver
from derive.notation.smart_constructors import LARGEST
from derive.notation.symbols import Declared, constant
from derive.notation.syntax import fail, show


def default(value: syntax.Raw | None, what: str) -> Fraction | Expr | None:
    """Return the default of a parameter or of an optional tensor."""
    if value is None:
        return None
    found = constant(value, what)
    return found.value if isinstance(found, Num) else found


def parameters(
    d: Declared,
    sizes: SizeSolver,
    integers: set[str],
    tensors: Sequence[Tensor],
    equations: Sequence[Equation],
    results: Sequence[str],
) -> tuple[Parameter, ...]:
    """Return all parameters, in order."""
    made: list[Parameter] = []
    for name, written in d.parameters.items():
        value = written.value
        if written.options:
            made.append(_choice_parameter(d, written))
        elif isinstance(value, syntax.ApplySyntax) and value.function in ("axis", "keep", "size"):
            made.append(_index_parameter(d, sizes, written, value, tensors))
        else:
            given = default(value, f"the default of {name}")
            integer = name in integers
            if integer and isinstance(given, Fraction) and given.denominator != 1:
                message = f"parameter {name} is used as an integer; its default is {given}"
                fail(written.at, "parameter-value", message)
            if integer and isinstance(given, Const):
                message = f"parameter {name} is used as an integer; its default is not an integer"
                fail(written.at, "parameter-value", message)
            made.append(Number(name, given, integer, _number_bounds(d, name, given)))
    _check_bounded(d, made)
    _check_axes(d, made, equations, results)
    return tuple(made)


def _number_bounds(
    d: Declared, name: str, given: Fraction | Expr | None
) -> tuple[tuple[str, Fraction], ...]:
    """Return the bounds of a number, after checking its default."""
    found = []
    for bound in d.written.bounds:
        if bound.name != name:
            continue
        value = default(bound.value, f"the bound of {name}")
        if not isinstance(value, Fraction) or bound.relation not in BOUNDS:
            symbols = ", ".join(BOUNDS)
            message = f"the bound of {name} must be a finite number, after one of {symbols}"
            fail(bound.at, "parameter-value", message)
        if isinstance(given, Fraction) and not RELATIONS[bound.relation](given, value):
            message = f"{name} must be {BOUNDS[bound.relation]} {value}; its default is not"
            fail(bound.at, "parameter-value", message)
        found.append((bound.relation, value))
    return tuple(found)


def _check_bounded(d: Declared, made: Sequence[Parameter]) -> None:
    numbers = [p.name for p in made if isinstance(p, Number)]
    for bound in d.written.bounds:
        if bound.name not in numbers:
            message = f"{bound.name} is not a number among the parameters, but has a bound"
            fail(bound.at, "parameter-value", message)


def _index_parameter(
    d: Declared,
    sizes: SizeSolver,
    written: syntax.ParameterSyntax,
    value: syntax.ApplySyntax,
    tensors: Sequence[Tensor],
) -> Parameter:
    name, function = written.name, value.function
    most = 1 if function == "keep" else 2
    if not 1 <= len(value.args) <= most or not isinstance(
        value.args[0], syntax.NameSyntax | syntax.Star
    ):
        usage = f"{function}(k)" if most == 1 else f"{function}(k) or {function}(k, default)"
        fail(value.at, "axis-parameter", f"{show(value)}: write {usage}")
    letter = value.args[0].name
    index = Index(letter, sizes.letter(letter), d.letters[letter].group)
    given = None
    if len(value.args) == 2:
        number = default(value.args[1], f"the default of {name}")
        if not isinstance(number, Fraction) or number.denominator != 1:
            fail(value.at, "parameter-value", f"the default of {name} must be an integer")
        given = int(number)
    if given is not None and abs(given) > LARGEST:
        message = f"the default of {name} is {given}, above the limit of {LARGEST}"
        fail(value.at, "parameter-value", message)
    if function == "size":
        if given is not None and given < 1:
            fail(
                value.at, "parameter-value", f"the default of {name} must be positive, not {given}"
            )
        return SizeOf(name, index.extent, given)
    if not any(index.extent == a.extent for t in tensors for a in t.axes if isinstance(a, Index)):
        fail(value.at, "axis-parameter", f"{show(value)}: no input has the axis {letter}")
    if function == "keep":
        return KeepDim(name, index)
    if index.group:
        fail(
            value.at,
            "axis-parameter",
            f"{show(value)}: *{letter} is a group; the argument of axis must be a single index",
        )
    return AxisOf(name, index, given)


def _choice_parameter(d: Declared, written: syntax.ParameterSyntax) -> Choice:
    name, options = written.name, written.options
    twice = next((o for n, o in enumerate(options) if o in options[:n]), None)
    if twice is not None:
        fail(written.at, "choice", f"option {twice} of {name} is given twice")
    pairs = d.written.outputs or ()
    if not pairs or pairs[0][0] is None:
        shown = " | ".join(f"{option}: ..." for option in options)
        fail(written.at, "choice", f"choice {name} needs an output for each option: -> {shown}")
    for option, _ in pairs:
        if option not in options:
            hint = nearest(str(option), options)
            fail(written.at, "choice", f"{option} is not an option of {name}{hint}")
    for option in options:
        found = [output for given, output in pairs if given == option]
        if len(found) != 1:
            how = "no output" if not found else "two outputs"
            fail(written.at, "choice", f"option {option} of {name} has {how}")
    return Choice(name, tuple((o, out) for wanted in options for o, out in pairs if o == wanted))


def outputs(d: Declared) -> tuple[str, ...]:
    """Return the names of the outputs, each once, in order."""
    if d.written.outputs is None:
        return (next(reversed(d.equations)),)
    chosen = any(option is not None for option, _ in d.written.outputs)
    if chosen and not any(p.options for p in d.parameters.values()):
        fail(d.written.at, "choice", "the outputs name options, but no parameter is a choice a|b")
    if sum(bool(p.options) for p in d.parameters.values()) > 1:
        fail(d.written.at, "choice", "an operation can have at most one choice")
    names = [name for _, name in d.written.outputs]
    for n, name in enumerate(names):
        if name not in d.equations:
            message = f"output {name} is not defined by an equation{nearest(name, d.equations)}"
            fail(d.written.at, "unknown-name", message)
        if name in names[:n] and not chosen:
            fail(d.written.at, "defined-twice", f"output {name} appears twice")
    return tuple(dict.fromkeys(names))


def _check_axes(
    d: Declared, made: Sequence[Parameter], equations: Sequence[Equation], results: Sequence[str]
) -> None:
    axes: dict[str, str] = {}
    for parameter in made:
        at = d.parameters[parameter.name].at
        if isinstance(parameter, AxisOf):
            extent = parameter.index.name
            if extent in axes:
                fail(
                    at,
                    "axis-parameter",
                    f"{axes[extent]} and {parameter.name} both set the position of axis {extent}",
                )
            axes[extent] = parameter.name
        if isinstance(parameter, KeepDim):
            lost = [
                e.name
                for e in equations
                if e.name in results
                and not any(part is parameter.index for axis in e.axes for part in walk(axis))
            ]
            if not lost:
                fail(
                    at,
                    "axis-parameter",
                    f"{parameter.name}: every output already has axis {parameter.index.name}, "
                    "so there is nothing to keep",
                )


def check_groups(d: Declared, made: Sequence[Parameter], tensors: Sequence[Tensor]) -> None:
    """Check that the ranks of inputs and the run-time axes determine the rank of each group."""
    for p in made:
        if isinstance(p, AxisOf) and not any(p.index in t.axes for t in tensors):
            fail(
                d.parameters[p.name].at,
                "axis-parameter",
                f"{p.name} is the position of axis {p.index.name}, but no input has an axis of "
                f"that name; use the name {d.how.axes}",
            )
    named = {p.index.extent for p in made if isinstance(p, AxisOf)}
    segments: list[list[str]] = []
    for tensor in tensors:
        pieces: list[list[str]] = [[]]
        for axis in tensor.axes:
            if isinstance(axis, Index) and axis.group:
                pieces[-1].append(axis.extent)
            elif isinstance(axis, Index) and axis.extent in named:
                pieces.append([])
        segments += [*pieces, [group for piece in pieces for group in piece]]
    known: set[str] = set()
    while found := {g for s in segments for g in s if [x for x in s if x not in known] == [g]}:
        known |= found
    for tensor in tensors:
        plain = [a for a in tensor.axes if isinstance(a, Index)]
        groups = [a for a in plain if a.group]
        if not known.issuperset(a.extent for a in groups):
            shown = " and ".join(f"*{g.name}" for g in groups)
            first, last = plain.index(groups[0]), plain.index(groups[-1])
            between = [a for a in plain[first:last] if not a.group and a.extent not in named]
            hint = "write one group, put an index between them, or read one alone on another input"
            if between:
                hint = f"give dim=axis({between[0].name})"
            message = f"the split of the axes of {tensor.name} into {shown} is ambiguous; {hint}"
            fail(d.tensors[tensor.name].at, "ambiguous-groups", message)
