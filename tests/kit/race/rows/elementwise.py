"""Functions of each element, and activations."""

import math

import torch
from kit.race.row import Draw, Function, Make, Row, of_torch
from torch import Tensor
from torch.nn import functional as F


def normal(draw: Draw, *shape: int) -> list[Tensor | None]:
    return [draw.normal(*shape)]


def two(draw: Draw, *shape: int) -> list[Tensor | None]:
    return [draw.normal(*shape), draw.normal(*shape)]


def positive(draw: Draw, *shape: int) -> list[Tensor | None]:
    return [draw.between(0.5, 2, *shape)]


def share(draw: Draw, *shape: int) -> list[Tensor | None]:
    return [draw.between(-0.9, 0.9, *shape)]


def wide(draw: Draw, *shape: int) -> list[Tensor | None]:
    """On both sides of the kinks of all activations."""
    return [3 * draw.normal(*shape)]


def prelu(draw: Draw, *shape: int) -> list[Tensor | None]:
    return [draw.normal(*shape), draw.between(0.1, 0.7, shape[1])]


def powers(draw: Draw, *shape: int) -> list[Tensor | None]:
    return [draw.between(0.5, 2, *shape), draw.normal(*shape)]


def chosen(draw: Draw, *shape: int) -> list[Tensor | None]:
    return [draw.coin(*shape), *two(draw, *shape)]


def masked(draw: Draw, *shape: int) -> list[Tensor | None]:
    return [draw.normal(*shape), draw.coin(*shape)]


FUNCTIONS: dict[str, Function] = {
    "sigmoid": lambda x: 1 / (1 + torch.exp(-x)),
    "relu": lambda x: x.clamp(min=0),
    "square": lambda x: x * x,
}
"""Of one tensor of any values: how a person would write them otherwise."""

ACTIVATIONS: dict[str, Function] = {
    "gelu": lambda x: 0.5 * x * (1 + torch.erf(x / math.sqrt(2))),
    "silu": lambda x: x * torch.sigmoid(x),
    "mish": lambda x: x * torch.tanh(F.softplus(x)),
    "elu": lambda x: torch.where(x > 0, x, torch.expm1(x)),
    "selu": lambda x: 1.0507009873554805 * F.elu(x, 1.6732632423543772),
    "celu": lambda x: x.clamp(min=0) + torch.expm1(x.clamp(max=0)),
    "leaky_relu": lambda x: torch.where(x > 0, x, 0.01 * x),
    "hardtanh": lambda x: x.clamp(-1, 1),
    "relu6": lambda x: x.clamp(0, 6),
    "hardsigmoid": lambda x: (x + 3).clamp(0, 6) / 6,
    "hardswish": lambda x: x * (x + 3).clamp(0, 6) / 6,
    "softsign": lambda x: x / (1 + x.abs()),
    "tanhshrink": lambda x: x - torch.tanh(x),
    "softshrink": lambda x: x.sign() * (x.abs() - 0.5).clamp(min=0),
    "hardshrink": lambda x: torch.where(x.abs() > 0.5, x, 0),
    "softplus": lambda x: x.clamp(min=0) + torch.log1p(torch.exp(-x.abs())),
    "logsigmoid": lambda x: x.clamp(max=0) - torch.log1p(torch.exp(-x.abs())),
}

LEVEL = {"level": 0.5, "value": 0.25}
NAMES: dict[Make, str] = {
    normal: "exp expm1 sin cos tanh erf abs tan atan sinh cosh erfc sign floor",
    positive: "log log1p sqrt rsqrt lgamma digamma",
    share: "asin acos",
}
ROWS = (
    *(of_torch(name, make) for make, names in NAMES.items() for name in names.split()),
    *(of_torch(name, normal, composite) for name, composite in FUNCTIONS.items()),
    *(Row(name, wide, getattr(F, name), composite) for name, composite in ACTIVATIONS.items()),
    Row("relu_squared", wide, composite=lambda x: F.relu(x).square()),
    Row("prelu", prelu, F.prelu, lambda x, w: torch.where(x > 0, x, w * x)),
    Row("glu", wide, F.glu, lambda x: x.chunk(2, -1)[0] * torch.sigmoid(x.chunk(2, -1)[1])),
    Row("swiglu", two, composite=lambda x, gate: x * F.silu(gate)),
    Row("geglu", two, composite=lambda x, gate: x * F.gelu(gate)),
    of_torch("pow", powers, lambda x, y: torch.exp(y * torch.log(x))),
    of_torch("atan2", two),
    of_torch("maximum", two, lambda x, y: torch.where(x > y, x, y)),
    of_torch("minimum", two, lambda x, y: torch.where(x < y, x, y)),
    of_torch("threshold", wide, lambda x: torch.where(x > 0.5, x, 0.25), LEVEL),
    of_torch(
        "clamp",
        normal,
        lambda x: torch.where(x < -0.5, -0.5, torch.where(x > 0.5, 0.5, x)),
        {"lo": -0.5, "hi": 0.5},
    ),
    of_torch("where", chosen, lambda m, x, y: m * x + ~m * y),
    of_torch("masked_fill", masked, lambda x, m: torch.where(m, 0.5, x), {"value": 0.5}),
)
