"""All rules, by their codes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from inspect import cleandoc

from derive.linting import cotangents, keeping, needing, returning, twice
from derive.linting.finding import At
from derive.linting.reading import Reading

Rule = Callable[[Reading], Iterator[At]]

RULES: dict[str, Rule] = {
    "DRV101": keeping.tensor_on_ctx,
    "DRV102": keeping.second_save,
    "DRV103": keeping.unmarked_change,
    "DRV201": returning.number_of_gradients,
    "DRV202": returning.number_of_cotangents,
    "DRV203": needing.unbound_gradient,
    "DRV204": needing.other_needs,
    "DRV205": needing.flag_of_copy,
    "DRV301": cotangents.never_read,
    "DRV302": cotangents.without_cotangent,
    "DRV303": cotangents.changed_cotangent,
    "DRV304": cotangents.changed_saved,
    "DRV305": cotangents.viewed_cotangent,
    "DRV401": twice.saved_intermediate,
    "DRV402": twice.no_derivative,
}
"""DRV1: what forward keeps; DRV2: what backward takes and returns; DRV3: what it does with
cotangents and saved tensors; DRV4: second derivatives."""


def title(code: str) -> str:
    """What a rule finds, in one line."""
    return page(code).split("\n")[0]


def page(code: str) -> str:
    """The page of a rule: what, why it is wrong, an example, the mend."""
    return f"{code}: {cleandoc(RULES[code].__doc__ or '')}"
