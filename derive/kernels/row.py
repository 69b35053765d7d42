"""A fused kernel of torch as data: an equation, and the call that computes it."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from derive.algebra.expr import Expr, Index, node
from derive.algebra.functions import FUNCTIONS, POWERS
from derive.algebra.poly import Poly
from derive.calculus.canonical import canonical
from derive.calculus.equations import flatten_operation
from derive.calculus.lets import Lets
from derive.kernels.rebuild import opened
from derive.notation.operation import Operation
from derive.notation.text_form import parse
from derive.program.code import Attribute, Code, Function, Keyword, Literal, Method, Name, replaced


@node
class Kernel(Expr):
    """What the kernel of a row computes of these arguments, those of its equation in order.

    ``along`` are the indices that the kernel sums over: it reads its arguments at all of their
    values.
    """

    name: str
    args: tuple[Expr, ...]
    along: tuple[Index, ...] = ()


@dataclass(frozen=True)
class Row:
    """A kernel: what it computes, in the notation of specs, and the Python call of it.

    All axes are told that the kernel sums over, by whose letters the call names their places; it
    takes any others beside them. A ``cotangent`` is the argument that the result is linear in,
    which may be a product or a sum: a row with one is for the backward.
    """

    name: str
    equation: str
    call: str
    cotangent: str = ""

    @cached_property
    def operation(self) -> Operation:
        """The equation, read."""
        return parse(self.equation)

    @property
    def states(self) -> str:
        """The equation in one line."""
        lines = self.equation.splitlines()
        return "; ".join(line for line in lines if not line.startswith("op "))

    @cached_property
    def functions(self) -> frozenset[str]:
        """The functions that the equation names, which stand in its flat form too."""
        words = re.findall(r"\w+(?=\()", self.equation)
        return frozenset(word for word in words if word in FUNCTIONS and word not in POWERS)

    @cached_property
    def along(self) -> tuple[Index, ...]:
        """The indices of the result, all of which the kernel sums over."""
        op = self.operation
        (output,) = (e for e in op.equations if e.name in op.outputs)
        return tuple(i for i in output.axes if isinstance(i, Index))

    @cached_property
    def arguments(self) -> tuple[str, ...]:
        """The names of the equation's inputs and parameters."""
        op = self.operation
        return tuple(x.name for x in (*op.inputs, *op.parameters))

    @cached_property
    def _read(self) -> tuple[Poly, Mapping[str, str], tuple[Index, ...]]:
        op, spoken = canonical(self.operation)
        lets: Lets = flatten_operation(op, spoken)
        (output,) = op.outputs
        let = lets[output]
        return opened(let.body, lets.definition), spoken, let.formals

    @property
    def body(self) -> Poly:
        """The flat form of the equation."""
        return self._read[0]

    @property
    def names(self) -> Mapping[str, str]:
        """The names of the flat form, and what they are called here."""
        return self._read[1]

    @property
    def formals(self) -> tuple[Index, ...]:
        """The indices of the flat form."""
        return self._read[2]

    def code(self, arguments: Mapping[str, Code]) -> Code:
        """The call of these arguments."""
        return replaced(
            _code(ast.parse(self.call, mode="eval").body),
            {Name(name): code for name, code in arguments.items()},
        )


def _code(e: ast.expr) -> Code:
    """A Python call as code."""
    match e:
        case ast.Name(id):
            return Name(id)
        case ast.Attribute(obj, name):
            return Attribute(_code(obj), name)
        case ast.Constant(str(value)):
            return Literal(f'"{value}"')
        case ast.Constant() | ast.UnaryOp(operand=ast.Constant()):
            return Literal(ast.unparse(e))
        case ast.Call(ast.Attribute(ast.Name(obj), name), args, keywords) if obj != "torch":
            return Method(Name(obj), name, (*map(_code, args), *map(_keyword, keywords)))
        case ast.Call(func, args, keywords):
            return Function(ast.unparse(func), (*map(_code, args), *map(_keyword, keywords)))
    raise TypeError(f"no code for {ast.unparse(e)}")


def _keyword(k: ast.keyword) -> Code:
    assert k.arg is not None
    return Keyword(k.arg, _code(k.value))
