"""Every formula of the catalog is as it was read and found good, and names nothing of its own."""

import re

from golden import KERNELS_PAGE, formulas, kernels_page, of_options, whole, written
from kit import shared
from kit.command import ROOT
from kit.each import each_operation

from derive import catalog
from derive.algebra.expr import Composite, Index
from derive.module.runtime import FILE, runtime
from derive.notation.operation import Operation

NOTATION = {"and", "not", "or", "size"}


@each_operation()
def test_formulas_and_module_are_those_of_the_files(op):
    renew = "to renew the file on purpose: python tests/golden.py --write"
    assert op.name in written(), f"{op.name} is not in tests/formulas.txt; {renew}"
    assert formulas(op) == written()[op.name], renew
    module = (ROOT / "generated" / f"{op.name}.py").read_text(encoding="utf-8")
    assert module == shared.written(op), "to renew it: derive generate"


def test_the_file_has_the_operations_of_the_catalog_in_order_and_no_others():
    assert list(written()) == list(catalog.names())


def test_the_folder_has_their_modules_and_what_these_share():
    texts = {p.name: p.read_text(encoding="utf-8") for p in (ROOT / "generated").glob("*.py")}
    assert texts.pop("__init__.py").startswith('"""') and texts.pop(FILE) == runtime()
    assert {*texts} == {f"{name}.py" for name in catalog.names()}


def test_the_page_of_kernels_is_what_is_made_of_their_table():
    renew = "to renew the page: python tests/golden.py --write"
    assert KERNELS_PAGE.read_text(encoding="utf-8") == kernels_page(), renew


def test_the_file_is_what_is_made_of_its_formulas():
    sections = {"mv": "mv\n\n  y[i] = …", "dot": "dot (sum)\n\n  y = …\n\ndot (none)\n\n  z = …"}
    assert whole(sections).count("─" * 80) == 1
    assert whole(written()).endswith("contractions\n")


def letters(op: Operation) -> set[str]:
    """The indices of the inputs, and the parameters."""
    axes = [axis for tensor in op.inputs for axis in tensor.axes]
    parts = [part for axis in axes if isinstance(axis, Composite) for part in axis.args]
    indices = {i.name for i in (*axes, *parts) if isinstance(i, Index)}
    return indices | {parameter.name for parameter in op.parameters}


@each_operation(together=True)
def test_indices_are_those_of_the_specification(op):
    """What stands in brackets is in the equations already, but for primes."""
    for text in of_options(op):
        equations, _, gradients = text.partition("\ngradients")
        known = set(re.findall(r"\w+", equations)) | letters(op) | NOTATION
        inside = [word for part in re.findall(r"\[([^\]]*)\]", gradients) for word in words(part)]
        made = set(re.findall(r"^  (\w+)", gradients, re.MULTILINE))
        assert {w for w in inside if not w.isdigit()} <= known | made, text


def words(text: str) -> list[str]:
    return re.findall(r"[^\W\d]\w*", text)
