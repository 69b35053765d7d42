"""The table of checks: a name, and the function, which states what holds of code that passes."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, wraps
from itertools import chain
from typing import Any

import numpy as np

from derive.check import call_checks, derivatives, precision, tracing
from derive.check.invoke import Column, Function, NotApplicable
from derive.check.lazy import torch
from derive.check.rounding_adjudication import Verdict, rounding, steadiest, verdict
from derive.check.samples import Sample, cases, sample
from derive.errors import VerificationError
from derive.memory import loaded
from derive.module.docstrings import blocks_of, module_style
from derive.module.runtime import standalone
from derive.notation.operation import Operation

_off = partial(precision.lost_digits, offset=100.0)
_saturated = partial(precision.lost_digits, scale=20.0)
_HALF = "bfloat16", "float16"

VALUES = (
    Column("value", derivatives.value, order=0),
    Column("gradient", derivatives.gradient, order=1),
)
"""Run before a module is written, on every case."""

GRADIENTS = (
    *VALUES,
    Column("reference", derivatives.reference, order=2),
    Column("gradcheck", derivatives.gradcheck, order=1),
    Column("gradgradcheck", derivatives.gradgradcheck, order=2),
    Column("subclass", call_checks.subclass, rounds=True),
)
"""Run before a module is written, on the typical case."""

QUICK = (
    *GRADIENTS,
    Column("forward", derivatives.forward, rounds=True),
    Column("vmap", call_checks.batched, rounds=True),
    Column("batched", call_checks.together, rounds=True),
    Column("strides", call_checks.strides, rounds=True),
    Column("subsets", call_checks.subsets, rounds=True),
    Column("missing", call_checks.missing, rounds=True),
    Column("twice", call_checks.twice, rounds=True, typical=True),
    Column("device", call_checks.default_device, rounds=True, typical=True),
    Column("unchanged", call_checks.unchanged),
    Column("in-place", call_checks.in_place, rounds=True, typical=True),
    Column("saved", call_checks.saved),
    Column("float32", precision.float32),
    Column("float32-offset", _off, said="the same with inputs far from 0"),
    Column("float32-saturated", _saturated, said="the same with large inputs"),
)
"""Run by ``derive verify``."""

ALL = (
    *QUICK,
    *(
        Column(
            dtype,
            partial(precision.low, dtype=dtype),
            said=f"{dtype} results are close to float64",
            typical=True,
        )
        for dtype in _HALF
    ),
    Column("mixed", precision.mixed, typical=True),
    Column(
        "autocast",
        precision.autocast,
        said="the same under autocast to bfloat16, with and without the backward in it",
        typical=True,
    ),
    Column("meta", tracing.without_data, typical=True),
    Column("make_fx", tracing.traced, rounds=True, typical=True),
    Column("compile", tracing.compiled, rounds=True, typical=True),
    Column("export", tracing.exported, rounds=True, typical=True),
    Column("onnx", tracing.in_onnx, typical=True),
    Column("dtensor", tracing.replicated, rounds=True, typical=True),
)
"""Run by ``derive verify --all``."""

_OF_ANY_MODULE = ("vmap", "strides", "subsets", "missing", "unchanged", "meta", "export")
"""The checks of any module, beside those of its values and gradients."""

PLAIN_GRADIENTS = (
    *VALUES,
    *(c for c in GRADIENTS if c.name == "reference"),
    Column(
        "gradcheck",
        partial(derivatives.gradcheck, forward=False),
        said="Jacobians of reverse mode equal finite differences of the code",
        order=1,
    ),
    *(c for c in GRADIENTS if c.name == "gradgradcheck"),
)
"""The same as `GRADIENTS`, for a plain module."""

PLAIN = (
    *PLAIN_GRADIENTS,
    *(c for c in ALL if c.name in _OF_ANY_MODULE),
    Column(
        "batched",
        partial(call_checks.together, lacking=("einsum", "detach", "flatten", "unflatten")),
        rounds=True,
    ),
    Column("compile", partial(tracing.compiled, repeated=False), rounds=True, typical=True),
    *(
        Column(
            dtype,
            partial(precision.runs_low, dtype=dtype),
            said=f"{dtype} runs, and gives {dtype}",
            typical=True,
        )
        for dtype in _HALF
    ),
)
"""What holds of a plain module."""

# ------------------------------------------------------------------------------------------- verify
# Verify generated code by the checks of `derive.check.checks`.
#
# A failed check is adjudicated if rounding may be the reason.

_Asking = Callable[[Function, Sample], str]
"""A check of one operation."""

_SEED = 20
"""The seed of torch's generator, which draws gradgradcheck's cotangents."""
_SMALL = 2
"""The block size, smaller than any sample's."""
_ENOUGH = 2
"""The number of other samples that must pass if the first one is undecided."""
_MISMATCH = re.compile("GradcheckError: Jacobian (computed with forward mode )?mismatch")


@dataclass(frozen=True)
class Check:
    """The result of one check of one option.

    ``detail`` is the difference found, ``reason`` is why the check does not apply.
    """

    operation: str
    option: str | None
    case: str
    check: str
    ok: bool
    detail: str = ""
    reason: str = ""


def load_source(op: Operation, text: str) -> Function:
    """Return the public function of the generated module; with blocks, their size is small."""
    function: Function = loaded(op.name, standalone(text))
    return function if blocks_of(text) is None else _in_blocks(function)


def _in_blocks(function: Function) -> Function:
    def small(*tensors: Any, **parameters: Any) -> Any:
        return function(*tensors, block=_SMALL, **parameters)

    return wraps(function)(small)


def verify_source(op: Operation, text: str) -> None:
    """Raise a VerificationError unless the module computes op and its gradients."""
    columns = PLAIN_GRADIENTS if module_style(text) == "plain" else GRADIENTS
    for check in gradients_of(op, load_source(op, text), columns=columns):
        if not check.ok:
            option = "" if check.option is None else f" ({check.option})"
            raise VerificationError(
                f"{op.name}{option}: {check.check} differs, {check.case}\n{check.detail}"
            )


def columns_of(text: str, columns: Sequence[Column]) -> Sequence[Column]:
    """Return those of the columns that hold of a module of this text, in its style."""
    if module_style(text) != "plain":
        return columns
    asked = {column.name for column in columns}
    return [column for column in PLAIN if column.name in asked]


def gradients_of(
    op: Operation, function: Function, seed: int = 0, columns: Sequence[Column] = GRADIENTS
) -> Iterator[Check]:
    """Check values and gradients on every case, all of the columns on the typical one."""
    for case in cases(op):
        made = sample(op, case, seed)
        for column in columns if case.label == "typical" else VALUES:
            yield _check_result(op, column, function, made)


def checks_of(
    op: Operation, function: Function, seed: int = 0, columns: Sequence[Column] = QUICK
) -> Iterator[Check]:
    """Run the checks on every case that they apply to."""
    for case in cases(op):
        asked = [c for c in columns if case.label == "typical" or not c.typical]
        if asked:
            made = sample(op, case, seed)
            yield from (_check_result(op, column, function, made) for column in asked)


def _check_result(op: Operation, column: Column, function: Function, made: Sample) -> Check:
    """Return the result of a check, adjudicated (`derive.check.rounding_adjudication`) if it fails.

    The judges say whether the code is wrong at this sample. Where they cannot tell, they are
    asked at others, the best conditioned first: it is right if it passes at some of them. All
    random numbers of torch have a seed, and the caller's are left alone.
    """
    check, reason = partial(column.check, op), ""
    with (
        torch.random.fork_rng(devices=()),
        _one_thread(),
        warnings.catch_warnings(),
        np.errstate(all="ignore"),
    ):
        # A warning of torch itself, on first use of forward mode.
        warnings.filterwarnings("ignore", "`torch.jit.script` is deprecated")
        # A warning that torch vmaps the derivative of unfold in a loop.
        warnings.filterwarnings("ignore", "There is a performance drop", UserWarning)
        try:
            detail, numerical = _run_check(check, function, made)
            if detail and numerical and column.order is not None:
                detail = _adjudicate(op, detail, column.order, check, function, made)
            elif detail and numerical and column.rounds:
                slack = rounding(function, made)
                detail, _ = _run_check(partial(check, slack=slack), function, made)
        except NotApplicable as why:
            detail, reason = "", str(why)
        if detail:
            detail = f"{detail}\n{made}" if str(made) not in detail else detail
    asked = (op.name, made.case.option, made.case.label, column.name)
    return Check(*asked, not detail, detail, reason)


def _run_check(check: _Asking, function: Function, made: Sample) -> tuple[str, bool]:
    """Run a check: its difference or error, and whether that may be numerical."""
    # Seed the CPU generator only, since only that one is forked.
    torch.default_generator.manual_seed(_SEED)
    try:
        detail = check(function, made)
    except NotApplicable:
        raise
    except Exception as error:
        detail = f"{type(error).__name__}: {error}".strip()
        return detail, bool(_MISMATCH.match(detail))
    return detail, " has shape " not in detail and " outputs, not " not in detail


def _adjudicate(
    op: Operation, detail: str, order: int, check: _Asking, function: Function, made: Sample
) -> str:
    """Adjudicate a difference: the error found, or ''."""
    passed, conventional = 0, True
    for n, subject in enumerate(chain((made,), steadiest(op, made.case))):
        found = detail if n == 0 else _run_check(check, function, subject)[0]
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
    return "" if conventional else f"{detail}\nno sample decides which of the two is right"


@contextmanager
def _one_thread() -> Iterator[None]:
    """Set one thread: samples are small, and threads slow them down."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
