"""Checks of one call: vmap, devices, subsets of gradients, in-place writes and strides."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations, product

from derive.check.invoke import (
    Function,
    NotApplicable,
    array,
    called,
    cotangents_of,
    detached,
    differentiable,
    gradients,
    inputs_of,
    leaves_of,
    plain,
    pulled_back,
    results,
    tensors_of,
    unlike,
    unlike_each,
    weights_of,
)
from derive.check.lazy import Tensor, torch
from derive.check.samples import Sample, sample
from derive.errors import VerificationError
from derive.notation.operation import Operation

# ----------------------------------------------------------------------------------------- batching
# Check torch.func.vmap, and autograd's older one, over calls, cotangents and gradients.

_BATCHES = ((1.0,), (1.0, -0.5, 0.3))


def batched(op: Operation, function: Function, made: Sample, slack: float = 0.0) -> str:
    """Check that torch.func.vmap over gradients and cotangents equals a loop."""
    call, inputs = differentiable(function, made)
    inputs = tuple(t.detach() for t in inputs)
    outputs, pullback = torch.func.vjp(call, *inputs)[:2]
    scales = torch.tensor([1.0, -0.5], dtype=torch.float64)
    many = tuple(torch.stack([torch.ones_like(o) * s for s in scales]) for o in outputs)
    batched = torch.func.vmap(pullback)(many)
    looped = [pullback(tuple(m[n] for m in many)) for n in range(len(scales))]
    found = _batch_differences(batched, looped, slack)

    def total(*given: Tensor) -> Tensor:
        return torch.stack([o.sum() for o in call(*given)]).sum()

    gradient = torch.func.grad(total, tuple(range(len(inputs))))
    shifted = tuple(torch.stack((t, t * 0.99)) for t in inputs)
    batched = torch.func.vmap(gradient)(*shifted)
    looped = [gradient(*(t[n] for t in shifted)) for n in range(2)]
    return "; ".join([*found, *_batch_differences(batched, looped, slack)])


def together(
    op: Operation,
    function: Function,
    made: Sample,
    slack: float = 0.0,
    lacking: Sequence[str] = ("einsum", "detach"),
) -> str:
    """Check that torch.autograd.grad(is_grads_batched=True) over cotangents equals a loop.

    ``lacking`` are the operations of torch that have no rule there, and that code may call.
    """
    call, inputs = differentiable(function, made)
    pairs = [p for p in zip(call(*inputs), weights_of(made), strict=True) if p[0].requires_grad]
    outputs = [o for o, _ in pairs]
    pulled = partial(torch.autograd.grad, outputs, inputs, retain_graph=True, allow_unused=True)
    found = []
    for scales, graph in product(_BATCHES, (False, True)):
        many = [torch.stack([w * s for s in scales]) for _, w in pairs]
        try:
            batched = pulled(many, is_grads_batched=True, create_graph=graph)
        except RuntimeError as error:
            lacks = re.match(r"Batching rule not implemented for aten::(\w+)", str(error))
            if lacks is None or lacks[1] not in lacking:
                raise
            raise NotApplicable(f"autograd's older vmap has no rule for {lacks[1]}") from None
        looped = [pulled([m[n] for m in many], create_graph=graph) for n in range(len(scales))]
        found += _batch_differences(batched, looped, slack)
    return "; ".join(found)


def _batch_differences(
    batched: Sequence[Tensor | None], looped: Sequence[Sequence[Tensor | None]], slack: float
) -> list[str]:
    """List the differences between a batch and its elements computed one by one; None is 0."""
    found = []
    for (n, one), (k, b) in product(enumerate(looped), enumerate(batched)):
        each = None if b is None else b[n], one[k]
        like = next((x for x in each if x is not None), None)
        if like is not None:
            made, wanted = (array(like.new_zeros(like.shape) if x is None else x) for x in each)
            found.append(unlike(f"gradient {k}, batched", made, wanted, slack))
    return [text for text in found if text]


# ----------------------------------------------------------------------------------- default device
# Check calls under a default device other than the inputs' device.


def default_device(op: Operation, function: Function, made: Sample, slack: float = 0.0) -> str:
    """Check that results do not depend on the default device."""
    usual = results(function, made, tensors_of(made))
    tensors = tensors_of(made)
    with torch.device("meta"):
        there = results(function, made, tensors)
    moved = [name for name, t in there.items() if t.device != usual[name].device]
    if moved:
        return f"on the default device, not on that of the inputs: {', '.join(moved)}"
    return "; ".join(unlike_each(usual, there.values(), usual.values(), slack))


# --------------------------------------------------------------------------------------- grad masks
# Check gradients of some inputs alone, and of some outputs alone.


def subsets(op: Operation, function: Function, made: Sample, slack: float = 0.0) -> str:
    """Check that gradients do not depend on which of them are requested.

    One, two or all but one of the inputs require a gradient.
    """
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
            names = [f"grad_{name} with those of {', '.join(wanted)}" for name in wanted]
            alone, among = ([grads[name] for name in wanted] for grads in (got, whole))
            found += unlike_each(names, alone, among, slack)
    return "; ".join(found)


def missing(op: Operation, function: Function, made: Sample, slack: float = 0.0) -> str:
    """Check that gradients of the outputs add up, each with other cotangents missing."""
    differentiable(function, made)
    tensors = tensors_of(made)
    outputs = called(function, made, list(tensors.values()))
    given = cotangents_of(made)
    pairs = [
        (o, torch.from_numpy(given[name]))
        for name, o in zip(made.outputs, outputs, strict=True)
        if o.requires_grad
    ]
    if len(pairs) < 2:
        raise NotApplicable("one output has a gradient")
    whole, *each = (
        gradients(asked, leaves_of(tensors), retain_graph=True)
        for asked in (pairs, *([pair] for pair in pairs))
    )
    total = (torch.stack(parts).sum(0) for parts in zip(*each, strict=True))
    names = [f"grad_{name}" for name in inputs_of(tensors)]
    return "; ".join(unlike_each(names, total, whole, slack))


# ----------------------------------------------------------------------------------------- in place
# Check in-place writes by the code and by its callers, and the memory that is saved.


def unchanged(op: Operation, function: Function, made: Sample) -> str:
    """Check that inputs and cotangents are not modified."""
    tensors = tensors_of(made)
    outputs = [o for o in called(function, made, list(tensors.values())) if o.requires_grad]
    cotangents = [torch.full_like(o, 0.5) for o in outputs]
    gradients(list(zip(outputs, cotangents, strict=True)), leaves_of(tensors))
    changed = [name for name, t in tensors.items() if t is not None and t._version]
    changed += ["a cotangent" for c in cotangents if c._version or bool((c != 0.5).any())]
    return f"written to: {', '.join(changed)}" if changed else ""


def in_place(op: Operation, function: Function, made: Sample, slack: float = 0.0) -> str:
    """Check that outputs may be modified in place, or autograd raises its error.

    The gradient follows the change.
    """
    differentiable(function, made)
    given = cotangents_of(made)
    found = []
    for n, output in enumerate(made.outputs):
        grads = []
        for factor in (1, 2):
            tensors = tensors_of(made)
            copies = [t.clone() if t is not None else t for t in tensors.values()]
            y = called(function, made, copies)[n]
            if not y.requires_grad:
                break
            try:
                z = y.mul_(2) if factor == 2 else y
                c = torch.from_numpy(given[output]).to(y.dtype) / factor
                grads.append(gradients([(z, c)], leaves_of(tensors)))
            except RuntimeError as error:
                if "single memory location" in str(error):
                    raise NotApplicable("elements of the output share memory, as torch's") from None
                if "modified by an inplace operation" not in str(error):
                    raise
        if len(grads) == 2:
            want, got = grads
            found += unlike_each((f"grad_{name}" for name in inputs_of(tensors)), got, want, slack)
    return "; ".join(found)


def subclass(op: Operation, function: Function, made: Sample, slack: float = 0.0) -> str:
    """Check that in-place code equals the code without, as run by a tensor subclass."""

    class Other(torch.Tensor):
        """A Tensor subclass, for which generated code does not write in place."""

    tensors = tensors_of(made)
    others = [t if t is None else t.as_subclass(Other) for t in tensors.values()]
    ours, plain = (called(function, made, each) for each in (others, [*tensors.values()]))
    return "; ".join(unlike_each(made.outputs, ours, plain, slack))


def saved(op: Operation, function: Function, made: Sample) -> str:
    """Check that the backward keeps no more bytes than inputs and outputs have.

    Or than autograd keeps. Tensors that share storage are counted once; omitted inputs are not
    counted.
    """
    differentiable(function, made)
    kept, there = _saved_tensors(function, made)
    bytes_kept, allowed = _bytes(kept), _bytes(there)
    if bytes_kept <= allowed or bytes_kept <= _bytes(_saved_tensors(plain(op, made), made)[0]):
        return ""
    own = {t.untyped_storage().data_ptr() for t in there}
    shapes = [tuple(t.shape) for t in kept if t.untyped_storage().data_ptr() not in own]
    more = ", ".join(map(str, shapes))
    return (
        f"{bytes_kept} bytes are kept, more than the {allowed} of inputs and outputs: also {more}"
    )


def _saved_tensors(function: Function, made: Sample) -> tuple[list[Tensor], list[Tensor]]:
    """Return the tensors saved for backward, and the inputs and outputs."""
    kept: list[Tensor] = []

    def pack(t: Tensor) -> Tensor:
        kept.append(t.detach())
        return t

    tensors = tensors_of(made)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        outputs = called(function, made, list(tensors.values()))
    return kept, [t for t in (*tensors.values(), *outputs) if t is not None]


def _bytes(tensors: list[Tensor]) -> int:
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage() for t in tensors}
    return sum(s.nbytes() for s in storages.values())


# ------------------------------------------------------------------------------------------ strides
# Check tensors with unusual strides, and one tensor passed as two inputs.


def strides(op: Operation, function: Function, made: Sample, slack: float = 0.0) -> str:
    """Check that results do not depend on strides and offsets of views."""
    dense = tensors_of(made)
    views = {name: None if t is None else strided_view(t) for name, t in dense.items()}
    ours, plain = (called(function, made, [*each.values()]) for each in (views, dense))
    found = unlike_each(made.outputs, ours, plain, slack)
    given = cotangents_of(made)
    every = zip(made.outputs, ours, plain, strict=True)
    smooth = [(a, b, torch.from_numpy(given[name])) for name, a, b in every if b.requires_grad]
    for strange, usual in (
        (strided_view, torch.clone),
        (lambda c: c.new_ones(()).expand(c.shape), torch.ones_like),
    ):
        odd = [(a, strange(c)) for a, _, c in smooth]
        even = [(b, usual(c)) for _, b, c in smooth]
        got = gradients(odd, leaves_of(views), retain_graph=True)
        want = gradients(even, leaves_of(dense), retain_graph=True)
        found += unlike_each((f"grad_{name}" for name in inputs_of(dense)), got, want, slack)
    return "; ".join(found)


def strided_view(t: Tensor) -> Tensor:
    """Return a view with the same values, transposed and with stride 2 and offset 1."""
    wide = t.new_zeros((*reversed(t.shape), 2))
    backwards = tuple(reversed(range(t.dim())))
    wide[..., 1] = t.detach().permute(backwards)
    return wide[..., 1].permute(backwards).requires_grad_(t.requires_grad)


def twice(op: Operation, function: Function, made: Sample, slack: float = 0.0) -> str:
    """Check that one tensor may be passed as two inputs.

    It gets the sum of both gradients.
    """
    differentiable(function, made)
    found = []
    for one, other, subject in alike(op, made):
        wants = pulled_back(function, subject, tensors_of(subject))
        shared = tensors_of(subject)
        shared[other] = shared[one]
        got = pulled_back(function, subject, shared)[one]
        want = array(wants[one]) + array(wants[other])
        text = unlike(f"grad_{one}, given as {other} too", array(got), want, slack)
        found.append(text)
    return "; ".join(filter(None, found))


def alike(op: Operation, made: Sample) -> Iterator[tuple[str, str, Sample]]:
    """Yield two inputs of equal shape, and a sample of equal extents where they share values."""
    if len(inputs_of(tensors_of(made))) < 2:
        raise NotApplicable("one input is of floating point")
    try:
        square = sample(op, replace(made.case, alike=True), made.seed)
    except VerificationError as why:
        raise NotApplicable(f"no sample has equal extents: {why}") from None
    names = inputs_of(tensors_of(square))
    pairs = [
        (a, b)
        for a, b in combinations(names, 2)
        if _sample_shape(square, a) == _sample_shape(square, b)
    ]
    if not pairs:
        raise NotApplicable("no two inputs of floating point can have one shape")
    for one, other in pairs:
        values = square.tensors[one]
        yield one, other, replace(square, tensors={**square.tensors, other: values})


def _sample_shape(made: Sample, name: str) -> tuple[int, ...]:
    values = made.tensors[name]
    return () if values is None else values.shape
