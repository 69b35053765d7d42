"""Lowers nested equations to torch code.

Every expression is lowered in a layout: the order of the outer indices. A tensor is permuted and
gets size-1 axes only as far as broadcasting needs. Conditions become masks of ``torch.where``,
never factors 0 and 1, since 0*nan is nan. A read at computed positions is a gather; a delta that
no sum eliminated is a scatter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from derive.algebra.expr import (
    Access,
    Add,
    Call,
    Const,
    Delta,
    Expr,
    Guard,
    Index,
    Iverson,
    Mul,
    Num,
    Param,
    Pow,
    Reduce,
    Size,
    Where,
    factors_of,
    free_indices,
)
from derive.algebra.factor import factor
from derive.algebra.poly import Poly
from derive.algebra.squares import Nonnegative, RobustCenter
from derive.algebra.substitution import rename_apart, substitute
from derive.calculus.lets import Let
from derive.calculus.softmax import NormalizedExp, recognise
from derive.errors import LoweringError
from derive.kernels.kernel_spec import AttentionResult, Kernel, KernelResult
from derive.kernels.recognise import with_kernels
from derive.lowering.ground.axis_order import renaming
from derive.lowering.ground.context import Scope, fraction_value
from derive.lowering.ground.guard_lowering import kept_below
from derive.lowering.ground.numbers import over_positions
from derive.lowering.ground.summation import Summation
from derive.lowering.ground.value import Indices, Value
from derive.lowering.nodes.access import lower_access
from derive.lowering.nodes.additions import lower_addition
from derive.lowering.nodes.calls import lower_call, lower_normal
from derive.lowering.nodes.conditions import lower_condition
from derive.lowering.nodes.kernels import lower_attended, lower_kernel, lower_part
from derive.lowering.nodes.products import lower_product
from derive.lowering.nodes.sums import lower_reduction, lower_sum
from derive.notation.operation import Kind
from derive.program.torch_ir import (
    Binary,
    Dim,
    FunctionCall,
    Keyword,
    Literal,
    MethodCall,
    Name,
    literal,
)


@dataclass
class Lowering(Scope):
    """A scope that lowers every kind of node."""

    _conditions: dict[tuple[Expr, tuple[Index, ...]], Value] = field(default_factory=dict)
    """Cached conditions: the guard of each read contains the condition of its mask."""

    def definition(self, let: Let) -> Value:
        """Return the code of a let with all of its axes at full size."""
        value = self._plain(let) if let.kind == "sum" else lower_reduction(self, let)
        if let.dtype == "float" and value.kind != "float":
            value = self.as_float(value)
        elif let.dtype == "int" and value.kind != "int":
            # A condition, or an integer-valued function that torch computes on floats.
            if not value.scalar:
                value = value.call("to", Name("torch.int64"))
            value = replace(value, kind="int")
        if let.name in self.adjoints:
            missing = frozenset(i.extent for i in let.formals if i not in value.axes)
            value = replace(value, code=over_positions(value.code, missing))
        return self.frame.expand(value, let.formals, self.like)

    def _plain(self, let: Let) -> Value:
        body = self.nested(let.body)
        if let.dtype == "bool" and isinstance(body, Iverson | Delta):
            return self.condition(body, let.formals)
        return self.lower(body, let.formals)

    def nested(self, body: Expr) -> Expr:
        """Return a flat body in the nested form in which it is computed."""
        if isinstance(body, Poly) and self.kernels:
            body = with_kernels(body, self.kernels, self.find)
        return factor(recognise(body, self.find, self.absent))

    def lower(self, e: Expr, order: Indices) -> Value:
        """Return the code of e, which fits ``order``; ``order`` contains every free index of e."""
        if isinstance(e, Add | Mul | Pow | Call):
            # Combine small tensors before broadcasting them over the outer axes.
            free = free_indices(e)
            order = [i for i in order if i in free]
        if type(e) not in _NODES:
            raise LoweringError(f"no torch code for {e!r}")
        return _NODES[type(e)](self, e, order)

    def condition(self, e: Expr, order: Indices) -> Value:
        key = e, tuple(order)
        if key not in self._conditions:
            self._conditions[key] = lower_condition(self, e, order)
        return self._conditions[key]


def _param(scope: Scope, e: Param, order: Indices) -> Value:
    kind: Kind = "int" if e.name in scope.integers else "float"
    return Value(Name(e.name), kind=kind, scalar=True)


def _guard(scope: Scope, e: Guard, order: Indices) -> Value:
    inner = scope.lower(e.position, order)
    bound = kept_below(e)
    if bound is not None and inner.kind == "float" and not inner.scalar:
        return inner.call("clamp", Keyword("max", scope.lower(bound, order).code))
    test = scope.condition(e.condition, order)
    return scope.where(test, inner, scope.lower(e.elsewhere, order), order, foreseen=True)


def _lower_where(scope: Scope, e: Where, order: Indices) -> Value:
    branches = scope.lower(e.then, order), scope.lower(e.other, order)
    return scope.where(scope.condition(e.condition, order), *branches, order)


def _lower_sum_node(scope: Scope, e: Reduce, order: Indices) -> Value:
    if e.kind != "sum":
        raise LoweringError(f"no torch code for {e!r}")
    own = rename_apart(e.indices, order)
    body = substitute(e.body, renaming(e.indices, own))
    return lower_sum(scope, Summation(own, factors_of(body), tuple(order)))


def _centre(scope: Scope, e: RobustCenter, order: Indices) -> Value:
    """Return the mean unless it is small beside the spread; comparisons with nan or inf fail."""
    mean, square = scope.lower(e.mean, order), scope.lower(e.square, order)
    twice = Binary("*", literal(2), MethodCall(mean.code, "square"))
    near = Binary(">", twice, square.code)
    return replace(mean, code=FunctionCall("torch.where", (near, mean.code, literal(0))))


_NODES: dict[type[Expr], Callable[[Scope, Any, Indices], Value]] = {
    Num: lambda scope, e, order: fraction_value(e.value),
    Const: lambda scope, e, order: Value(Literal(f"math.{e.name}"), scalar=True),
    Size: lambda scope, e, order: Value(Dim(e.extent), kind="int", scalar=True),
    Param: _param,
    Index: lambda scope, e, order: scope.positions(e),
    Access: lambda scope, e, order: lower_access(scope, e),
    Guard: _guard,
    Add: lambda scope, e, order: lower_addition(scope, e.args, order),
    Mul: lambda scope, e, order: lower_product(scope, e.args, order),
    Pow: lambda scope, e, order: lower_product(scope, (e,), order),
    Delta: lambda scope, e, order: lower_product(scope, (e,), order),
    Call: lower_call,
    Where: _lower_where,
    Iverson: lambda scope, e, order: scope.as_float(scope.condition(e.condition, order)),
    Reduce: _lower_sum_node,
    Nonnegative: lambda scope, e, order: scope.lower(e.body, order).call("clamp_min", literal(0)),
    RobustCenter: _centre,
    NormalizedExp: lower_normal,
    Kernel: lower_kernel,
    KernelResult: lower_part,
    AttentionResult: lower_attended,
}
"""The lowering of each kind of node."""
