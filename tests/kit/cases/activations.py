"""Activations of each element, beside torch.nn.functional."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from kit.cases.case import Case, distinct, uniform
from torch.nn import functional as F

OWN: dict[str, Callable[..., Any]] = {
    **{
        name: getattr(F, name)
        for name in (
            *("gelu silu mish elu selu celu leaky_relu prelu hardtanh relu6 hardswish".split()),
            *("softsign tanhshrink softshrink hardshrink glu".split()),
        )
    },
    "relu_squared": lambda x: F.relu(x).square(),
    # torch's own has the slope 1/6 in single precision.
    "hardsigmoid": lambda x: F.relu6(x + 3) / 6,
    "threshold": lambda x, level, value: F.threshold(x, level, value),
    "swiglu": lambda x, gate: x * F.silu(gate),
    "geglu": lambda x, gate: x * F.gelu(gate),
}

# torch's own computes with 1/alpha in single precision: exact for these.
OPTIONS: dict[str, tuple[dict[str, Any], ...]] = {
    "gelu": ({}, {"approximate": "tanh"}),
    "elu": ({}, {"alpha": 0.7}),
    "celu": ({}, {"alpha": 0.5}),
    "leaky_relu": ({}, {"negative_slope": 0.3}),
    "hardtanh": ({}, {"min_val": -0.6, "max_val": 1.7}),
    "softshrink": ({}, {"lambd": 1.1}),
    "hardshrink": ({}, {"lambd": 1.1}),
    "threshold": ({"level": 0.4, "value": -2.0},),
}
ELEMENTWISE = (
    *("gelu silu mish elu selu celu leaky_relu relu_squared hardtanh relu6 hardsigmoid".split()),
    *("hardswish softsign tanhshrink softshrink hardshrink threshold".split()),
)


def spread(shape: tuple[int, ...]) -> torch.Tensor:
    """Values on both sides of the kinks of all activations, and on none."""
    return 5 * distinct(shape)


def activations() -> Iterator[Case]:
    for name in ELEMENTWISE:
        for options in OPTIONS.get(name, ({},)):
            for shape in ((3, 4), (), (2, 3, 5)):
                yield Case(
                    name,
                    " ".join([f"{list(shape)}", *(f"{k}={v}" for k, v in options.items())]),
                    [spread(shape)],
                    options,
                )
    for shape in ((3, 4), (2, 3, 4), (2, 4, 3, 5)):
        yield Case("prelu", f"{list(shape)}", [spread(shape), uniform((shape[1],), 0.1, 0.7, 1)])
    for shape, dim in (((3, 4), -1), ((3, 4), 1), ((6, 5), 0), ((2, 4, 3), 1), ((6,), 0)):
        yield Case("glu", f"{list(shape)} dim={dim}", [spread(shape)], {"dim": dim})
    for name in ("swiglu", "geglu"):
        for shape in ((3, 4), (), (2, 3, 5)):
            yield Case(name, f"{list(shape)}", [distinct(shape), spread(shape)])
