"""SymPy knows a sum over a bare index, whichever of SymPy and derive is imported first."""

import sys

import pytest
from kit.command import run

SUM = """
i, k = symbols("i k", integer=True)
A, y = IndexedBase("A"), IndexedBase("y")
equation = Eq(y[i], Sum(A[i, k], k))
assert str(derive.Operation("total", equation)) == "op total(A[i, k]) -> y\\ny[i] = sum[k](A[i, k])"
"""
NAMES = "from sympy import Eq, IndexedBase, Sum, symbols"
ORDERS = {
    "derive first": f"import derive\n{NAMES}",
    "SymPy first": f"{NAMES}\nimport derive",
    "a part of SymPy first": f"import derive\nfrom sympy.concrete import Sum\n{NAMES}",
}


@pytest.mark.parametrize("order", ORDERS)
def test_a_bare_index_is_the_whole_axis(order):
    done = run(sys.executable, "-c", ORDERS[order] + SUM)
    assert done.returncode == 0, done.stderr


def test_sympy_is_imported_as_ever():
    code = (
        "import sys, derive, sympy\n"
        "assert sympy.__spec__.loader is sympy.__loader__\n"
        "assert type(sympy.__loader__).__name__ == 'SourceFileLoader'\n"
        "assert not any('derive' in type(finder).__module__ for finder in sys.meta_path)\n"
    )
    done = run(sys.executable, "-c", code)
    assert done.returncode == 0, done.stderr


def test_without_sympy_the_error_is_that_of_the_import(tmp_path):
    code = "import sys, derive; sys.path[:] = []; import sympy"
    done = run(sys.executable, "-c", code)
    assert "No module named 'sympy'" in done.stderr
