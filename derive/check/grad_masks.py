"""Check gradients of some inputs alone, and of some outputs alone."""

from __future__ import annotations

from itertools import combinations

from derive.check.check import NotApplicable
from derive.check.invoke import (
    Function,
    array,
    called,
    cotangents_of,
    detached,
    differentiable,
    inputs_of,
    pulled_back,
    tensors_of,
    unlike,
)
from derive.check.samples import Sample
from derive.notation.operation import Operation


def subsets(op: Operation, function: Function, made: Sample, slack: float = 0.0) -> str:
    """Check that requires_grad on one, two or all but one input gives the same gradients."""
    differentiable(function, made)
    whole = pulled_back(function, made, tensors_of(made))
    if len(whole) < 2:
        raise NotApplicable("one input has a gradient")
    found = []
    for size in sorted({1, 2, len(whole) - 1} - {len(whole)}):
        for wanted in combinations(whole, size):
            tensors, still = tensors_of(made), detached(made)
            for other in inputs_of(tensors):
                if other not in wanted:
                    tensors[other] = still[other]
            got = pulled_back(function, made, tensors)
            for name in wanted:
                alone = f"grad_{name} with those of {', '.join(wanted)}"
                found.append(unlike(alone, array(got[name]), array(whole[name]), slack))
    return "; ".join(filter(None, found))


def missing(op: Operation, function: Function, made: Sample, slack: float = 0.0) -> str:
    """Check that the gradients of single outputs add up to the gradient of all outputs."""
    import torch

    differentiable(function, made)
    tensors = tensors_of(made)
    inputs = [t for t in tensors.values() if t is not None and t.requires_grad]
    outputs = called(function, made, list(tensors.values()))
    given = cotangents_of(made)
    pairs = [
        (o, torch.from_numpy(given[name]))
        for name, o in zip(made.outputs, outputs, strict=True)
        if o.requires_grad
    ]
    if len(pairs) < 2:
        raise NotApplicable("one output has a gradient")
    found = []
    whole, *each = (
        torch.autograd.grad(
            [o for o, _ in asked],
            inputs,
            [c for _, c in asked],
            retain_graph=True,
            materialize_grads=True,
        )
        for asked in (pairs, *([pair] for pair in pairs))
    )
    for name, want, *parts in zip(inputs_of(tensors), whole, *each, strict=True):
        total = sum(array(part) for part in parts)
        found.append(unlike(f"grad_{name}", total, array(want), slack))
    return "; ".join(filter(None, found))
