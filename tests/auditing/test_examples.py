"""Where the examples differ in a flag or a choice, a mistake is said of the calls that have it."""

import pytest
import torch
from kit.each import in_turns
from kit.right import OF
from kit.seeded import seeded

from derive.auditing.audit import audit_all

MISTAKES = [
    (
        "ReducedHuber",
        'if ctx.reduction == "mean"',
        "if True",
        "where reduction='sum': the factor 1/(size(n)·size(c)) is too many",
    ),
    ("SmoothedCrossEntropy", " * g\n", "\n", "where reduction='sum': the factor g is missing"),
    (
        "NormOfOrder",
        'ctx.order == "one"',
        "False",
        "where order='one': the factor first is too many",
    ),
    ("GLUChannels", "ctx.dim), None", "1), None", "where dim=-1: it has the shape"),
]


def audited(function, old, new):
    torch.manual_seed(0)
    entry = OF[function]
    calls = [make() for make in (entry.example, *entry.oracle_examples)]
    return audit_all(seeded(entry.function, old, new), calls, entry.reference)


@pytest.mark.parametrize(("function", "old", "new", "said"), in_turns(MISTAKES, 2))
def test_the_calls_that_are_wrong_are_told_apart(function, old, new, said):
    report = audited(function, old, new)
    assert report.rows[0].wrong.startswith(said), str(report)


def test_a_mistake_of_every_call_has_no_condition():
    report = audited("ReducedHuber", "return slope, -slope", "return slope, slope")
    assert report.rows[1].wrong == "the sign is wrong"
