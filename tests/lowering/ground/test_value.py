"""Tensors in code with an index for each axis, fitted to the axes of others."""

from derive.algebra.expr import Index
from derive.lowering.ground.value import Frame, Value, broadcast
from derive.program.torch_ir import Binary, Name, literal, text

i, j, k = (Index(name, name) for name in "ijk")
x = Name("x")


def fitted(axes, order):
    made = Frame().fit(Value(x, axes), order)
    return text(made.code)


def test_axes_are_aligned_at_the_right_and_an_index_wins():
    assert broadcast((i, None), (j,)) == (i, j)
    assert broadcast((), (i, j)) == (i, j)


def test_axes_come_into_the_order_that_is_asked_for():
    assert fitted((i, j), (i, j)) == "x"
    assert fitted((i, j), (j, i)) == "x.mT"
    assert fitted((i,), (i, j)) == "x.unsqueeze(1)"
    assert fitted((j,), (i, j)) == "x"
    assert fitted((i, j, k), (k, i, j)) == "x.permute(2, 0, 1)"


def test_what_is_asked_of_an_axis_of_size_1_keeps_it():
    flat = Frame().squeeze(Value(x, (i, None)))
    positive = Value(Binary(">", flat.code, literal(0)), flat.axes, "bool")
    assert text(Frame().fit(positive, (i, j)).code) == "x > 0"
