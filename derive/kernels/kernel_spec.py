"""A fused kernel of torch as data: an equation, and the call that computes it."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from derive.algebra.expr import Expr, Index, Num, Where
from derive.algebra.functions import FUNCTIONS, POWERS
from derive.algebra.hashcons import node
from derive.algebra.poly import Poly
from derive.calculus.alpha_renaming import canonical
from derive.calculus.build_lets import flatten_operation
from derive.calculus.lets import Lets
from derive.kernels.instantiate import opened
from derive.notation.operation import Operation
from derive.program.torch_ir import (
    Attribute,
    Binary,
    Code,
    FunctionCall,
    Keyword,
    Literal,
    MethodCall,
    Name,
    Unary,
    replaced,
)

Axes = tuple[Index, ...]


@node
class Kernel(Expr):
    """What the kernel of a row computes of these arguments, those of its equation in order.

    ``along`` are the indices that the kernel sums over: it reads its arguments at all of their
    values. ``binders`` are those of them that the result lacks.
    """

    name: str
    args: tuple[Expr, ...]
    along: tuple[Index, ...] = ()
    binders: tuple[Index, ...] = ()

    def bound(self) -> tuple[Index, ...]:
        return self.binders


@node
class KernelResult(Expr):
    """One result of the kernel of a row that has several.

    ``axes`` are those of its first argument, in order, ``along`` the ones that the kernel sums
    over; ``binders`` are those that this result lacks. ``others`` are what the other results are
    called.
    """

    name: str
    number: int
    args: tuple[Expr, ...]
    axes: tuple[Index, ...]
    along: tuple[Index, ...]
    binders: tuple[Index, ...] = ()
    others: tuple[Expr, ...] = ()

    def bound(self) -> tuple[Index, ...]:
        return self.binders


@node
class Attended(Expr):
    """One result of a kernel of means that are weighted by a softmax of products.

    ``batch`` are the indices that the letter b of its row stands for, and ``ends`` those of i, j, d
    and e; ``binders`` are those of them that this result lacks. ``others`` are what the other
    results are called.
    """

    name: str
    number: int
    args: tuple[Expr, ...]
    batch: tuple[Index, ...]
    ends: tuple[Index, ...]
    binders: tuple[Index, ...]
    others: tuple[Expr, ...] = ()

    def bound(self) -> tuple[Index, ...]:
        return self.binders

    @property
    def home(self) -> Mapping[str, tuple[Index, ...]]:
        """What each letter of the row stands for."""
        return {
            "b": self.batch,
            **{letter: (i,) for letter, i in zip("ijde", self.ends, strict=True)},
        }


@dataclass(frozen=True)
class KernelSpec:
    """A kernel: what it computes, in the notation of specs, and the Python call of it.

    All axes are told that the kernel sums over, by whose letters the call names their places; it
    takes any others beside them. So does one that reads at the place that an integer says; what is
    ``shared`` has no axis beside and may be None, which is 1, and ``size`` is how long its axis is.
    A ``cotangent`` is the argument that the result is linear in,
    which may be a product or a sum: a row with one is for the backward. Where the parameters are
    not in the ``domain``, a condition, the kernel is an error or computes something else.
    """

    name: str
    equation: str
    call: str
    cotangent: str = ""
    domain: str = ""
    statistics: tuple[str, ...] = ()
    """The arguments that are results of another kernel, in the form that it gives them in."""
    shared: str = ""

    @cached_property
    def operation(self) -> Operation:
        """The equation, read."""
        from derive.notation.text_form import operation_of

        return operation_of(self.equation)

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
    def condition(self) -> Expr | None:
        """The domain, of the parameters as the equation names them."""
        if not self.domain:
            return None
        from derive.notation.text_form import operation_of

        numbers = ", ".join(f"{p.name}=1.0" for p in self.operation.parameters)
        (read,) = operation_of(f"op domain(x; {numbers})\ny = where({self.domain}, x, 0)").equations
        assert isinstance(read.body, Where)
        return read.body.condition

    @cached_property
    def along(self) -> tuple[Index, ...]:
        """The indices of the first result, all of which the kernel sums over."""
        op = self.operation
        output = next(e for e in op.equations if e.name == op.outputs[0])
        return tuple(i for i in output.axes if isinstance(i, Index))

    @cached_property
    def lengths(self) -> Mapping[Index, int]:
        """The indices whose number of values the equation says, and that number."""
        sizes = {e.name: e.size.value for e in self.operation.extents if isinstance(e.size, Num)}
        axes = dict.fromkeys(i for t in self.operation.inputs for i in t.axes)
        own = (i for i in axes if isinstance(i, Index) and i.extent in sizes)
        return {i: int(sizes[i.extent]) for i in own}

    @cached_property
    def places(self) -> tuple[Index, ...]:
        """The indices by whose letters the call names the places of axes."""
        read = (i for t in self.operation.inputs if t.name == self.shared for i in t.axes)
        own = (i for i in read if isinstance(i, Index))
        return tuple(dict.fromkeys((*self.along, *self.lengths, *own)))

    @cached_property
    def arguments(self) -> tuple[str, ...]:
        """The names of the equation's inputs and parameters."""
        op = self.operation
        return tuple(x.name for x in (*op.inputs, *op.parameters))

    @cached_property
    def _read(self) -> tuple[Mapping[str, tuple[Poly, Axes]], Mapping[str, str]]:
        op, display_names = canonical(self.operation)
        lets: Lets = flatten_operation(op, display_names)
        found = (lets[name] for name in op.outputs)
        return {
            display_names[let.name]: (opened(let.body, lets.definition), let.formals)
            for let in found
        }, display_names

    @property
    def parts(self) -> Mapping[str, tuple[Poly, Axes]]:
        """The flat form and the indices of each result."""
        return self._read[0]

    @property
    def body(self) -> Poly:
        """The flat form of the equation."""
        return next(iter(self.parts.values()))[0]

    @property
    def names(self) -> Mapping[str, str]:
        """The names of the flat form, and what they are called here."""
        return self._read[1]

    @property
    def formals(self) -> tuple[Index, ...]:
        """The indices of the flat form."""
        return next(iter(self.parts.values()))[1]

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
        case ast.UnaryOp(ast.USub(), operand):
            return Unary("-", _code(operand))
        case ast.BinOp(left, ast.Div(), right):
            return Binary("/", _code(left), _code(right))
        case ast.Call(ast.Attribute(ast.Name(obj), name), args, keywords) if obj != "torch":
            return MethodCall(Name(obj), name, (*map(_code, args), *map(_keyword, keywords)))
        case ast.Call(ast.Attribute(ast.Call() as obj, name), args):
            return MethodCall(_code(obj), name, tuple(map(_code, args)))
        case ast.Call(func, args, keywords):
            return FunctionCall(ast.unparse(func), (*map(_code, args), *map(_keyword, keywords)))
    raise TypeError(f"no code for {ast.unparse(e)}")


def _keyword(k: ast.keyword) -> Code:
    assert k.arg is not None
    return Keyword(k.arg, _code(k.value))
