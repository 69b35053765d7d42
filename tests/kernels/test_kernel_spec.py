"""A row: what its equation is of, and the code of its call."""

from derive.kernels.kernel_spec import KernelSpec
from derive.program.torch_ir import Literal, Name, text

SHRINK = KernelSpec(
    "shrunk", "op f(g, x; t=0.5) -> dx\nu = exp(t*x)\ndx = g*u", "torch.f(g, x, t, mode='a')", "g"
)
SUMMED = KernelSpec("summed", "y[i] = x[i]/sum[j](exp(x[j]))", "torch.g(x, i, x.dtype)")


def test_arguments_are_told_in_the_order_of_the_equation():
    assert SHRINK.arguments == ("g", "x", "t")
    assert SHRINK.functions == {"exp"}
    assert SHRINK.along == ()
    assert [i.name for i in SUMMED.along] == ["i"]


def test_the_call_is_of_any_code():
    code = SHRINK.code({"g": Name("G"), "x": Name("X"), "t": Literal("3")})
    assert text(code) == 'torch.f(G, X, 3, mode="a")'
    assert text(SUMMED.code({"x": Name("X"), "i": Literal("-1")})) == "torch.g(X, -1, X.dtype)"


def test_an_equation_is_told_in_one_line():
    assert SHRINK.states == "u = exp(t*x); dx = g*u"
