"""The text of a program as a person would write it with SymPy, read as an operation."""

from functools import reduce
from operator import add, mul
from typing import Any

import sympy
from kit.programs.shrinking import read

from derive.algebra.reductions import REDUCTIONS
from derive.notation import heads, syntax
from derive.notation.specification import Operation

HEADS: dict[str, Any] = {
    **{kind: getattr(heads, row.head) for kind, row in REDUCTIONS.items()},
    **{"softmax": heads.Softmax, "log_softmax": heads.LogSoftmax},
}
FUNCTIONS: dict[str, Any] = {
    "abs": sympy.Abs,
    "ceil": sympy.ceiling,
    "expit": heads.sigmoid,
    "int": heads.to_int,
    "round": heads.round_half_even,
    "rsqrt": lambda x: 1 / sympy.sqrt(x),
    "square": lambda x: x**2,
}
RELATIONS: dict[str, Any] = {
    "==": sympy.Eq, "!=": sympy.Ne, "<": sympy.Lt, "<=": sympy.Le, ">": sympy.Gt, ">=": sympy.Ge,
}  # fmt: skip


def through_sympy(text: str) -> Operation:
    """The operation of the SymPy equations that say what the text says."""
    return _Speaker(read(text)).operation()


class _Speaker:
    """Says one operation in SymPy."""

    def __init__(self, op: syntax.OperationSyntax) -> None:
        self.op = op
        inputs = {t.name: t for t in op.inputs or ()}
        self.scalars = {n for n, t in inputs.items() if not t.axes}
        self.scalars |= {e.name for e in op.equations if not e.axes}
        self.scalars |= {p.name for p in op.parameters if not p.fixes}
        self.bools = {n for n, t in inputs.items() if t.kind == "bool"}

    def operation(self) -> Operation:
        equations = []
        for e in self.op.equations:
            left = self.tensor(e.name, e.axes)
            boolean = self.is_condition(e.body)
            right = self.condition(e.body) if boolean else self.value(e.body)
            equations.append(sympy.Eq(left, right, evaluate=False))
            self.bools |= {e.name} if boolean else set()
        pairs = self.op.outputs or ()
        chosen = pairs and pairs[0][0] is not None
        return Operation(
            self.op.name,
            *equations,
            inputs=[self.input(t) for t in self.op.inputs or ()],
            parameters=dict(map(self.parameter, self.op.parameters)),
            outputs={str(o): n for o, n in pairs} if chosen else [n for _, n in pairs],
        )

    # The op line

    def input(self, t: syntax.TensorSyntax) -> Any:
        made = self.tensor(t.name, t.axes or ())
        made = heads.integer(made) if t.kind == "int" else made
        made = heads.boolean(made) if t.kind == "bool" else made
        return made if t.default is None else heads.optional(made, self.value(t.default))

    def parameter(self, p: syntax.ParameterSyntax) -> tuple[Any, Any]:
        if p.fixes:
            return heads.size(self.letter(p.name)), self.value(p.value)
        if p.options:
            return p.name, heads.choice(*p.options)
        if isinstance(p.value, syntax.ApplySyntax):
            (letter, *default) = p.value.args
            assert isinstance(letter, syntax.NameSyntax)
            given = [int(self.value(d)) for d in default]
            of = {"axis": heads.axis, "keep": heads.keep, "size": heads.size}[p.value.function]
            return p.name, of(self.letter(letter.name), *given)
        return p.name, None if p.value is None else self.value(p.value)

    # Names

    def letter(self, name: str) -> sympy.Symbol:
        return sympy.Symbol(name, integer=True)

    def index(self, e: syntax.Raw) -> Any:
        assert isinstance(e, syntax.NameSyntax | syntax.Star)
        return heads.group(e.name) if isinstance(e, syntax.Star) else self.letter(e.name)

    def tensor(self, name: str, axes: tuple[syntax.Raw, ...]) -> Any:
        if not axes:
            return sympy.Symbol(name)
        return sympy.IndexedBase(name)[tuple(map(self.value, axes))]

    # Expressions

    def value(self, e: syntax.Raw | None) -> Any:
        match e:
            case syntax.NumberSyntax(value):
                return sympy.Rational(value.numerator, value.denominator)
            case syntax.NameSyntax("pi"):
                return sympy.pi
            case syntax.NameSyntax("inf"):
                return sympy.oo
            case syntax.NameSyntax(name):
                return sympy.Symbol(name) if name in self.scalars else self.letter(name)
            case syntax.Star():
                return self.index(e)
            case syntax.CompositeSyntax(args):
                return heads.Composite(*map(self.value, args))
            case syntax.Item(name, positions):
                return self.tensor(name, positions)
            case syntax.Negative(arg):
                return -self.value(arg)
            case syntax.Sum(terms):
                return reduce(
                    add, [-self.value(t) if minus else self.value(t) for minus, t in terms]
                )
            case syntax.Product(factors):
                return reduce(
                    mul, [1 / self.value(f) if over else self.value(f) for over, f in factors]
                )
            case syntax.Power(base, exponent):
                return self.value(base) ** self.value(exponent)
            case syntax.Bracket(condition):
                return heads.Iverson(self.condition(condition))
            case syntax.ApplySyntax("size", (syntax.NameSyntax(name),)):
                return heads.size(self.letter(name))
            case syntax.ApplySyntax("where", (condition, then, other)):
                branches = (self.value(then), self.condition(condition)), (self.value(other), True)
                return sympy.Piecewise(*branches)
            case syntax.ApplySyntax(function, args):
                return self.function(function)(*map(self.value, args))
            case syntax.Bind("concat", (index,), None, args):
                return heads.Concat(self.index(index), *map(self.value, args))
            case syntax.Bind(kind, indices, condition, (body,)):
                return self.reduced(kind, indices, condition, body)
        raise AssertionError(f"{e!r} is no number")

    def function(self, name: str) -> Any:
        found = FUNCTIONS.get(name) or getattr(heads, name, None)
        return found or getattr(sympy, name)

    def reduced(
        self,
        kind: str,
        indices: tuple[syntax.Raw, ...],
        condition: syntax.Raw | None,
        body: syntax.Raw,
    ) -> Any:
        over = [self.index(i) for i in indices]
        inner = self.condition(body) if kind in ("any", "all") else self.value(body)
        if condition is None and kind in ("sum", "prod"):
            return (sympy.Sum if kind == "sum" else sympy.Product)(inner, *over)
        where = True if condition is None else self.condition(condition)
        return HEADS[kind](inner, *over, where=where)

    # Conditions

    def is_condition(self, e: syntax.Raw) -> bool:
        if isinstance(e, syntax.Bind):
            return e.kind in ("any", "all")
        return isinstance(e, syntax.Compare | syntax.Both | syntax.Either | syntax.Negation) or (
            isinstance(e, syntax.Item | syntax.NameSyntax) and e.name in self.bools
        )

    def condition(self, e: syntax.Raw) -> Any:
        match e:
            case syntax.Compare(first, ((op, side),)):
                return RELATIONS[op](self.value(first), self.value(side))
            case syntax.Both(args):
                return sympy.And(*map(self.condition, args), evaluate=False)
            case syntax.Either(args):
                return sympy.Or(*map(self.condition, args), evaluate=False)
            case syntax.Negation(arg):
                return sympy.Not(self.condition(arg))
            case syntax.Item() | syntax.NameSyntax():
                return heads.Holds(self.value(e))
            case syntax.Bind():
                return self.value(e)
        raise AssertionError(f"{e!r} is no condition")
