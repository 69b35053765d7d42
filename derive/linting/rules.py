"""All rules, by their codes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from inspect import cleandoc

from derive.linting import (
    cotangents,
    double_backward,
    needs_input_grad,
    returned_gradients,
    saved_state,
)
from derive.linting.finding import At
from derive.linting.source_model import FunctionReading

Rule = Callable[[FunctionReading], Iterator[At]]

RULES: dict[str, Rule] = {
    "DRV101": saved_state.tensor_on_ctx,
    "DRV102": saved_state.second_save,
    "DRV103": saved_state.unmarked_change,
    "DRV201": returned_gradients.number_of_gradients,
    "DRV202": returned_gradients.number_of_cotangents,
    "DRV203": needs_input_grad.unbound_gradient,
    "DRV204": needs_input_grad.other_needs,
    "DRV205": needs_input_grad.flag_of_copy,
    "DRV301": cotangents.never_read,
    "DRV302": cotangents.without_cotangent,
    "DRV303": cotangents.changed_cotangent,
    "DRV304": cotangents.changed_saved,
    "DRV305": cotangents.viewed_cotangent,
    "DRV401": double_backward.saved_intermediate,
    "DRV402": double_backward.no_derivative,
}
"""DRV1: what forward keeps; DRV2: what backward takes and returns; DRV3: what it does with
cotangents and saved tensors; DRV4: second derivatives."""


def title(code: str) -> str:
    """Return the first line of a rule's page."""
    return page(code).split("\n")[0]


def page(code: str) -> str:
    """The page of a rule: what, why it is wrong, an example, the mend."""
    return f"{code}: {cleandoc(RULES[code].__doc__ or '')}"
