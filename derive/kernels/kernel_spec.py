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
from derive.calculus.guard_insertion import make_safe
from derive.calculus.lets import Lets
from derive.kernels.instantiate import expand_names
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
    """The result of a kernel applied to these arguments, in the order of its equation.

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
    """One result of a kernel that has several.

    ``axes`` are those of its first argument, in order, ``along`` the ones that the kernel sums
    over; ``binders`` are those that this result lacks. ``others`` are the names of the other
    results.
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
class AttentionResult(Expr):
    """One result of an attention kernel.

    ``batch`` are the indices for the letter b of its equation, and ``ends`` those for i, j, d and
    e; ``binders`` are those of them that this result lacks. ``others`` are the names of the other
    results.
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
        """The indices for each letter of the equation."""
        return {
            "b": self.batch,
            **{letter: (i,) for letter, i in zip("ijde", self.ends, strict=True)},
        }


@dataclass(frozen=True)
class KernelSpec:
    """A kernel: its equation in the notation of specs, and its Python call.

    The equation names all axes that the kernel sums over, and the call uses their letters as
    positions of axes; the kernel maps over any other axes. The same holds for the axis that a
    gather kernel indexes by an integer tensor. A ``shared`` argument has no mapped axes and may be
    None, which means 1; ``size`` in the call is the length of its axis. A ``cotangent`` is the
    argument that the result is linear in, which may be a product or a sum; a kernel with one is for
    the backward. If the parameters violate ``domain``, a condition, the kernel raises an error or
    computes something else.
    """

    name: str
    equation: str
    call: str
    cotangent: str = ""
    domain: str = ""
    statistics: tuple[str, ...] = ()
    """The arguments that are results of another kernel, in the format of that kernel."""
    shared: str = ""

    @cached_property
    def operation(self) -> Operation:
        """The parsed equation."""
        from derive.notation.text_form import operation_of

        return operation_of(self.equation)

    @property
    def states(self) -> str:
        """The equation in one line."""
        lines = self.equation.splitlines()
        return "; ".join(line for line in lines if not line.startswith("op "))

    @cached_property
    def functions(self) -> frozenset[str]:
        """The functions that the equation calls, which also occur in its flat form."""
        words = re.findall(r"\w+(?=\()", self.equation)
        return frozenset(word for word in words if word in FUNCTIONS and word not in POWERS)

    @cached_property
    def condition(self) -> Expr | None:
        """The domain, over the parameters of the equation."""
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
        """The indices of fixed size in the equation, with that size."""
        sizes = {e.name: e.size.value for e in self.operation.extents if isinstance(e.size, Num)}
        axes = dict.fromkeys(i for t in self.operation.inputs for i in t.axes)
        own = (i for i in axes if isinstance(i, Index) and i.extent in sizes)
        return {i: int(sizes[i.extent]) for i in own}

    @cached_property
    def places(self) -> tuple[Index, ...]:
        """The indices whose letters the call uses as positions of axes."""
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
        make_safe(lets, frozenset(op.outputs))
        found = (lets[name] for name in op.outputs)
        return {
            display_names[let.name]: (expand_names(let.body, lets.definition), let.formals)
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
        """Map the canonical names of the flat form to the equation's names."""
        return self._read[1]

    @property
    def formals(self) -> tuple[Index, ...]:
        """The indices of the flat form."""
        return next(iter(self.parts.values()))[1]

    def code(self, arguments: Mapping[str, Code]) -> Code:
        """The call of these arguments."""
        return replaced(
            _parse_call(ast.parse(self.call, mode="eval").body),
            {Name(name): code for name, code in arguments.items()},
        )


_MODULES = ("torch", "rt")


def _parse_call(e: ast.expr) -> Code:
    """A Python call as code."""
    match e:
        case ast.Name(id):
            return Name(id)
        case ast.Attribute(obj, name):
            return Attribute(_parse_call(obj), name)
        case ast.Constant(str(value)):
            return Literal(f'"{value}"')
        case ast.Constant() | ast.UnaryOp(operand=ast.Constant()):
            return Literal(ast.unparse(e))
        case ast.UnaryOp(ast.USub(), operand):
            return Unary("-", _parse_call(operand))
        case ast.BinOp(left, ast.Div(), right):
            return Binary("/", _parse_call(left), _parse_call(right))
        case ast.Call(ast.Attribute(ast.Name(obj), name), args, keywords) if obj not in _MODULES:
            return MethodCall(Name(obj), name, (*map(_parse_call, args), *map(_keyword, keywords)))
        case ast.Call(ast.Attribute(ast.Call() as obj, name), args):
            return MethodCall(_parse_call(obj), name, tuple(map(_parse_call, args)))
        case ast.Call(func, args, keywords):
            return FunctionCall(
                ast.unparse(func), (*map(_parse_call, args), *map(_keyword, keywords))
            )
    raise TypeError(f"no code for {ast.unparse(e)}")


def _keyword(k: ast.keyword) -> Code:
    assert k.arg is not None
    return Keyword(k.arg, _parse_call(k.value))
