"""Translate errors of the engine into the names of the user."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from derive.errors import LimitError, LoweringError
from derive.notation.operation import Operation
from derive.reports.formula import Formula


@contextmanager
def translating_errors(op: Operation, display_names: Mapping[str, str]) -> Iterator[None]:
    """Re-raise lowering and limit errors with the user's names and equations."""
    try:
        yield
    except LimitError as error:
        raise LimitError(_in_given_names(str(error), display_names)) from None
    except LoweringError as error:
        message = _in_given_names(str(error), display_names)
        equations = "".join(f"\n  {Formula(e.name, e.axes, e.body)}" for e in op.equations)
        raise LoweringError(f"{op.name}: {message}\nin{equations}") from None


def _in_given_names(message: str, display_names: Mapping[str, str]) -> str:
    return re.sub(r"@?\b[tpie]\d{3,}(~\w+)?\b", lambda m: display_names.get(m[0], m[0]), message)
