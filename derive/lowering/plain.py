"""Lowers an operation to a plain program: one forward and one backward of public torch calls.

The backward reads inputs and outputs alone, and recomputes all else, so that it has derivatives of
any order. Nothing is chosen for speed: no kernels, no saved statistics, no precisions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from derive.errors import LoweringError
from derive.lowering.assembly import PLAIN_BACKWARD, PLAIN_FORWARD
from derive.lowering.backward import BackwardInput, lower_backward
from derive.lowering.forward import forward_of
from derive.lowering.ground.group_axes import ReadableFrame, RecordedFrame
from derive.lowering.lowering_input import LoweringInput
from derive.program.program import Program


def lower_plain(layouts: Callable[[bool], LoweringInput]) -> Program:
    """Lower forward and backward; ``layouts(True)`` has one axis for each group."""
    try:
        return _lowered(layouts(False))
    except LoweringError:
        return _lowered(layouts(True))


def _lowered(given: LoweringInput) -> Program:
    given = replace(given, lets=given.lets.apart(), frames=ReadableFrame)
    body = forward_of(given, []).body(passes=PLAIN_FORWARD)
    given = replace(given, frames=RecordedFrame)
    return lower_backward(BackwardInput(given, body, given.op.outputs), PLAIN_BACKWARD)
