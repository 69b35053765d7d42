"""Which symbols of SymPy equations are indices, and which are sizes."""

from sympy import Eq, Idx, IndexedBase, Sum, symbols

import derive

i, j, k = symbols("i j k", integer=True)
n, s = symbols("n s", integer=True)
A, x, y = map(IndexedBase, ("A", "x", "y"))


def test_an_index_stands_in_brackets_and_a_parameter_does_not():
    op = derive.Operation("f", Eq(y[i], s * x[i]), parameters={s: 2})
    assert [p.name for p in op.parameters] == ["s"]
    assert [e.name for e in op.extents] == ["i"]


def test_the_upper_bound_of_a_sum_is_a_size():
    op = derive.Operation("f", Eq(y[i], Sum(A[i, k], (k, 0, n - 1)) / n))
    assert not op.parameters
    assert "size(k)" in str(op)


def test_an_idx_is_its_label():
    t = Idx("t")
    op = derive.Operation("f", Eq(y[t], 2 * x[t]))
    assert str(op) == str(derive.parse("op f(x[t]) -> y\ny[t] = 2*x[t]"))
