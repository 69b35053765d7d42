"""Additions fused into the call of a product, which saves passes.

    conv(X, W)[n, o, t] + b[o]  =  conv(X, W, b)[n, o, t]

A number times a matrix product, added to a tensor, is one call instead of three passes:

    C + c*(A @ B)  =  torch.addmm(C, A, B, alpha=c)           two axes each
    C + c*(A @ B)  =  torch.baddbmm(C, A, B, alpha=c)         three axes each, the first shared

c is a literal of the equation. A parameter may be 0, and then torch reads neither A nor B, so
that a nan in them is lost: 0*nan is nan. The same holds for a factor of C. Without a number,
``A @ B + C`` costs only one more pass, and is more readable. If no graph is needed, both are one
call too: ``derive.program.gemm_fusion``.
"""

from __future__ import annotations

from dataclasses import replace

from derive.algebra.expr import Expr, Mul, Num, Reduce, free_indices
from derive.lowering.ground.context import Scope
from derive.lowering.ground.value import Indices, Value, broadcast
from derive.lowering.ground.views import flattened
from derive.program.torch_ir import Binary, Code, FunctionCall, Keyword, Literal, MethodCall, Tuple
from derive.program.torch_ops import ADDED_PRODUCTS


def is_scaled_product(e: Expr, order: Indices) -> bool:
    """True if e is c * Sum_k a(.., i, k)*b(.., k, j), with all axes of the order."""
    match e:
        case Mul((Num(c), Reduce("sum", (k,), Mul((a, b))))) if c != 0:
            ends = free_indices(a) - {k}, free_indices(b) - {k}
            both = ends[0] & ends[1]
            alike = k in free_indices(a) and k in free_indices(b)
            sizes = {len(end - both) for end in ends}
            plain = not any(i.group for i in (k, *order))
            whole = ends[0] | ends[1] == set(order) and len(order) == 2 + len(both)
            return alike and plain and whole and sizes == {1} and len(order) in ADDED_PRODUCTS
    return False


def added_product(total: Value, product: Value, sign: int) -> Value | None:
    """Return total + sign*product as one call, if the product has the form above."""
    match product.code:
        case Binary("*", Literal() as c, Binary("@", a, b)) if not total.scalar:
            alpha = c if sign > 0 else Literal(f"-{c.text}")
            name = ADDED_PRODUCTS[len(product.axes)]
            code = FunctionCall(name, (total.code, a, b, Keyword("alpha", alpha)))
            return replace(product, code=code, axes=broadcast(total.axes, product.axes))
    return None


_CONVOLUTIONS = {
    f"torch.nn.functional.{name}{n}d": n for name in ("conv", "conv_transpose") for n in (1, 2, 3)
}
"""The number of axes along which each runs."""


def biased(scope: Scope, value: Value, bias: Value) -> Value | None:
    """Return value + bias as one call, if value is a convolution and bias has only its channels."""
    match value.code:
        case MethodCall(
            FunctionCall(name, (x, w, *how)) as call, "unflatten", (_, Tuple(sizes)) as split
        ):
            count = len(sizes)
        case FunctionCall(name, (x, w, *how)) as call:
            split, count = (), 1
        case _:
            return None
    if name not in _CONVOLUTIONS or not all(isinstance(k, Keyword) for k in how):
        return None
    end = len(value.axes) - _CONVOLUTIONS[name]
    channels = value.axes[end - count : end]
    if bias.scalar or bias.kind != "float" or bias.indices != channels:
        return None
    flat = flattened(scope.frame.squeeze(bias).code, 0, count - 1)
    code: Code = FunctionCall(call.name, (x, w, flat, *how))
    return replace(value, code=MethodCall(code, "unflatten", split) if split else code)
