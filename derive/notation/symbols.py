"""Classify names: the indices, inputs, parameters and equations of one operation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NoReturn

from derive.algebra.expr import Const, Expr, Num, num
from derive.algebra.reductions import CONDITIONS, REDUCTIONS
from derive.notation import syntax
from derive.notation.advice import (
    CONSTANTS,
    FORMS,
    IN_SYMPY,
    IN_TEXT,
    KEEPING,
    SCALAR,
    WORDS,
    Declaring,
    check_name,
    nearest,
)
from derive.notation.smart_constructors import power, product, total
from derive.notation.syntax import Raw, SourcePlace, fail, show, with_unit_axes


@dataclass
class Letter:
    """An index or, with ``group``, a group of axes; ``own`` is False for a generated one."""

    name: str
    group: bool
    at: SourcePlace | None
    own: bool = True


@dataclass
class Declared:
    """The names of an operation, each in order of appearance."""

    written: syntax.OperationSyntax
    letters: dict[str, Letter] = field(default_factory=dict)
    tensors: dict[str, syntax.TensorSyntax] = field(default_factory=dict)
    parameters: dict[str, syntax.ParameterSyntax] = field(default_factory=dict)
    equations: dict[str, syntax.EquationSyntax] = field(default_factory=dict)
    fixed: dict[str, syntax.ParameterSyntax] = field(default_factory=dict)
    as_index: dict[str, SourcePlace | None] = field(default_factory=dict)
    as_condition: dict[str, Raw] = field(default_factory=dict)

    @property
    def open(self) -> bool:
        """True if inputs are found by their use."""
        return self.written.inputs is None

    @property
    def how(self) -> Declaring:
        """The declaration syntax of this kind of spec."""
        return IN_TEXT if self.written.text else IN_SYMPY

    def known(self) -> Iterator[str]:
        """Yield every name that an expression may use."""
        yield from (*self.letters, *self.tensors, *self.equations, *self.parameters, *WORDS)


def declare(written: syntax.OperationSyntax) -> Declared:
    """Return all names of the operation; each has one meaning."""
    written = with_unit_axes(written)
    d = Declared(written)
    check_name(written.name, "an operation", written.at)
    for tensor in written.inputs or ():
        _declare_input(d, tensor)
    for parameter in written.parameters:
        _declare_parameter(d, parameter)
    for equation in written.equations:
        _declare_equation(d, equation)
    survey = _Survey(d)
    for parameter in d.fixed.values():
        if parameter.value is not None:
            survey.visit(parameter.value, "value")
    for equation in written.equations:
        for axis in equation.axes:
            survey.visit(axis, "axis")
        survey.visit(equation.body, "value")
    for name, at in survey.measured.items():
        if name not in d.letters:
            _declare_letter(d, name, False, at)
    for name, at in survey.scalars.items():
        if d.open and name not in d.letters and name not in d.parameters:
            if not written.text and name not in d.equations:
                fail(
                    at,
                    "unknown-name",
                    f"symbol {name} is neither an index, a parameter nor an input; declare it, "
                    f'parameters={{"{name}": None}} or inputs=[..., {name}]',
                )
            survey.used.setdefault(name, at)
    if d.open:
        found = {n: at for n, at in survey.used.items() if n not in d.equations}
        for name, at in sorted(found.items(), key=lambda pair: survey.order[pair[0]]):
            check_name(name, "a tensor", at)
            d.tensors[name] = syntax.TensorSyntax(name, None, at=at)
    _clashes(d)
    return d


def _declare_input(d: Declared, tensor: syntax.TensorSyntax) -> None:
    check_name(tensor.name, "a tensor", tensor.at)
    if tensor.name in d.tensors:
        fail(tensor.at, "defined-twice", f"input {tensor.name} is declared twice; remove one")
    d.tensors[tensor.name] = tensor
    for axis in tensor.axes or ():
        match axis:
            case syntax.NameSyntax(name):
                _declare_letter(d, name, False, axis.at)
            case syntax.Star(name):
                _declare_letter(d, name, True, axis.at)
            case syntax.CompositeSyntax(args):
                for part in args:
                    if not isinstance(part, syntax.NameSyntax):
                        message = f"{show(part)} in {show(axis)}: a part here must be an index"
                        fail(part.at, "not-an-index", message)
                    _declare_letter(d, part.name, False, part.at)
            case _:
                fail(
                    axis.at,
                    "not-an-index",
                    f"axis {show(axis)} of {tensor.name}: an axis must be an index, a group *p, "
                    "a composite (a b) or 0, which has size 1; size(k)=3 after a ';' fixes a size",
                )


def _declare_parameter(d: Declared, parameter: syntax.ParameterSyntax) -> None:
    if parameter.fixes:
        _declare_letter(d, parameter.name, False, parameter.at)
        if parameter.name in d.fixed:
            fail(
                parameter.at, "defined-twice", f"size({parameter.name}) is given twice; remove one"
            )
        d.fixed[parameter.name] = parameter
        return
    check_name(parameter.name, "a parameter", parameter.at)
    if parameter.name in d.parameters:
        message = f"parameter {parameter.name} is declared twice; remove one"
        fail(parameter.at, "defined-twice", message)
    d.parameters[parameter.name] = parameter
    value = parameter.value
    if isinstance(value, syntax.ApplySyntax) and value.function in ("axis", "keep", "size"):
        if value.args and isinstance(value.args[0], syntax.NameSyntax | syntax.Star):
            first = value.args[0]
            starred = isinstance(first, syntax.Star)
            known = d.letters.get(first.name)
            group = starred or (known is not None and known.group)
            _declare_letter(d, first.name, group, first.at)


def _declare_equation(d: Declared, equation: syntax.EquationSyntax) -> None:
    name = equation.name
    check_name(name, "a tensor", equation.at)
    if name in d.equations:
        both = (*equation.axes, *d.equations[name].axes)
        parts = any(isinstance(a, syntax.NumberSyntax) for a in both)
        how = d.how.components() if parts else "rename one"
        fail(equation.at, "defined-twice", f"{name} is defined twice; {how}")
    if name in d.tensors:
        message = f"{name} is an input and cannot be defined; choose another name"
        fail(equation.at, "defined-twice", message)
    d.equations[name] = equation


def _declare_letter(d: Declared, name: str, group: bool, at: SourcePlace | None) -> None:
    check_name(name, "an index", at)
    known = d.letters.get(name)
    if known is None:
        d.letters[name] = Letter(name, group, at)
    elif known.group != group:
        if known.group:
            fail(at, "two-roles", f"{name} is a group of axes; write *{name}")
        fail(at, "two-roles", f"{name} is both an index and a group *{name}; rename one")


def _clashes(d: Declared) -> None:
    """Refuse a name with two meanings."""
    places: dict[str, tuple[str, SourcePlace | None]] = {}
    kinds = (
        ("an index", {n: x.at for n, x in d.letters.items()}),
        ("an input", {n: x.at for n, x in d.tensors.items()}),
        ("a parameter", {n: x.at for n, x in d.parameters.items()}),
        ("an equation", {n: x.at for n, x in d.equations.items()}),
    )
    for what, found in kinds:
        for name, at in found.items():
            if name in places:
                fail(at, "two-roles", f"{name} is both {places[name][0]} and {what}; rename one")
            places[name] = (what, at)
    own = d.written.name
    if own in places and places[own][0] != "an index":
        what, at = places[own]
        fail(at, "two-roles", f"{own} is both the operation and {what}; rename one")


class _Survey:
    """Finds the indices, and how tensors are used, in one walk over the equations."""

    def __init__(self, d: Declared) -> None:
        self.d = d
        self.used: dict[str, SourcePlace | None] = {}
        self.scalars: dict[str, SourcePlace | None] = {}
        self.order: dict[str, int] = {}
        self.measured: dict[str, SourcePlace | None] = {}

    def _tensor_like(self, name: str) -> bool:
        d = self.d
        return name in d.tensors or name in d.equations or name in d.parameters

    def _seen(self, name: str, context: str, e: Raw) -> None:
        self.order.setdefault(name, len(self.order))
        if context == "position":
            self.d.as_index.setdefault(name, e.at)
        if context == "condition":
            self.d.as_condition.setdefault(name, e)

    def visit(self, e: Raw, context: str) -> None:
        """Record e and its parts; ``context`` is "value", "condition", "position" or "axis"."""
        d = self.d
        match e:
            case syntax.NameSyntax(name) if name not in CONSTANTS or context == "axis":
                bare = context == "position" and not self._tensor_like(name)
                if context == "axis" or (bare and name not in d.letters):
                    _declare_letter(d, name, False, e.at)
                elif not bare:
                    self._seen(name, context, e)
                    self.scalars.setdefault(name, e.at)
            case syntax.Star(name):
                _declare_letter(d, name, True, e.at)
            case syntax.Item(name) if name not in WORDS or name in (*d.tensors, *d.equations):
                self._seen(name, context, e)
                self.used.setdefault(name, e.at)
            case syntax.ApplySyntax("size", args):
                for arg in args:
                    if isinstance(arg, syntax.NameSyntax) and not self._tensor_like(arg.name):
                        self.measured.setdefault(arg.name, arg.at)
                return
        for part, within in _parts_in_context(e, context):
            self.visit(part, within)


def _parts_in_context(e: Raw, context: str) -> Iterator[tuple[Raw, str]]:
    """Yield the parts of e, each with its context."""
    within = "value"
    match e:
        case syntax.CompositeSyntax():
            within = "axis"
        case syntax.Item():
            within = "position"
        case syntax.Both() | syntax.Either() | syntax.Negation() | syntax.Bracket():
            within = "condition"
        case syntax.ApplySyntax("where", (test, *branches)):
            yield test, "condition"
            yield from ((branch, "value") for branch in branches)
            return
        case syntax.Bind(kind, indices, condition, args):
            yield from ((index, "axis") for index in indices)
            if condition is not None:
                yield condition, "condition"
            yield from ((a, "condition" if kind in CONDITIONS else "value") for a in args)
            return
        case syntax.Sum() | syntax.Product() | syntax.Negative() if context == "position":
            within = context
    yield from ((part, within) for part in e.parts())


def constant(e: Raw, what: str) -> Expr:
    """Return the constant value of e: numbers, ``pi``, ``inf`` and - + * / ** only."""
    try:
        return _constant_value(e, what)
    except ZeroDivisionError:
        fail(e.at, "not-finite", "division by zero")
    except OverflowError as error:
        fail(e.at, "not-finite", f"{what}: {error}")


def _constant_value(e: Raw, what: str) -> Expr:
    match e:
        case syntax.NumberSyntax(value):
            return num(value)
        case syntax.NameSyntax(name) if name in CONSTANTS:
            return Const(name)
        case syntax.Negative(arg):
            return product((num(-1), constant(arg, what)))
        case syntax.Sum(terms):
            signed = ((num(-1 if minus else 1), constant(t, what)) for minus, t in terms)
            return _require_number(e, what, total(map(product, signed)))
        case syntax.Product(factors):
            powers = ((constant(f, what), num(-1 if below else 1)) for below, f in factors)
            return _require_number(e, what, product(power(*each) for each in powers))
        case syntax.Power(base, exponent):
            return _require_number(e, what, power(constant(base, what), constant(exponent, what)))
    fail(e.at, "parameter-value", f"{what} must be a number, not {show(e)}")


def _require_number(e: Raw, what: str, value: Expr) -> Expr:
    if not isinstance(value, Num):
        fail(e.at, "parameter-value", f"{what} must be a single number, not {show(e)}")
    return value


# ------------------------------------------------------------------------------------ unknown names
# Errors for unknown functions and reductions, with suggestions.


def no_function(e: syntax.ApplySyntax, declared: Declared) -> NoReturn:
    """Refuse name(...)."""
    name = e.function
    if name in ("max", "min"):
        full = name + "imum"
        how = f"{name} reduces over an index, {name}[k](...)"
        fail(e.at, "wrong-arguments", f"{how}; for two numbers, write {full}(a, b)")
    if name in REDUCTIONS or name in KEEPING or name == "concat":
        fail(e.at, "wrong-arguments", f"{name} needs its index: {name}[k](...)")
    if name in FORMS:
        message = f"{name}(...) is allowed only among the parameters of an op line"
        fail(e.at, "parameter-value", message)
    if name in declared.tensors or name in declared.equations:
        fail(e.at, "wrong-arguments", f"{name} is a tensor; write {name}[...]")
    message = f"unknown function {name}{nearest(name, (*SCALAR, *REDUCTIONS, *FORMS))}"
    fail(e.at, "unknown-function", message)


def no_reduction(e: syntax.Bind, declared: Declared) -> NoReturn:
    """Refuse name[...](...)."""
    if e.kind in SCALAR:
        fail(e.at, "wrong-arguments", f"{e.kind} takes no indices: {e.kind}(...)")
    if e.kind in declared.tensors or e.kind in declared.equations:
        fail(e.at, "wrong-arguments", f"{e.kind} is a tensor and cannot be called")
    message = f"unknown reduction {e.kind}{nearest(e.kind, (*REDUCTIONS, *KEEPING))}"
    fail(e.at, "unknown-function", message)
