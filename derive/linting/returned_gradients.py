"""Rules DRV2xx: what backward takes and returns."""

from __future__ import annotations

from collections.abc import Iterator

from derive.linting.finding import At
from derive.linting.source_model import FunctionReading
from derive.linting.values import TrackedValue


def number_of_gradients(reading: FunctionReading) -> Iterator[At]:
    """Backward returns a wrong number of gradients.

    **What.** The number of returned values differs from the number of arguments of forward.
    Additional values may only be None. A list counts as one value.

    **Why it is wrong.** PyTorch raises an error when the backward runs: "returned an incorrect
    number of gradients".

    ```python
    # slope.py
    import torch


    class Leaky(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, slope):
            ctx.save_for_backward(x)
            ctx.slope = slope
            return torch.where(x > 0, x, slope * x)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return torch.where(x > 0, g, ctx.slope * g)
    ```

    ```console
    $ derive lint slope.py
    slope.py:15:9: DRV201 backward returns 1 gradient; forward has 2 arguments besides ctx
    1 finding in 1 Function of 1 file
    ```

    **The mend.** Return one value for each argument, and None for an argument without a gradient.

    ```python
    # slope.py
    import torch


    class Leaky(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, slope):
            ctx.save_for_backward(x)
            ctx.slope = slope
            return torch.where(x > 0, x, slope * x)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return torch.where(x > 0, g, ctx.slope * g), None
    ```
    """
    function = reading.function
    if not (function.forward.plain and function.backward.plain):
        return
    marked = any(f.of_kind("mark_non_differentiable") for f in (reading.forward, reading.keeping))
    if marked and not reading.returned:
        return
    most = len(function.inputs)
    least = most - min(most, len(function.forward.node.args.defaults))
    for event, gradients in zip(reading.backward.of_kind("return"), reading.gradients, strict=True):
        if gradients is None:
            continue
        count = len(gradients)
        wanted = _argument_count(least, most, function.forward.star)
        if event.value.listed:
            yield At(event.node, f"backward returns a list; return a tuple of {wanted}")
        elif count < least:
            yield At(
                event.node,
                f"backward returns {_gradient_count(count)}; forward has {wanted} besides ctx"
                if not function.setup
                else f"backward returns {_gradient_count(count)}; forward has {wanted}",
            )
        elif not function.forward.star and any(_is_gradient(v) for v in gradients[most:]):
            yield At(event.node, f"backward returns {_gradient_count(count)}; forward has {wanted}")


def _gradient_count(count: int) -> str:
    return f"{count} gradient{'s' * (count != 1)}"


def _argument_count(least: int, most: int, star: str | None) -> str:
    count = f"{least} to {most}" if least < most else f"{most}"
    count = f"at least {least}" if star else count
    return f"{count} argument{'s' * (count != '1')}"


def _is_gradient(value: TrackedValue) -> bool:
    return value.tensor and not value.none and not value.void


def number_of_cotangents(reading: FunctionReading) -> Iterator[At]:
    """Backward takes a wrong number of cotangents.

    **What.** The number of parameters of backward after ctx differs from the number of outputs of
    forward. An output that is no tensor counts too.

    **Why it is wrong.** PyTorch calls backward with one cotangent for each output, so the call
    raises a TypeError.

    ```python
    # pair.py
    import torch


    class Both(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x, 3 * x

        @staticmethod
        def backward(ctx, g):
            return 2 * g
    ```

    ```console
    $ derive lint pair.py
    pair.py:11:5: DRV202 backward takes 1 cotangent; forward returns 2 outputs
    1 finding in 1 Function of 1 file
    ```

    **The mend.** Take one cotangent for each output.

    ```python
    # pair.py
    import torch


    class Both(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x, 3 * x

        @staticmethod
        def backward(ctx, g, h):
            return 2 * g + 3 * h
    ```
    """
    function = reading.function
    if not (function.forward.plain and function.backward.plain) or not reading.outputs:
        return
    if None in reading.outputs or not reading.gradients:
        return
    counts = {len(o) for o in reading.outputs if o is not None}
    most = len(function.cotangents)
    least = most - min(most, len(function.backward.node.args.defaults))
    if len(counts) == 1 and not reading.forward.of_kind("lost"):
        (count,) = counts
        if count < least or (count > most and not function.backward.star):
            yield At(
                function.backward.node,
                f"backward takes {most} cotangent{'s' * (most != 1)}; "
                f"forward returns {count} output{'s' * (count != 1)}",
            )
