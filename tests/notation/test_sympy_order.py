"""SymPy has lost the order in which sums and products were written; one is chosen."""

from sympy import Eq, IndexedBase, symbols

import derive

i, j, k = symbols("i j k", integer=True)
A, B, y, z, a = map(IndexedBase, ("A", "B", "y", "z", "a"))


def test_factors_come_as_the_inputs_are_declared():
    for inputs in ([A, B], [B, A]):
        op = derive.Operation("f", Eq(y[i, j], A[i, j] * B[j, i]), inputs=inputs)
        body = str(op).splitlines()[-1]
        assert body.index(str(inputs[0])) < body.index(str(inputs[1]))


def test_the_same_equations_are_the_same_operation():
    one = derive.Operation("f", Eq(y[i], z[i] * a[i] + 1 - a[i]))
    other = derive.Operation("f", Eq(y[i], 1 - a[i] + a[i] * z[i]))
    assert str(one) == str(other)
