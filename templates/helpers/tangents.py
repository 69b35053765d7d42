"""Forward mode; read as text by ``derive.module.runtime``."""

import torch
from private_names import in_forward_mode
from torch.autograd import forward_ad


def _primal(x):
    """x without its tangent of the current level; None and integers stay what they are."""
    return (
        forward_ad.unpack_dual(x).primal
        if x is not None and x.is_floating_point()
        else x
    )


class Dual(torch.autograd.Function):
    """Forward mode for a Function, by its ``tangent(inputs, results, tangents)``.

    torch calls jvp with forward mode disabled, so that a second derivative would be 0, and its
    tensors still carry the tangents of that level. So the mode is enabled, and these are left out.
    """

    generate_vmap_rule = False

    @staticmethod
    def tangent(inputs, results, tangents):
        raise NotImplementedError

    @classmethod
    def vmap(cls, info, in_dims, *given):
        made = torch.func.vmap(cls.forward, in_dims)(*given)
        return made, (0,) * len(made) if isinstance(made, tuple) else 0

    @classmethod
    def setup_context(cls, ctx, inputs, results):
        super().setup_context(ctx, inputs, results)
        results = results if isinstance(results, tuple) else (results,)
        tensors = [x if isinstance(x, torch.Tensor) else None for x in inputs]
        ctx._numbers = [
            n if x is None else None for x, n in zip(tensors, inputs, strict=True)
        ]
        ctx.set_materialize_grads(True)  # A missing tangent is zeros.
        ctx.save_for_forward(*tensors, *results)

    @classmethod
    def jvp(cls, ctx, *tangents):
        saved, n = ctx.saved_tensors, len(ctx._numbers)
        given = zip(map(_primal, saved[:n]), ctx._numbers, strict=True)
        inputs, results = [k if x is None else x for x, k in given], saved[n:]
        with in_forward_mode():
            if len(results) == 1:
                moved = cls.tangent(inputs, results[0], tangents)
                return moved.to(results[0].dtype)
            moved = cls.tangent(inputs, results, tangents)
            # The forward may save a statistic with its group flattened to one axis.
            return tuple(
                d if d is None else d.reshape(x.shape).to(x.dtype)
                for d, x in zip(moved, results, strict=True)
            )
