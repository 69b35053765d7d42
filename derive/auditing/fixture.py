"""The pytest fixture ``derive_audit``: a test fails with the report of what is wrong.

def test_backward(derive_audit):
    derive_audit(MyFunction, torch.randn(3, 4), torch.randn(4))
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from derive.auditing.report import Report


@pytest.fixture
def derive_audit() -> Callable[..., Report]:
    """Audits a Function at example inputs, and fails the test where it is wrong."""

    def judge(function: Any, *examples: Any, reference: Any = None) -> Report:
        from derive.auditing.judged import audit

        # What torch tells of its traces would stand below the report of a test that fails.
        traces = logging.getLogger("torch.__trace")
        was, traces.disabled = traces.disabled, True
        try:
            report = audit(function, *examples, reference=reference)
        finally:
            traces.disabled = was
        if not report.right:
            pytest.fail(str(report), pytrace=False)
        return report

    return judge
