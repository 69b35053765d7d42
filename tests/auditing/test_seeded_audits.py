"""Every seeded mistake is found, and all but two are named.

CI takes one of forty-eight at a time, ``-m long`` all.
"""

from functools import partial

import pytest
import torch
from kit.each import in_turns
from kit.right import OF
from kit.seeded import seeded
from kit.seeded.tables import CONDITIONS, MISTAKES

from derive.auditing.audit import audit_all
from derive.auditing.forward import Subject

UNNAMED = [
    ("CholeskyFactor", "p.diagonal().mul_(0.5)"),
    ("SquareRootSPD", "(roots[:, None] + roots)"),
]
"""No edit of one place mends them, and their forwards cannot be read."""
SLOW = ("Bisection", "DeltaRule", "FixedPoint")
"""Their reports take 10 to 20 s: a loop has hundreds of operations."""

each = partial(pytest.mark.parametrize, ("function", "old", "new", "name"))


def audited(function, old, new, several=False):
    """The report, where a gradient is wanted in every float argument that may have one."""
    torch.manual_seed(0)
    entry = OF[function]
    wrong = seeded(entry.function, old, new)
    made = [make() for make in (entry.example, *(entry.oracle_examples if several else ()))]
    calls = [
        [
            a.requires_grad_() if _is_float(a) and name not in entry.constants else a
            for name, a in zip(Subject(entry.function).names(len(args)), args, strict=True)
        ]
        for args in made
    ]
    return audit_all(wrong, calls, entry.reference)


def _is_float(value):
    return isinstance(value, torch.Tensor) and value.is_floating_point()


@each(
    in_turns([row for row in MISTAKES if row[0] not in SLOW], 48)
    + [pytest.param(*row, marks=pytest.mark.long) for row in MISTAKES if row[0] in SLOW]
)
def test_a_mistake_is_wrong(function, old, new, name):
    report = audited(function, old, new)
    rows = [row for row in report.rows if row.input.split("[")[0] == name]
    assert any(row.verdict == "wrong" for row in rows), str(report)
    if (function, old) not in UNNAMED:
        assert any(row.wrong and not row.wrong.startswith("it is off") for row in rows), str(report)


@each(in_turns(CONDITIONS, 4))
def test_a_mistake_of_some_uses_is_met(function, old, new, name):
    report = audited(function, old, new, several=True)
    assert report.verdict != "right", str(report)
