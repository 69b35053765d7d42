"""SymPy equations to operations, ``Operation("f", Eq(y[i], Sum(x[i, k], k)))``, and back.

A SymPy expression is read once, node by node, into the statements of `derive.notation.syntax`.
None of SymPy's own calculus is used, because ``diff``, ``doit`` and ``subs`` capture summed
indices.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sympy
from sympy import Basic, Idx, Indexed, IndexedBase, Symbol
from sympy.core.relational import Relational

from derive.algebra import expr as e
from derive.algebra.functions import FUNCTIONS
from derive.algebra.reductions import CONDITIONS, REDUCTIONS
from derive.errors import DeriveError, SpecError
from derive.notation import heads, syntax
from derive.notation.operation import Operation
from derive.notation.resolve import resolve
from derive.notation.resource_limits import DEPTH, check_depth, check_size
from derive.notation.sympy_names import Names, Order, text_of
from derive.notation.sympy_terms import Terms, number

_LEVELS = 2 * DEPTH
"""Level limit of a SymPy expression, which has extra levels for signs, quotients and limits."""


def operation(
    name: str,
    equations: Sequence[Any],
    inputs: Sequence[Any],
    parameters: Mapping[Any, Any],
    outputs: Sequence[Any] | Mapping[str, Any] | None,
    stable: bool,
    requires: Sequence[Any],
) -> Operation:
    """Return the operation that SymPy equations describe."""
    if not isinstance(name, str):
        text = f"the name of an operation must be a string, not {name!r}"
        raise SpecError(text, kind="invalid-name")
    for equation in equations:
        _check_equation(name, equation)
        # Abbreviate: SymPy's text of a large equation would be as large.
        place = _equation_place(name, sympy.Eq(equation.lhs, sympy.Symbol("…"), evaluate=False))
        check_depth(equation, lambda e: e.args, place, _LEVELS)
    declared = [_symbol_name(key) for key in parameters if not isinstance(key, heads.SizeSymbol)]
    scalars = [_symbol_name(e.lhs) for e in equations if isinstance(e.lhs, Symbol)]
    scalars += [_symbol_name(i) for i in inputs if isinstance(heads.special(i).tensor, Symbol)]
    names = Names.of(equations, {*declared, *scalars})
    terms = Terms(names, Order.of([heads.special(i).tensor for i in inputs], equations))
    try:
        written = syntax.OperationSyntax(
            name,
            tuple(_input(terms, item) for item in inputs) if inputs else None,
            tuple(_parameter_syntax(terms, *item) for item in parameters.items()) + names.fixed(),
            _outputs(outputs),
            tuple(_equation_syntax(terms, name, e) for e in equations),
            tuple(names.same),
            text=False,
            stable=stable,
            bounds=tuple(map(_bound, requires)),
        )
        check_size(written)
        return resolve(written)
    except RecursionError:
        text = f"an equation of {name} is nested too deeply"
        raise SpecError(text, kind="spec-too-large") from None


def _check_equation(name: str, equation: Any) -> None:
    if isinstance(equation, sympy.Eq):
        if isinstance(equation.lhs, Indexed | Symbol):
            return
        text = f"{name}: the left side of {equation} is not a tensor; write Eq(C[i, j], ...)"
        raise SpecError(text, kind="sympy-equation")
    if equation in (True, False):
        nan = "" if equation else " one side may be nan, such as 0*oo;"
        raise SpecError(
            f"{name}: SymPy evaluated an equation to {equation};{nan} write it with "
            "Eq(..., evaluate=False), and a condition as Iverson(...)",
            kind="sympy-equation",
        )
    listed = isinstance(equation, list | tuple)
    how = "pass the equations one by one, without a list" if listed else "write Eq(C[i, j], ...)"
    raise SpecError(f"{name}: {equation!r} is not an equation; {how}", kind="sympy-equation")


def _equation_syntax(terms: Terms, name: str, e: Any) -> syntax.EquationSyntax:
    terms.at = _equation_place(name, e)
    axes = () if isinstance(e.lhs, Symbol) else tuple(map(terms.position, e.lhs.indices))
    made = syntax.EquationSyntax(_symbol_name(e.lhs), axes, terms.value(e.rhs))
    return syntax.with_place(made, terms.at)


def _equation_place(name: str, e: Any) -> syntax.SourcePlace:
    return syntax.SourcePlace(0, 0, lambda: f"{name}: {_sympy_text(e.lhs)} = {_sympy_text(e.rhs)}")


def _sympy_text(e: Any) -> str:
    """Return SymPy's text, or "…" if it is too large."""
    try:
        return str(e)
    except (RecursionError, ValueError):
        return "…"


def _input(terms: Terms, item: Any) -> syntax.TensorSyntax:
    special = heads.special(item)
    tensor = special.tensor
    axes: tuple[syntax.Raw, ...] | None = None
    if isinstance(tensor, Indexed):
        axes = tuple(terms.position(index) for index in tensor.indices)
    elif isinstance(tensor, Symbol):
        axes = ()
    elif not isinstance(tensor, IndexedBase):
        text = f"input {tensor!r} is not a tensor; give A[i, j], A or a Symbol"
        raise SpecError(text, kind="sympy-equation")
    default = None if special.default is None else number(special.default)
    return syntax.TensorSyntax(_symbol_name(tensor), axes, special.kind, default)


def _parameter_syntax(terms: Terms, key: Any, value: Any) -> syntax.ParameterSyntax:
    if isinstance(key, heads.SizeSymbol):
        terms.at = syntax.SourcePlace(0, 0, lambda: f"{key} = {_sympy_text(value)}")
        given = isinstance(value, sympy.Expr) and not value.is_Number
        size = terms.value(value) if given else number(value)
        return syntax.with_place(syntax.ParameterSyntax(key.letter, size, fixes=True), terms.at)
    name = _symbol_name(key)
    if isinstance(value, heads.SizeSymbol):
        letter = syntax.NameSyntax(value.letter)
        return syntax.ParameterSyntax(name, syntax.ApplySyntax("size", (letter,)))
    if isinstance(value, heads.OfIndex):
        args: tuple[syntax.Raw, ...] = (terms.index(value.index),)
        if value.default is not None:
            args += (number(value.default),)
        return syntax.ParameterSyntax(name, syntax.ApplySyntax(value.function, args))
    if isinstance(value, heads.Options):
        if not value.options:
            raise SpecError(f"choice {name} has no options", kind="choice")
        return syntax.ParameterSyntax(name, None, tuple(map(str, value.options)))
    return syntax.ParameterSyntax(name, None if value is None else number(value))


def _bound(e: Any) -> syntax.Bound:
    if not isinstance(e, Relational) or not isinstance(e.lhs, Symbol):
        text = f"{e!r} is not a condition on a parameter; write eps > 0"
        raise SpecError(text, kind="parameter-value")
    at = syntax.SourcePlace(0, 0, lambda: _sympy_text(e))
    return syntax.with_place(syntax.Bound(_symbol_name(e.lhs), e.rel_op, number(e.rhs)), at)


def _outputs(
    outputs: Sequence[Any] | Mapping[str, Any] | None,
) -> tuple[tuple[str | None, str], ...] | None:
    if outputs is None:
        return None
    if isinstance(outputs, Mapping):
        return tuple((str(option), _symbol_name(name)) for option, name in outputs.items())
    if isinstance(outputs, str | Basic):
        outputs = (outputs,)
    return tuple((None, _symbol_name(name)) for name in outputs)


def _symbol_name(item: Any) -> str:
    """Return the name of a tensor, symbol or text."""
    item = heads.special(item).tensor
    if isinstance(item, Indexed):
        item = item.base
    if isinstance(item, IndexedBase | Idx):
        item = item.label
    if not isinstance(item, str | Symbol):
        raise SpecError(f"{item!r} is not a name", kind="invalid-name")
    return unicodedata.normalize("NFKC", text_of(item))


# ----------------------------------------------------------------------------------------- to sympy
# The algebra as SymPy expressions, for printing and for use elsewhere.


def to_sympy(node: e.Expr) -> Any:
    """Return the SymPy expression of a node, with derive's heads where SymPy lacks one."""
    write = _TABLE.get(type(node))
    if write is None:
        text = f"{type(node).__name__} cannot be written in SymPy: {node!r}"
        raise DeriveError(text, kind="sympy-expression")
    return write(node)


def _access(node: e.Access) -> Any:
    if not node.positions:
        return sympy.Symbol(node.tensor)
    return sympy.IndexedBase(node.tensor)[tuple(map(to_sympy, node.positions))]


def _as_piecewise(condition: e.Expr, then: e.Expr, other: e.Expr) -> Any:
    return sympy.Piecewise((to_sympy(then), _condition(condition)), (to_sympy(other), True))


def _sympy_function(function: str) -> Callable[..., Any]:
    if function == "floordiv":
        return lambda a, b: sympy.floor(a / b)
    row = FUNCTIONS[function]
    return getattr(sympy, row.sympy) if row.sympy else getattr(heads, row.head)  # type: ignore[no-any-return]


def _condition(condition: e.Expr) -> Any:
    """Return a condition; an element of a bool tensor is wrapped in Holds."""
    found = to_sympy(condition)
    return heads.Holds(found) if isinstance(condition, e.Access) else found


def _reduce_to_sympy(node: e.Reduce) -> Any:
    kind, indices, body, condition = node.kind, node.indices, node.body, node.condition
    inner = to_sympy(body) if kind not in CONDITIONS else _condition(body)
    symbols = tuple(map(to_sympy, indices))
    if kind in ("sum", "prod"):
        if condition is not None:
            neutral = REDUCTIONS[kind].neutral
            inner = sympy.Piecewise((inner, _condition(condition)), (neutral, True))
        ends = (to_sympy(e.Size(index.extent)) - 1 for index in indices)
        limits = [(symbol, 0, end) for symbol, end in zip(symbols, ends, strict=True)]
        return (sympy.Sum if kind == "sum" else sympy.Product)(inner, *limits)
    where = True if condition is None else _condition(condition)
    return getattr(heads, REDUCTIONS[kind].head)(inner, *symbols, where=where)


_TABLE: dict[type[e.Expr], Callable[[Any], Any]] = {
    e.Num: lambda n: sympy.Rational(n.value.numerator, n.value.denominator),
    e.Const: lambda n: sympy.oo if n.name == "inf" else sympy.pi,
    e.Index: lambda n: heads.group(n.name) if n.group else sympy.Symbol(n.name, integer=True),
    e.Size: lambda n: heads.size(n.extent),
    e.Param: lambda n: sympy.Symbol(n.name),
    e.Access: _access,
    e.Composite: lambda n: heads.Composite(*map(to_sympy, n.args)),
    e.Guard: lambda n: _as_piecewise(n.condition, n.position, e.num(0)),
    e.Add: lambda n: sympy.Add(*map(to_sympy, n.args)),
    e.Mul: lambda n: sympy.Mul(*map(to_sympy, n.args)),
    e.Pow: lambda n: sympy.Pow(to_sympy(n.base), to_sympy(n.exponent)),
    e.Call: lambda n: _sympy_function(n.function)(*map(to_sympy, n.args)),
    e.Reduce: _reduce_to_sympy,
    e.Rel: lambda n: sympy.Rel(to_sympy(n.left), to_sympy(n.right), n.op),
    e.And: lambda n: sympy.And(*map(_condition, n.args)),
    e.Or: lambda n: sympy.Or(*map(_condition, n.args)),
    e.Not: lambda n: sympy.Not(_condition(n.arg)),
    e.Iverson: lambda n: heads.Iverson(_condition(n.condition)),
    e.Where: lambda n: _as_piecewise(n.condition, n.then, n.other),
    e.Delta: lambda n: sympy.KroneckerDelta(to_sympy(n.axis), to_sympy(n.position)),
}
"""Node class to its translation."""
