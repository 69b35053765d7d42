"""Flops of operations of torch, and the steps that some take before their last."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from derive.algebra.poly import ZERO, Poly, add, mul, scale
from derive.program import shape_rules
from derive.program.shape_rules import Shape, along, elements

Flops = Callable[..., Poly]
"""Of the shape of the result and the arguments, tensors being given by their shapes."""

Steps = Iterable[tuple[Shape, Poly]]
"""The shape of a result and the flops that it takes, one after another."""

# -------------------------------------------------------------------- flops


def none(result: Shape, *_: Any, **__: Any) -> Poly:
    return ZERO


def each(result: Shape, *_: Any, **__: Any) -> Poly:
    """1 for each element of the result."""
    return elements(result)


def of(argument: int) -> Flops:
    """1 for each element of an argument: what a reduction takes in, or what is added."""
    return lambda result, *args, **_: elements(args[argument])


def matmul(result: Shape, a: Shape, b: Shape) -> Poly:
    return scale(mul(elements(result), a[-1]), 2)


def addmm(result: Shape, _: Shape, a: Shape, b: Shape, **__: Any) -> Poly:
    return matmul(result, a, b)


def einsum(result: Shape, equation: str, *operands: Shape) -> Poly:
    return scale(elements(shape_rules.einsum_sizes(equation, *operands).values()), 2)


def conv(result: Shape, x: Shape, w: Shape, *_: Any, **__: Any) -> Poly:
    return scale(mul(elements(result), *w[1:]), 2)


def conv_transpose(result: Shape, y: Shape, w: Shape, *_: Any, **__: Any) -> Poly:
    """2 for each weight at each place of each example; the channels of y are in the weights."""
    return scale(mul(*y[:1], *y[2:], *w), 2)


def conv_input(result: Shape, _: Shape, w: Shape, y: Shape, **__: Any) -> Poly:
    return conv_transpose(result, y, w)


def conv_weight(result: Shape, _: Shape, w: Shape, y: Shape, **__: Any) -> Poly:
    return conv_transpose(result, y, w)


def pool(axes: int) -> Flops:
    return lambda result, _, kernel_size, *__, **___: mul(
        elements(result), *along(kernel_size, axes)
    )


def spread(axes: int) -> Flops:
    return lambda _, y, __, kernel_size, *___: mul(elements(y), *along(kernel_size, axes))


def recurrence(result: Shape, *_: Any) -> Poly:
    """Products and sums of every pair, then of every pair of pairs, and so on: 5 for each."""
    return scale(elements(result), 5)


def normalised(result: Shape, *_: Any, **__: Any) -> Poly:
    """A difference, two sums, a product and what is added, for each element."""
    return scale(elements(result), 5)


def attended(_: Shape, q: Shape, k: Shape, v: Shape, *__: Any) -> Poly:
    """The products with keys and with values."""
    return scale(mul(elements(q[:-1]), k[-2], add(q[-1], v[-1])), 2)


def attended_gradients(_: Shape, __: Shape, q: Shape, k: Shape, v: Shape, *___: Any) -> Poly:
    """The scores once more, then two products for each of what they and the means are made of."""
    return scale(mul(elements(q[:-1]), k[-2], add(scale(q[-1], 3), scale(v[-1], 2))), 2)


# -------------------------------------------------------------------- steps before the last


def no_step(*_: Any, **__: Any) -> Steps:
    return ()


def before_others(x: Shape, dim: Any) -> Steps:
    """Two joins, two running products, three reversals."""
    yield shape_rules.reduce(x, dim, True), ZERO
    for flops in (0, 1, 0, 0, 1, 0):
        yield x, scale(elements(x), flops)


def before_product(x: Shape, dim: Any) -> Steps:
    """A join."""
    yield shape_rules.reduce(x, dim, True), ZERO
    yield x, ZERO


def before_decay(x: Shape, level: Shape, dim: Any) -> Steps:
    """A clamp, a difference, its negative and its exponential."""
    return [(level, elements(level))] * 4
