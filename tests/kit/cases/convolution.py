"""Convolutions and pooling."""

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

from kit.cases.case import Case, distinct, uniform
from torch import Tensor
from torch.nn import functional as F


def same(x: Tensor, weight: Tensor, bias: Tensor | None, padding: int) -> Tensor:
    after = weight.shape[2] - 1 - padding
    return F.conv1d(F.pad(x, (padding, after)), weight, bias)


def causal(x: Tensor, weight: Tensor, bias: Tensor | None, dilation: int = 1) -> Tensor:
    """torch's kernels meet later values later: the kernel is turned around."""
    before = dilation * (weight.shape[2] - 1)
    return F.conv1d(F.pad(x, (before, 0)), weight.flip(2), bias, dilation=dilation)


def depthwise(convolution: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def convolve(x: Tensor, weight: Tensor, bias: Tensor | None, **given: int) -> Tensor:
        return convolution(x, weight.unsqueeze(1), bias, groups=x.shape[1], **given)

    return convolve


OWN: dict[str, Callable[..., Any]] = {
    "conv1d": F.conv1d,
    "conv2d": F.conv2d,
    "grouped_conv1d": F.conv1d,
    "depthwise_conv1d": depthwise(F.conv1d),
    "depthwise_conv2d": depthwise(F.conv2d),
    "same_conv1d": same,
    "causal_conv1d": causal,
    "conv_transpose1d": F.conv_transpose1d,
    "avg_pool1d": F.avg_pool1d,
    "avg_pool2d": F.avg_pool2d,
    "max_pool1d": F.max_pool1d,
    "max_pool2d": F.max_pool2d,
    "lp_pool1d": F.lp_pool1d,
    "global_avg_pool": lambda x: x.reshape(*x.shape[:2], -1).mean(2),
    "global_max_pool": lambda x: x.reshape(*x.shape[:2], -1).max(2).values,
}
WEIGHTS = {
    "conv1d": ((2, 3, 11), (5, 3, 4)),
    "conv2d": ((1, 4, 6, 7), (5, 4, 3, 2)),
    "grouped_conv1d": ((1, 6, 13), (12, 2, 5)),
    "depthwise_conv1d": ((2, 3, 11), (3, 4)),
    "depthwise_conv2d": ((1, 4, 6, 7), (4, 3, 2)),
}
"""The shapes of input and weight."""


def tensors(name: str, biased: bool) -> list[Tensor | None]:
    shape, weight = WEIGHTS[name]
    bias = uniform(weight[:1], -1, 1, 2) if biased else None
    return [uniform(shape, -1, 1), uniform(weight, -1, 1, 1), bias]


def convolutions() -> Iterator[Case]:
    for name in WEIGHTS:
        groups = {"groups": 3} if name == "grouped_conv1d" else {}
        for biased, stride, padding, dilation in (
            (1, 1, 0, 1),
            (0, 2, 0, 1),
            (0, 1, 1, 2),
            (1, 3, 0, 2),
            (1, 2, 3, 1),
        ):
            label = "typical" if stride == dilation == 1 else f"bias={bool(biased)}"
            yield Case(
                name,
                f"{label} stride={stride} {padding=} dilation={dilation}",
                tensors(name, bool(biased)),
                dict(stride=stride, padding=padding, dilation=dilation, **groups),
            )
    yield Case(
        "grouped_conv1d",
        "2 groups",
        [uniform((3, 10, 8), -1, 1), uniform((8, 5, 6), -1, 1, 1), uniform((8,), -1, 1, 2)],
        {"groups": 2},
    )
    for name, shape in (("conv2d", (6, 2, 3, 1)), ("depthwise_conv2d", (2, 3, 1))):
        yield Case(name, "a batch", [uniform((8, 2, 4, 5), -1, 1), uniform(shape, -1, 1, 1), None])
    for padding in (0, 1, 3):
        yield Case(
            "same_conv1d",
            "typical" if padding == 1 else f"padding={padding}",
            [*(uniform((2, 3, 7), -1, 1), uniform((5, 3, 4), -1, 1, 1)), uniform((5,), -1, 1, 2)],
            {"padding": padding},
        )
    for dilation in (1, 2, 5):
        yield Case(
            "causal_conv1d",
            "typical" if dilation == 2 else f"dilation={dilation}",
            [
                *(uniform((2, 3, 7), -1, 1), uniform((5, 3, 4), -1, 1, 1)),
                uniform((5,), -1, 1, 2) if dilation == 2 else None,
            ],
            {"dilation": dilation},
        )
    for stride, padding, more, dilation in ((1, 0, 0, 1), (2, 1, 1, 1), (3, 4, 1, 2), (1, 3, 2, 3)):
        yield Case(
            "conv_transpose1d",
            "typical" if stride == 2 else f"stride={stride} {padding=} dilation={dilation}",
            [
                *(uniform((2, 3, 4), -1, 1), uniform((3, 6, 5), -1, 1, 1)),
                uniform((6,), -1, 1, 2) if dilation == 1 else None,
            ],
            dict(stride=stride, padding=padding, output_padding=more, dilation=dilation),
        )


def pools() -> Iterator[Case]:
    for kernel, stride in ((3, 3), (3, 2), (2, 3)):
        label = "typical" if (kernel, stride) == (3, 2) else f"kernel={kernel}"
        for name in ("avg_pool1d", "max_pool1d"):
            yield Case(
                name, f"{label} stride={stride}", [distinct((5, 4, 7))],
                {"kernel_size": kernel, "stride": stride},
            )  # fmt: skip
        for name in ("avg_pool2d", "max_pool2d"):
            yield Case(
                name, f"{label} stride={stride}", [distinct((4, 1, 6, 7))],
                {"kernel_size": kernel, "stride": stride},
            )  # fmt: skip
    for norm_type, (kernel, stride) in product((2, 3.5), ((3, 2), (2, 3))):
        yield Case(
            "lp_pool1d",
            f"{'typical' if kernel == 3 else kernel} norm_type={norm_type}",
            [uniform((5, 4, 7), 0.3, 2)],
            {"norm_type": norm_type, "kernel_size": kernel, "stride": stride},
        )
    for name, shape in product(("global_avg_pool", "global_max_pool"), ((2, 3), (2, 3, 5, 4))):
        yield Case(name, f"{list(shape)}", [distinct(shape)])
    for name in ("global_avg_pool", "global_max_pool"):
        yield Case(name, "typical", [distinct((2, 3, 4))])
