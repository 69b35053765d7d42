"""A case as a sample: what the checks of the product take."""

from itertools import zip_longest

from kit.cases.case import GENERATED, Case, generated

from derive import catalog
from derive.check.checks import ALL
from derive.check.invoke import NotApplicable, called
from derive.check.oracle import selected
from derive.check.samples import Case as Typical
from derive.check.samples import Sample

_CHECKS = {column.name: column.check for column in ALL}


def generated_text(name: str) -> str:
    return (GENERATED / f"{name}.py").read_text(encoding="utf-8")


def sample_of(case: Case) -> Sample:
    """The tensors of a case, its parameters, and the outputs that the generated code gives."""
    op = catalog.find(case.name)
    values = [None if x is None else x.numpy() for x in case.tensors()]
    # Optional ones at the end may be left out.
    tensors = dict(zip_longest((t.name for t in op.inputs), values))
    made = Sample(Typical(case.label, None), tensors, dict(case.parameters), {})
    found = called(generated(case.name), made, case.tensors())
    names = selected(op, case.parameters)
    outputs = {name: o.numpy() for name, o in zip(names, found, strict=True)}
    return Sample(made.case, tensors, made.parameters, outputs)


def assert_holds(check: str, case: Case) -> None:
    """What the check states, of the case, if it applies to it."""
    op, made = catalog.find(case.name), sample_of(case)
    try:
        detail = _CHECKS[check](op, generated(case.name), made)
    except NotApplicable:
        return
    assert not detail, detail
