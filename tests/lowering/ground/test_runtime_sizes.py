"""Sizes are read off the tensor at hand."""

from kit.each import each_row
from kit.lowered import assert_right
from kit.texts import source

from derive import parse
from derive.algebra.expr import Index
from derive.lowering.ground.runtime_sizes import axes_of


def test_a_composite_axis_is_an_index_of_the_whole():
    op = parse("op f(x[n,(t d)], w[d]; size(t)=2) -> y\ny[n,t] = sum[d](x[n,(t d)]*w[d])")
    first, second = axes_of(op, op.inputs[0])
    assert first is Index("n", "n")
    assert second is None or second.extent not in ("n", "d")


@each_row(
    "x, w, y, shape",
    [
        ("n,k", "k,d", "n,k,d", "(*x.shape, w.shape[1])"),
        ("*p,k", "k,d", "*p,k,d", "(*x.shape, w.shape[1])"),
        ("m,n,k", "d,k", "n,k,d", "(*x.shape[1:], w.shape[0])"),
        ("*p,n", "n,k,d", "*p,n,k,d", "(*x.shape, *w.shape[1:])"),
        ("*p,n,m", "k,m", "*p,n,k", "(*x.shape[:-1], w.shape[0])"),
    ],
)
def test_axes_side_by_side_are_read_together(x, w, y, shape):
    text = f"op f(x[{x}], w[{w}]) -> y\ns = sum[{x}](x[{x}])*sum[{w}](w[{w}])\ny[{y}] = s"
    assert f".expand({shape})" in source(parse(text))
    assert_right(text)
