"""What many tests ask of the operations of the catalog, found once."""

from dataclasses import replace
from functools import cache

from kit.shared import shared

from derive import api
from derive.check import samples
from derive.check.samples import Case, Sample
from derive.notation.operation import Operation

_found = cache(samples.sample)


def sample(op: Operation, case: Case) -> Sample:
    """As `derive.check.samples.sample`, with tensors that the caller may change."""
    made = _found(op, case)
    own = {name: None if array is None else array.copy() for name, array in made.tensors.items()}
    return replace(made, tensors=own)


derivation = shared(api.derivation)
"""As `derive.derivation`, for operations of the catalog found by all processes together."""
