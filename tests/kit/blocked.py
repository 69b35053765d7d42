"""A function that takes an index in blocks, held against the same one without."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

import derive
from derive.notation.operation import Operation

Given = Callable[[], Sequence[Tensor | None]]


def agrees(
    op: Operation,
    given: Given,
    letter: str = "n",
    blocks: Sequence[int | None] = (1, 3, 7, 9, None),
    **parameters: Any,
) -> None:
    """Values, gradients of both orders and a second backward, for blocks of these sizes."""
    whole, parted = derive.load(op), derive.load(op, letter)
    for block in blocks:
        torch.manual_seed(3)
        made = [None if x is None else x.double() if x.is_floating_point() else x for x in given()]
        want = orders(whole, made, parameters)
        got = orders(parted, made, {**parameters, "block": block})
        for name, value in want.items():
            same = torch.allclose(got[name], value, rtol=1e-9, atol=1e-11)
            # Of no rows a mean is 0/0, whose gradient may be 0 or no number.
            assert same or value.isnan().all(), f"{op.name}, block {block}: {name}"


def orders(
    function: Callable[..., Any], given: Sequence[Tensor | None], parameters: Mapping[str, Any]
) -> dict[str, Tensor]:
    """Outputs, gradients, those of a second backward, and what those of the gradients are."""
    tensors = [copy(x) for x in given]
    inputs = [x for x in tensors if x is not None and x.requires_grad]
    result = function(*tensors, **parameters)
    outputs = [y for y in (result if isinstance(result, tuple) else (result,))]
    floats = [y for y in outputs if y.is_floating_point()]
    torch.manual_seed(4)
    cotangents = [torch.randn_like(y) for y in floats]
    keep = {"materialize_grads": True, "retain_graph": True}
    first = torch.autograd.grad(floats, inputs, cotangents, **keep)
    again = torch.autograd.grad(floats, inputs, cotangents, **keep)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True) if not a.isnan().any())
    with torch.no_grad():
        plain = function(*tensors, **parameters)
    graph = torch.autograd.grad(floats, inputs, cotangents, create_graph=True, **keep)
    found = {f"output {n}": y.detach() for n, y in enumerate(outputs)}
    for n, y in enumerate(plain if isinstance(plain, tuple) else (plain,)):
        assert torch.allclose(y, found[f"output {n}"], equal_nan=True)
    for n, (one, two) in enumerate(zip(first, graph, strict=True)):
        found[f"gradient {n}"] = one
        found[f"gradient {n}, with its graph"] = two.detach()
    total = sum((g * torch.randn_like(g)).sum() for g in graph)
    if isinstance(total, Tensor) and total.requires_grad:
        second = torch.autograd.grad(total, inputs, materialize_grads=True)
        found |= {f"second {n}": g for n, g in enumerate(second)}
    return found


def copy(x: Tensor | None) -> Tensor | None:
    if x is None:
        return None
    return x.detach().clone().requires_grad_(x.is_floating_point())
