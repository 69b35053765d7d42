"""The catalog is data, and each of its operations is derived in no time."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from time import process_time

import pytest

import derive.catalog
from derive import catalog
from derive.pipeline import derivation, derive_option, options, program_of, source

FOLDER = Path(derive.catalog.__file__).parent
FAMILIES = sorted(path for path in FOLDER.glob("*.py") if path.stem != "__init__")
OPERATIONS = catalog.operations()


def test_the_table_names_every_file_and_every_operation_in_order():
    assert sorted(catalog.FAMILIES) == [path.stem for path in FAMILIES]
    assert [op.name for op in OPERATIONS] == list(catalog.names())


def test_names_are_unique():
    assert len(set(catalog.names())) == len(catalog.names())


@pytest.mark.parametrize("name", catalog.names())
def test_an_operation_is_found_by_name(name):
    assert catalog.find(name).name == name


def test_an_unknown_name_is_not_found():
    assert catalog.find("softmin") is None


def test_only_the_family_of_the_operation_is_imported():
    code = (
        "import sys; from derive import catalog; catalog.find('matmul')\n"
        "print(sorted(m for m in sys.modules if m.startswith('derive.catalog.')))\n"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['derive.catalog.matrix']"


@pytest.mark.parametrize("path", FAMILIES, ids=lambda path: path.stem)
def test_a_family_is_data(path):
    """A docstring, imports, assignments of symbols, and one tuple of Operation(...) literals."""
    docstring, *statements = ast.parse(path.read_text(encoding="utf-8")).body
    assert isinstance(docstring, ast.Expr)
    assert isinstance(docstring.value.value, str)
    for statement in statements:
        assert isinstance(statement, ast.Import | ast.ImportFrom | ast.Assign), ast.dump(statement)
    assignments = [s for s in statements if isinstance(s, ast.Assign)]
    *symbols, operations = assignments
    assert [target.id for target in operations.targets] == ["OPERATIONS"]
    assert isinstance(operations.value, ast.Tuple)
    for element in operations.value.elts:
        assert isinstance(element, ast.Call)
        assert element.func.id == "Operation"
    for symbol in symbols:
        for node in ast.walk(symbol.value):
            if isinstance(node, ast.Call):
                assert node.func.id in {
                    *("symbols", "Symbol", "IndexedBase", "map", "group", "axis", "keep", "Ne"),
                }
    control = ast.Lambda | ast.ListComp | ast.GeneratorExp | ast.IfExp | ast.DictComp | ast.Starred
    assert not [node for s in statements for node in ast.walk(s) if isinstance(node, control)]


@pytest.mark.parametrize("path", FAMILIES, ids=lambda path: path.stem)
def test_a_family_imports_only_the_spec(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.module in (
                *("__future__", "sympy", "derive.spec.heads", "derive.spec.operation"),
            )


@pytest.mark.parametrize("op", OPERATIONS, ids=lambda op: op.name)
def test_every_floating_input_has_a_gradient(op):
    floating = [tensor.name for tensor in op.inputs if tensor.kind == "float"]
    for option, _ in options(op):
        derived = derive_option(op, option)
        assert [derived.lets.say(a.tensor) for a in derived.backward.gradients] == floating
        assert list(derivation(op, option).gradients) == floating


@pytest.mark.parametrize("op", OPERATIONS, ids=lambda op: op.name)
def test_an_operation_is_derived_and_emitted_within_its_time(op):
    """0.3 s of one processor; the best of three, since the machine has other work."""
    best = float("inf")
    for _ in range(3):
        derive_option.cache_clear()
        program_of.cache_clear()
        start = process_time()
        source(op)
        best = min(best, process_time() - start)
        if best < 0.3:
            break
    assert best < 0.3
