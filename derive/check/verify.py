"""Generated code held against the operation: values, gradients, and how it behaves in torch.

Values and first gradients are compared with the oracle, which shares nothing with the engine;
gradcheck and gradgradcheck then compare the code with its own differences. The only file that
imports torch, and only when something is verified.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from derive.algebra.interpret import Array
from derive.check import oracle
from derive.check.calling import (
    Function,
    array,
    called,
    cotangents_of,
    differs,
    inputs_of,
    pulled_back,
    smooth,
    tensors_of,
)
from derive.check.detached import detaches, unlike_reference
from derive.check.doubt import Verdict, rounding, steadiest, verdict
from derive.check.rounding import SHIFTS, lost_digits
from derive.check.samples import Sample, cases, sample
from derive.errors import VerificationError
from derive.memory import loaded
from derive.notation.operation import Operation

if TYPE_CHECKING:
    from torch import Tensor


Checking = Callable[..., str]
"""What differs between a function at a sample and what it should be, or nothing."""

_RTOL, _ATOL = 1e-6, 1e-8
_STEP = 1e-5
"""Of gradcheck's differences: at its own 1e-6 the rounding of values above 10 reaches _ATOL."""
_SEED = 20
"""Of torch's generator, from which gradgradcheck draws its cotangents."""
_ENOUGH = 2
"""Samples at which code has to pass that cannot be judged at its own."""
_ORDERS = {"value": 0, "gradient": 1, "gradcheck": 1, "gradgradcheck": 2, "reference": 2}
"""The order of the derivatives that a check compares."""
_ROUNDED = ("batched", "layout", "alone")
"""The checks that compare the code with itself, and may differ by its rounding."""
_MISMATCH = re.compile("GradcheckError: Jacobian (computed with forward mode )?mismatch")


@dataclass(frozen=True)
class Check:
    """One check of one option: ``detail`` says what differs."""

    operation: str
    option: str | None
    case: str
    check: str
    ok: bool
    detail: str = ""


def load_source(op: Operation, text: str) -> Function:
    """The public function of the generated module of op."""
    function: Function = loaded(op.name, text)
    return function


def verify_source(op: Operation, text: str) -> None:
    """Raise a VerificationError unless the module computes op and its gradients."""
    for check in gradients_of(op, load_source(op, text)):
        if not check.ok:
            option = "" if check.option is None else f" ({check.option})"
            raise VerificationError(
                f"{op.name}{option}: {check.check} differs, {check.case}\n{check.detail}"
            )


def gradients_of(op: Operation, function: Function, seed: int = 0) -> Iterator[Check]:
    """Values and gradients on every case, gradcheck and gradgradcheck on the typical one."""
    for case in cases(op):
        made = sample(op, case, seed)
        typical = _of_derivatives(op) if case.label == "typical" else ()
        for name, check in (*_against_oracle(op), *typical):
            yield _settled(op, name, check, function, made)


def checks_of(op: Operation, function: Function, seed: int = 0) -> Iterator[Check]:
    """Everything that is known to go wrong in an autograd function, on every case."""
    for case in cases(op):
        made = sample(op, case, seed)
        for name, check in (*_against_oracle(op), *_of_derivatives(op), *_CHECKS, *_rounded(op)):
            yield _settled(op, name, check, function, made)


def _settled(op: Operation, name: str, check: Checking, function: Function, made: Sample) -> Check:
    """The check; where it finds a difference, what comes of asking again (`derive.check.doubt`).

    The judges say whether the code is wrong at this sample. Where they cannot tell, they are
    asked at others, the best conditioned first: it is right if it passes at some of them. All
    random numbers of torch have a seed, and the caller's are left alone.
    """
    import torch

    with (
        torch.random.fork_rng(devices=()),
        _one_thread(),
        warnings.catch_warnings(),
        np.errstate(all="ignore"),
    ):
        # torch's own, on first use of forward mode.
        warnings.simplefilter("ignore", DeprecationWarning)
        detail, numerical = _asked(check, function, made)
        if detail and numerical:
            if name in _ORDERS:
                detail = _again(op, detail, _ORDERS[name], check, function, made)
            elif name in _ROUNDED:
                slack = rounding(function, made)
                detail, _ = _asked(partial(check, slack=slack), function, made)
        if detail:
            detail = f"{detail}\n{made}" if str(made) not in detail else detail
    return Check(op.name, made.case.option, made.case.label, name, not detail, detail)


def _asked(check: Checking, function: Function, made: Sample) -> tuple[str, bool]:
    """What differs, a failure of any kind too, and whether that may be a matter of digits."""
    import torch

    # Of the CPU alone, which is what is forked.
    torch.default_generator.manual_seed(_SEED)
    try:
        detail = check(function, made)
    except Exception as error:
        detail = f"{type(error).__name__}: {error}".strip()
        return detail, bool(_MISMATCH.match(detail))
    return detail, " has shape " not in detail and " outputs, not " not in detail


def _again(
    op: Operation,
    detail: str,
    order: int,
    check: Checking,
    function: Function,
    made: Sample,
) -> str:
    """What is wrong after all, or nothing."""
    passed, conventional = 0, True
    for n, subject in enumerate(chain((made,), steadiest(op, made.case))):
        found = detail if n == 0 else _asked(check, function, subject)[0]
        try:
            said, reason = verdict(op, function, subject, order) if found else (Verdict.RIGHT, "")
        except Exception as error:
            said, reason = Verdict.WRONG, f"{type(error).__name__}: {error}"
        if said is Verdict.WRONG:
            return f"{found}\n{reason}\n{subject}"
        if said is Verdict.RIGHT:
            passed += 1
            if n == 0 or passed == _ENOUGH:
                return ""
        conventional &= said is not Verdict.UNDECIDED
    return "" if conventional else f"{detail}\nno sample tells whether that is right"


@contextmanager
def _one_thread() -> Iterator[None]:
    """Samples are small: threads of torch only get in each other's way."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


# -------------------------------------------------------------------- checks


def _against_oracle(op: Operation) -> list[tuple[str, Checking]]:
    """Value and gradient where the oracle's loops give them."""
    return [("value", _value), ("gradient", partial(_gradient, op))]


def _value(function: Function, made: Sample) -> str:
    """The outputs are those of the equations."""
    got = called(function, made, list(tensors_of(made).values()))
    if len(got) != len(made.outputs):
        return f"{len(got)} outputs, not {len(made.outputs)}"
    found = [
        differs(name, array(output), want, 1e-9, 1e-11)
        for output, (name, want) in zip(got, made.outputs.items(), strict=True)
    ]
    return "; ".join(filter(None, found))


def _gradient(op: Operation, function: Function, made: Sample) -> str:
    """The gradients are the differences of the equations."""
    found = []
    cotangents = cotangents_of(made)
    sizes = oracle.sizes(op, made.tensors, made.parameters).values()
    rounds = prod(prod(size) if isinstance(size, tuple) else size for size in sizes)
    for name, gradient in pulled_back(function, made, tensors_of(made)).items():
        given = (op, made.tensors, cotangents, made.parameters, name)
        got = array(gradient)
        with np.errstate(all="ignore"):
            slopes = partial(oracle.slopes, *given)
            if rounds * got.size > _MOST_ROUNDS and _along_directions(slopes, got):
                continue
            want = oracle.gradient(*given)
        found.append(differs(f"grad_{name}", got, want, _RTOL, _absolute(want)))
    return "; ".join(filter(None, found))


def _absolute(want: Array) -> float:
    """The absolute tolerance: a gradient that is small everywhere is held to its own measure."""
    return 1e-7 * min(1.0, max(1e-3, float(np.abs(want).max(initial=0.0))))


def _along_directions(slopes: Callable[[Sequence[Array]], list[float]], got: Array) -> bool:
    """Whether the gradient is that of the equations along a few directions through all elements.

    A kink that one element meets hides the others: where it is not, each is looked at by itself.
    """
    rng = np.random.default_rng(11)
    signs = [rng.choice((-1.0, 1.0), got.shape) for _ in range(_DIRECTIONS)]
    # Lengths that differ: two errors of opposite signs do not cancel.
    directions = [sign * rng.uniform(0.5, 1.5, got.shape) for sign in signs]
    want = np.asarray(slopes(directions), np.float64)
    sums = np.asarray([np.sum(got * direction) for direction in directions], np.float64)
    return bool(np.allclose(sums, want, _RTOL, _absolute(want)))


_MOST_ROUNDS = 5_000
"""Differences are taken element by element where the loops go round no more often than this."""

_DIRECTIONS = 2


def _of_inputs(function: Function, made: Sample) -> tuple[Function, tuple[Tensor, ...]]:
    """The smooth outputs as a function of the inputs that require a gradient."""
    tensors = tensors_of(made)
    names = inputs_of(tensors)

    def call(*given: Tensor) -> tuple[Tensor, ...]:
        all_of_them = {**tensors, **dict(zip(names, given, strict=True))}
        return tuple(smooth(called(function, made, list(all_of_them.values())), made))

    return call, tuple(t for t in tensors.values() if t is not None and t.requires_grad)


def _gradcheck(function: Function, made: Sample) -> str:
    """Jacobians, backward and forward, are those of central differences."""
    from torch.autograd import gradcheck

    call, inputs = _of_inputs(function, made)
    if inputs and call(*inputs):
        gradcheck(call, inputs, eps=_STEP, rtol=_RTOL, atol=_ATOL, check_forward_ad=True)
    return ""


def _gradgradcheck(function: Function, made: Sample) -> str:
    """The backward has the right derivative itself."""
    from torch.autograd import gradgradcheck

    call, inputs = _of_inputs(function, made)
    if inputs and any(o.requires_grad for o in call(*inputs)):
        gradgradcheck(call, inputs, eps=_STEP, rtol=_RTOL, atol=_ATOL)
    return ""


def _of_derivatives(op: Operation) -> list[tuple[str, Checking]]:
    """The checks of derivatives by differences, which do not know what is detached."""
    if detaches(op):
        return [("reference", partial(unlike_reference, op))]
    return [("gradcheck", _gradcheck), ("gradgradcheck", _gradgradcheck)]


def _batched(function: Function, made: Sample, slack: float = 0.0) -> str:
    """torch.func.vmap over cotangents, and over a gradient's inputs, is a loop."""
    import torch

    call, inputs = _of_inputs(function, made)
    if not inputs or not any(o.requires_grad for o in call(*inputs)):
        return ""
    inputs = tuple(t.detach() for t in inputs)
    outputs, pullback = torch.func.vjp(call, *inputs)[:2]
    scales = torch.tensor([1.0, -0.5], dtype=torch.float64)
    many = tuple(torch.stack([torch.ones_like(o) * s for s in scales]) for o in outputs)
    batched = torch.func.vmap(pullback)(many)
    looped = [pullback(tuple(m[n] for m in many)) for n in range(len(scales))]
    found = _same(batched, looped, slack)

    def total(*given: Tensor) -> Tensor:
        return torch.stack([o.sum() for o in call(*given)]).sum()

    gradient = torch.func.grad(total, tuple(range(len(inputs))))
    shifted = tuple(torch.stack((t, t * 0.99)) for t in inputs)
    batched = torch.func.vmap(gradient)(*shifted)
    looped = [gradient(*(t[n] for t in shifted)) for n in range(2)]
    return "; ".join([*found, *_same(batched, looped, slack)])


def _same(batched: Sequence[Tensor], looped: Sequence[Sequence[Tensor]], slack: float) -> list[str]:
    """Where a batch differs from its elements, one by one."""
    found = [
        differs(f"gradient {k}, batched", array(b[n]), array(one[k]), 1e-9, 1e-11 + slack)
        for n, one in enumerate(looped)
        for k, b in enumerate(batched)
    ]
    return [text for text in found if text]


def _layout(function: Function, made: Sample, slack: float = 0.0) -> str:
    """Strides do not matter, neither those of the inputs nor those of the cotangents."""
    import torch

    plain = pulled_back(function, made, tensors_of(made))
    tensors = tensors_of(made)
    for name, t in tensors.items():
        if t is not None and t.dim() > 0:
            spread = torch.stack((t.detach(), t.detach()), -1)[..., 0]
            spread = spread.mT.contiguous().mT if spread.dim() > 1 else spread
            tensors[name] = spread.requires_grad_(t.requires_grad)
    found = []
    for name, got in pulled_back(function, made, tensors).items():
        found.append(differs(f"grad_{name}", array(got), array(plain[name]), 1e-9, 1e-11 + slack))
    call, inputs = _of_inputs(function, made)
    outputs = [o for o in call(*inputs) if o.requires_grad]
    if outputs:
        expanded = [torch.ones((), dtype=o.dtype).expand(o.shape) for o in outputs]
        dense = [torch.ones_like(o) for o in outputs]
        ones = torch.autograd.grad(
            outputs, inputs, dense, retain_graph=True, materialize_grads=True
        )
        wide = torch.autograd.grad(outputs, inputs, expanded, materialize_grads=True)
        for name, got, want in zip(plain, wide, ones, strict=True):
            found.append(differs(f"grad_{name}", array(got), array(want), 1e-9, 1e-11 + slack))
    return "; ".join(filter(None, found))


def _rounded(op: Operation) -> list[tuple[str, Checking]]:
    """What code loses in float32, off the origin and where it saturates too."""
    shifted = [(name, partial(lost_digits, op, scale, offset)) for name, scale, offset in SHIFTS]
    return [("float32", partial(_float32, op)), *shifted]


def _unchanged(function: Function, made: Sample) -> str:
    """Neither inputs nor cotangents are written to."""
    import torch

    tensors = tensors_of(made)
    outputs = [o for o in called(function, made, list(tensors.values())) if o.requires_grad]
    inputs = [t for t in tensors.values() if t is not None and t.requires_grad]
    cotangents = [torch.full_like(o, 0.5) for o in outputs]
    if outputs:
        torch.autograd.grad(outputs, inputs, cotangents, allow_unused=True)
    changed = [name for name, t in tensors.items() if t is not None and t._version]
    changed += ["a cotangent" for c in cotangents if c._version or bool((c != 0.5).any())]
    return f"written to: {', '.join(changed)}" if changed else ""


def _alone(function: Function, made: Sample, slack: float = 0.0) -> str:
    """An input that alone requires a gradient gets the same one."""
    whole = pulled_back(function, made, tensors_of(made))
    found = []
    for name in whole:
        tensors = tensors_of(made)
        for other, t in tensors.items():
            if t is not None and other != name and t.requires_grad:
                tensors[other] = t.detach()
        got = pulled_back(function, made, tensors)
        found.append(
            differs(f"grad_{name} alone", array(got[name]), array(whole[name]), 1e-9, 1e-11 + slack)
        )
    return "; ".join(filter(None, found))


def _float32(op: Operation, function: Function, made: Sample) -> str:
    """In float32 outputs and gradients are of that type and near those of float64.

    They may be as far off as rounding of the equations as written explains.
    """
    import torch

    wrong, far = [], []
    single = tensors_of(made, "float32")
    for name, output in zip(
        made.outputs, called(function, made, list(single.values())), strict=True
    ):
        if output.is_floating_point():
            if output.dtype != torch.float32:
                wrong.append(f"{name} is {output.dtype}")
            far.append(differs(name, array(output), made.outputs[name], 1e-3, 1e-4))
    double = pulled_back(function, made, tensors_of(made))
    for name, got in pulled_back(function, made, single).items():
        far.append(differs(f"grad_{name}", array(got), array(double[name]), 1e-3, 1e-3))
    if any(far) and not lost_digits(op, 1.0, 0.0, function, made):
        far = []
    return "; ".join(filter(None, [*wrong, *far]))


_CHECKS: tuple[tuple[str, Checking], ...] = (
    ("batched", _batched),
    ("layout", _layout),
    ("unchanged", _unchanged),
    ("alone", _alone),
)
