"""Rules DRV4xx: second derivatives."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from derive.linting.source_model import At, FunctionReading, listed
from derive.linting.values import Token, Tokens, node_position


def saved_intermediate(reading: FunctionReading) -> Iterator[At]:
    """Double backward treats a saved intermediate as a constant.

    **What.** Forward saves a tensor that is neither an input nor an output. Backward uses it, and
    is not marked `once_differentiable`.

    **Why it is wrong.** Forward runs without a graph. In double backward the saved intermediate
    has no derivative, although it depends on the inputs. Gradient penalties and Hessians are
    silently wrong. A view of an input or of an output is such a tensor too.

    ```python
    # unit.py
    import torch


    class Normalize(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            r = x.norm()
            y = x / r
            ctx.save_for_backward(y, r)
            return y

        @staticmethod
        def backward(ctx, g):
            y, r = ctx.saved_tensors
            return (g - y * (g * y).sum()) / r
    ```

    ```console
    $ derive lint unit.py
    unit.py:10:9: DRV401 double backward treats `r` as a constant; mark backward once_differentiable
    1 finding in 1 Function of 1 file
    ```

    **The mend.** Mark backward `once_differentiable`, so that double backward raises an error. Or
    save inputs and outputs only, and compute the intermediate again in backward.

    ```diff
         def forward(ctx, x):
    -        r = x.norm()
    -        y = x / r
    -        ctx.save_for_backward(y, r)
    -        return y
    +        ctx.save_for_backward(x)
    +        return x / x.norm()

    @@
         def backward(ctx, g):
    -        y, r = ctx.saved_tensors
    +        (x,) = ctx.saved_tensors
    +        r = x.norm()
    +        y = x / r
             return (g - y * (g * y).sum()) / r
    ```
    """
    function = reading.function
    if function.once or not function.backward.plain or any(no_derivative(reading)):
        return
    if reading.backward.of_kind("guard"):
        return
    if any(f.own_graph for f in (reading.forward, reading.keeping, reading.backward)):
        return
    used: Tokens = frozenset().union(*(v.slopes for v in reading.returned))
    for event in reading.keeping.of_kind("save_for_backward"):
        names = [
            ast.unparse(node)
            for n, (node, value) in enumerate(zip(event.node.args, event.others, strict=False))  # type: ignore[attr-defined]
            if Token("saved", n) in used
            and n < len(reading.saved)
            and reading.kind(reading.saved[n]) == "intermediate"
            and reading.kind(value) == "intermediate"
            and reading.smooth(value)
        ]
        if names and not any(isinstance(a, ast.Starred) for a in event.node.args):  # type: ignore[attr-defined]
            what = f"{listed(names)} as {'a constant' if len(names) == 1 else 'constants'}"
            text = f"double backward treats {what}; mark backward once_differentiable"
            yield At(event.node, text)


def no_derivative(reading: FunctionReading) -> Iterator[At]:
    """Backward has a step without a derivative, and is not once_differentiable.

    **What.** A returned gradient passes through a step that autograd cannot follow: `.detach()`,
    `.data`, `.item()`, `.numpy()`, `torch.no_grad()`, a Triton kernel, or `torch.autograd.grad`
    without `create_graph`. Functions of the same file that launch a kernel count too.

    **Why it is wrong.** The gradient has no graph. With `create_graph=True`, its contribution to
    second derivatives is silently 0.

    ```python
    # detached.py
    import torch


    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return 2 * x.detach() * g
    ```

    ```console
    $ derive lint detached.py
    detached.py:14:20: DRV402 `.detach()` has no derivative; mark backward once_differentiable
    1 finding in 1 Function of 1 file
    ```

    **The mend.** Mark backward `once_differentiable`, so that double backward raises an error.
    The rule does not apply if backward calls `torch.is_grad_enabled()`, as a backward does that
    handles double backward itself.

    ```diff
     import torch
    +from torch.autograd.function import once_differentiable

    @@
         @staticmethod
    +    @once_differentiable
         def backward(ctx, g):
    ```
    """
    function = reading.function
    if function.once or not function.backward.plain or not reading.returned:
        return
    if reading.backward.of_kind("guard"):
        return
    used: Tokens = frozenset().union(*(v.slopes for v in reading.returned))
    launches = reading.backward.of_kind("launch")
    cuts = [cut for token, cut in reading.backward.cuts.items() if token in used]
    steps = [(event.node, "a kernel", event.value.reads) for event in launches]
    steps += [(cut.node, f"`{cut.what}`", cut.slopes) for cut in cuts]
    for node, what, tokens in sorted(steps, key=lambda step: node_position(step[0])):
        if any(_differentiable(reading, t) for t in tokens):
            yield At(node, f"{what} has no derivative; mark backward once_differentiable")
            return


def _differentiable(reading: FunctionReading, token: Token) -> bool:
    """True if a tensor of backward depends on an input that has a gradient."""
    if token.kind == "cotangent":
        return True
    value = reading.kept_value(token)
    return value is not None and reading.smooth(value)
