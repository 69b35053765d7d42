"""Flops of torch operations, and the steps of some before their last one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from derive.algebra.poly import ZERO, Poly, add, mul, scale
from derive.program import shape_rules
from derive.program.shape_rules import Shape, along, elements

Flops = Callable[..., Poly]
"""A function of the result's shape and the arguments; tensors are given by their shapes."""

Steps = Iterable[tuple[Shape, Poly]]
"""(shape of a result, its flops), one after another."""

# -------------------------------------------------------------------- flops


def none(result: Shape, *_: Any, **__: Any) -> Poly:
    return ZERO


def per_result_element(result: Shape, *_: Any, **__: Any) -> Poly:
    """Return 1 flop per element of the result."""
    return elements(result)


def per_argument_element(argument: int) -> Flops:
    """Return 1 flop per element of an argument: the operand of a reduction, or the added source."""
    return lambda result, *args, **_: elements(args[argument])


def per_element(count: int) -> Flops:
    """Return so many flops per element of the result."""
    return lambda result, *_, **__: scale(elements(result), count)


recurrence = per_element(5)
"""A recurrence is combined in pairs."""
sorting = per_element(20)
"""A sort compares."""
normalised = per_element(5)
"""A difference, two sums, a product and an addition."""


def matmul(result: Shape, a: Shape, *_: Any) -> Poly:
    return scale(mul(elements(result), a[-1]), 2)


def addmm(result: Shape, _: Shape, a: Shape, b: Shape, **__: Any) -> Poly:
    return matmul(result, a, b)


def tensordot(result: Shape, a: Shape, b: Shape, _: Any) -> Poly:
    """Return 2 flops per element of the operand that has the axes of the result."""
    return scale(elements(a if len(a) >= len(b) else b), 2)


def einsum(result: Shape, equation: str, *operands: Shape) -> Poly:
    return scale(elements(shape_rules.einsum_sizes(equation, *operands).values()), 2)


def conv(result: Shape, x: Shape, w: Shape, *_: Any, **__: Any) -> Poly:
    return scale(mul(elements(result), *w[1:]), 2)


def conv_transpose(result: Shape, y: Shape, w: Shape, *_: Any, **__: Any) -> Poly:
    """Return 2 flops per weight, place and example; the weights include the channels of y."""
    return scale(mul(*y[:1], *y[2:], *w), 2)


def conv_gradient(result: Shape, _: Shape, w: Shape, y: Shape, **__: Any) -> Poly:
    return conv_transpose(result, y, w)


def pool(axes: int) -> Flops:
    return lambda result, _, size, *__, **___: mul(elements(result), *along(size, axes))


def spread(axes: int) -> Flops:
    return lambda _, y, __, kernel_size, *___: mul(elements(y), *along(kernel_size, axes))


def attended(_: Shape, q: Shape, k: Shape, v: Shape, *__: Any) -> Poly:
    """Return the flops of the products with keys and with values."""
    return scale(mul(elements(q[:-1]), k[-2], add(q[-1], v[-1])), 2)


def attended_gradients(_: Shape, __: Shape, q: Shape, k: Shape, v: Shape, *___: Any) -> Poly:
    """Return the flops of the scores, then of two products for each factor of scores and means."""
    return scale(mul(elements(q[:-1]), k[-2], add(scale(q[-1], 3), scale(v[-1], 2))), 2)


# -------------------------------------------------------------------- steps before the last


def before_others(x: Shape, dim: Any) -> Steps:
    """Yield two joins, two running products, and three reversals."""
    yield shape_rules.reduce(x, dim, True), ZERO
    for flops in (0, 1, 0, 0, 1, 0):
        yield x, scale(elements(x), flops)


def before_product(x: Shape, dim: Any) -> Steps:
    """Yield a join."""
    yield shape_rules.reduce(x, dim, True), ZERO
    yield x, ZERO


def before_decay(x: Shape, level: Shape, dim: Any) -> Steps:
    """Return a clamp, a difference, its negative and its exponential."""
    return [(level, elements(level))] * 4
