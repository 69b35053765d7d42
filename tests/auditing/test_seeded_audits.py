"""Every seeded mistake is found, and all but two are named.

CI takes one of twenty-four, ``-m long`` all.
"""

import pytest
import torch
from kit.right import RIGHT
from kit.right.matrices import CholeskyFactor, SquareRootSPD
from kit.seeded import seeded
from kit.seeded.tables import CONDITIONS, MISTAKES

from derive.auditing.audit import audit_all
from derive.auditing.forward import Subject

UNNAMED = [(CholeskyFactor, "p.diagonal().mul_(0.5)"), (SquareRootSPD, "(roots[:, None] + roots)")]
"""No edit of one place mends them, and their forwards cannot be read."""

OF = {entry.function: entry for entry in RIGHT}


def each(rows, share):
    return pytest.mark.parametrize(
        ("function", "old", "new", "name", "said"),
        [
            pytest.param(
                *row,
                id=f"{n}-{row[0].__name__}-{row[3]}",
                marks=[pytest.mark.long][n % share == 0 :],
            )
            for n, row in enumerate(rows)
        ],
    )


def audited(function, old, new, several=False):
    """The report, where a gradient is wanted in every float argument that may have one."""
    torch.manual_seed(0)
    entry, wrong = OF[function], seeded(function, old, new)
    made = [make() for make in (entry.example, *(entry.oracle_examples if several else ()))]
    calls = [
        [
            a.requires_grad_() if _is_float(a) and name not in entry.constants else a
            for name, a in zip(Subject(function).names(len(args)), args, strict=True)
        ]
        for args in made
    ]
    return audit_all(wrong, calls, entry.reference)


def _is_float(value):
    return isinstance(value, torch.Tensor) and value.is_floating_point()


@each(MISTAKES, 24)
def test_a_mistake_is_wrong(function, old, new, name, said):
    report = audited(function, old, new)
    rows = [row for row in report.rows if row.input.split("[")[0] == name]
    assert any(row.verdict == "wrong" for row in rows), str(report)
    if (function, old) not in UNNAMED:
        assert any(row.wrong and not row.wrong.startswith("it is off") for row in rows), str(report)


@each(CONDITIONS, 2)
def test_a_mistake_of_some_uses_is_met(function, old, new, name, said):
    report = audited(function, old, new, several=True)
    assert report.verdict != "right", str(report)
