"""The second derivative: whether a backward is itself differentiable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from derive.auditing.forward import Subject
from derive.auditing.gradients import near
from derive.auditing.points import is_tensor
from derive.errors import DeriveError


def second_order(subject: Subject, args: Sequence[Any], cotangents: Sequence[Any]) -> str:
    """Classify the double backward: ``right``, ``wrong``, ``nan``, ``constant`` or ``refused``.

    '' if the forward's own second derivative fails.
    """
    import torch

    wanted = subject.wanted(args)

    def twice(run: Callable[[Sequence[Any]], tuple[Any, ...]]) -> Any:
        leaves = {n: args[n].detach().clone().requires_grad_() for n in wanted}
        given = [g if g is None else g.detach().clone().requires_grad_() for g in cotangents]
        call = [leaves[n].clone() if n in leaves else a for n, a in enumerate(args)]
        pairs = [
            (o, g)
            for o, g in zip(run(call), given, strict=False)
            if g is not None and is_tensor(o) and o.requires_grad
        ]
        if not pairs:
            raise DeriveError("autograd records no operation of the forward")
        first = torch.autograd.grad(
            [o for o, _ in pairs],
            list(leaves.values()),
            [g for _, g in pairs],
            create_graph=True,
            allow_unused=True,
        )
        roots = [g for g in first if g is not None and g.requires_grad]
        wrt = [*leaves.values(), *(g for _, g in pairs)]
        if not roots:
            return [torch.zeros_like(w) for w in wrt]
        random = torch.Generator().manual_seed(5)
        total = torch.zeros((), dtype=torch.float64)
        for g in first:
            if g is not None:
                weight = torch.randn(g.shape, generator=random, dtype=torch.float64)
                total = total + (g * weight.to(g.device)).sum().cpu()
        # Run the whole graph, so that every node that refuses is reached.
        total.backward()  # type: ignore[no-untyped-call]
        return [torch.zeros_like(w) if w.grad is None else w.grad for w in wrt]

    if subject.owned:
        return ""
    try:
        right = twice(subject.plain)
    except Exception:
        return ""
    try:
        given = twice(subject.applied)
    except Exception:
        return "refused"
    if all(near(g, r, max(1e-6, subject.tolerance)) for g, r in zip(given, right, strict=True)):
        return "right"
    if not all(bool(g.isfinite().all()) for g in given):
        return "nan"
    if all(not bool(g.any()) for g in given[: len(wanted)]):
        return "constant"
    return "wrong"
