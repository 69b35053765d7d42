"""Generated code held against the operation by the checks of `derive.check.checks`.

A check that finds a difference is asked again, and a judge where rounding may be the reason.
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
from derive.check.checks import GRADIENTS, QUICK, VALUES
from derive.check.invoke import Function
from derive.check.rounding_adjudication import Verdict, rounding, steadiest, verdict
from derive.check.samples import Sample, cases, sample
from derive.errors import VerificationError
from derive.memory import loaded
from derive.module.docstrings import blocks_of
from derive.notation.operation import Operation

_Asking = Callable[[Function, Sample], str]
"""A check of one operation."""

_SEED = 20
"""Of torch's generator, from which gradgradcheck draws its cotangents."""
_SMALL = 2
"""Positions in a block, fewer than a sample has."""
_ENOUGH = 2
"""Samples at which code has to pass that cannot be judged at its own."""
_MISMATCH = re.compile("GradcheckError: Jacobian (computed with forward mode )?mismatch")


@dataclass(frozen=True)
class Check:
    """One check of one option: ``detail`` says what differs, ``reason`` why it does not apply."""

    operation: str
    option: str | None
    case: str
    check: str
    ok: bool
    detail: str = ""
    reason: str = ""


def load_source(op: Operation, text: str) -> Function:
    """The public function of the generated module of op; one in blocks takes small ones."""
    function: Function = loaded(op.name, text)
    return function if blocks_of(text) is None else _in_blocks(function)


def _in_blocks(function: Function) -> Function:
    def small(*tensors: Any, **parameters: Any) -> Any:
        return function(*tensors, block=_SMALL, **parameters)

    return wraps(function)(small)


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
        for column in GRADIENTS if case.label == "typical" else VALUES:
            yield _settled(op, column, function, made)


def checks_of(
    op: Operation, function: Function, seed: int = 0, columns: Sequence[Column] = QUICK
) -> Iterator[Check]:
    """These checks, on every case that they are asked of."""
    for case in cases(op):
        asked = [c for c in columns if case.label == "typical" or not c.typical]
        if asked:
            made = sample(op, case, seed)
            yield from (_settled(op, column, function, made) for column in asked)


def _settled(op: Operation, column: Column, function: Function, made: Sample) -> Check:
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
        # torch's own, on first use of forward mode.
        warnings.simplefilter("ignore", DeprecationWarning)
        # It vmaps the derivative of unfold in a loop.
        warnings.filterwarnings("ignore", "There is a performance drop", UserWarning)
        try:
            detail, numerical = _asked(check, function, made)
            if detail and numerical and column.order is not None:
                detail = _again(op, detail, column.order, check, function, made)
            elif detail and numerical and column.rounds:
                slack = rounding(function, made)
                detail, _ = _asked(partial(check, slack=slack), function, made)
        except NotApplicable as why:
            detail, reason = "", str(why)
        if detail:
            detail = f"{detail}\n{made}" if str(made) not in detail else detail
    asked = (op.name, made.case.option, made.case.label, column.name)
    return Check(*asked, not detail, detail, reason)


def _asked(check: _Asking, function: Function, made: Sample) -> tuple[str, bool]:
    """What differs, a failure of any kind too, and whether that may be a matter of digits."""
    import torch

    # Of the CPU alone, which is what is forked.
    torch.default_generator.manual_seed(_SEED)
    try:
        detail = check(function, made)
    except NotApplicable:
        raise
    except Exception as error:
        detail = f"{type(error).__name__}: {error}".strip()
        return detail, bool(_MISMATCH.match(detail))
    return detail, " has shape " not in detail and " outputs, not " not in detail


def _again(
    op: Operation,
    detail: str,
    order: int,
    check: _Asking,
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
    return "" if conventional else f"{detail}\nno sample decides which of the two is right"


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
