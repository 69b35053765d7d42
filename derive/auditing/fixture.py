"""The pytest fixture ``derive_audit``: a test fails with the report of what is wrong.

def test_backward(derive_audit):
    derive_audit(MyFunction, torch.randn(3, 4), torch.randn(4))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from derive.auditing.report import Report


@pytest.fixture
def derive_audit() -> Callable[..., Report]:
    """Audit a Function at example inputs, and fail the test if it is wrong.

    The arguments are those of `derive.audit`. With ``strict=True`` a fragile Function fails too.
    """

    def judge(function: Any, *examples: Any, strict: bool = False, **options: Any) -> Report:
        from derive.auditing.audit import audit

        report = audit(function, *examples, **options)
        if report.verdict == "wrong" or (strict and report.verdict == "fragile"):
            pytest.fail(str(report), pytrace=False)
        return report

    return judge
