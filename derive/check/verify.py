"""Verify generated code by the checks of `derive.check.checks`.

A failed check is adjudicated if rounding may be the reason.
"""

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

from derive.check.check import Column, NotApplicable
from derive.check.checks import GRADIENTS, PLAIN, PLAIN_GRADIENTS, QUICK, VALUES
from derive.check.invoke import Function
from derive.check.rounding_adjudication import Verdict, rounding, steadiest, verdict
from derive.check.samples import Sample, cases, sample
from derive.errors import VerificationError
from derive.memory import loaded
from derive.module.docstrings import blocks_of, module_style
from derive.notation.operation import Operation

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
    function: Function = loaded(op.name, text)
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
    import torch

    check, reason = partial(column.check, op), ""
    with (
        torch.random.fork_rng(devices=()),
        _one_thread(),
        warnings.catch_warnings(),
        np.errstate(all="ignore"),
    ):
        # A warning of torch itself, on first use of forward mode.
        warnings.simplefilter("ignore", DeprecationWarning)
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
    import torch

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
    op: Operation,
    detail: str,
    order: int,
    check: _Asking,
    function: Function,
    made: Sample,
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
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
