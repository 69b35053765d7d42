"""Functions as short as a person can write them: what a call costs beside the kernels.

They check nothing, know one dtype and one option, and hand the values of their kernels to the
backward as further outputs. As generated functions do, they have ``setup_context`` and a rule for
vmap, without which torch.func refuses them; torch itself takes more time of a call for it.
"""

from typing import Any

import torch
from kit.race.row import Function
from torch import Tensor
from torch.nn import functional as F

aten = torch.ops.aten


class Softmax(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return torch.softmax(x, -1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, G: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        return aten._softmax_backward_data(G, y, -1, y.dtype)


class LayerNorm(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, ...]:
        return aten.native_layer_norm(x, weight.shape, weight, bias, 1e-5)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        _, mu, rstd = output
        ctx.mark_non_differentiable(mu, rstd)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs, mu, rstd)

    @staticmethod
    def backward(ctx: Any, G: Tensor, _mu: None, _rstd: None) -> tuple[Tensor, ...]:
        x, weight, bias, mu, rstd = ctx.saved_tensors
        return aten.native_layer_norm_backward(
            G, x, weight.shape, mu, rstd, weight, bias, [True, True, True]
        )


class CrossEntropy(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, target: Tensor) -> tuple[Tensor, ...]:
        logs = torch.log_softmax(x, 1)
        return *aten.nll_loss_forward(logs, target, None, 1, -100), logs

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        _, total, logs = output
        ctx.mark_non_differentiable(total, logs)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(inputs[1], total, logs)

    @staticmethod
    def backward(ctx: Any, G: Tensor, _total: None, _logs: None) -> tuple[Tensor, None]:
        target, total, logs = ctx.saved_tensors
        grad = aten.nll_loss_backward(G, logs, target, None, 1, -100, total)
        return aten._log_softmax_backward_data(grad, logs, 1, logs.dtype), None


class Gelu(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return F.gelu(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, G: Tensor) -> Tensor:
        return aten.gelu_backward(G, *ctx.saved_tensors)


class Linear(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return F.linear(x, weight, bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, weight, _ = inputs
        ctx.save_for_backward(x, weight)

    @staticmethod
    def backward(ctx: Any, G: Tensor) -> tuple[Tensor, ...]:
        x, weight = ctx.saved_tensors
        return G @ weight, G.mT @ x, G.sum(0)


class MseLoss(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, target: Tensor) -> Tensor:
        return F.mse_loss(x, target)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, G: Tensor) -> tuple[Tensor, None]:
        return aten.mse_loss_backward(G, *ctx.saved_tensors, 1), None


MINIMAL: dict[str, Function] = {
    "softmax": Softmax.apply,
    "layer_norm": lambda *tensors: LayerNorm.apply(*tensors)[0],
    "cross_entropy": lambda *tensors: CrossEntropy.apply(*tensors)[0],
    "gelu": Gelu.apply,
    "linear": Linear.apply,
    "mse_loss": MseLoss.apply,
}
"""By the name of the row."""
