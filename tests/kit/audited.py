"""The audit of a Function that a test gives as two functions."""

from collections.abc import Callable
from typing import Any

from torch.autograd import Function

import derive
from derive.auditing.report import Report


def audited(
    forward: Callable[..., Any], backward: Callable[..., Any], *examples: Any, **options: Any
) -> Report:
    """The report on a Function of these two."""
    methods = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    return derive.audit(type("Made", (Function,), methods), *examples, **options)
