"""Neighbouring axes as one and one as several: what undoes another is not written."""

from derive.lowering.ground.views import flattened, is_view, substitute_views, unflattened
from derive.program.torch_ir import Literal, MethodCall, Name, Tuple, text

x, y = Name("x"), Name("y")
ONES = (Literal("0"), Literal("1"))
SIZES = Tuple((Literal("2"), Literal("3")))


def test_what_was_taken_apart_is_put_together_by_leaving_it():
    apart = unflattened(x, 1, SIZES)
    assert text(apart) == "x.unflatten(1, (2, 3))"
    assert flattened(apart, 1, 2) is x
    assert text(flattened(x, 0, 1)) == "x.flatten(0, 1)"
    assert flattened(x, 1, 1) is x


def test_a_view_is_known():
    assert is_view(unflattened(x, 1, SIZES)) and is_view(MethodCall(x, "flatten", ONES))
    assert not is_view(MethodCall(x, "exp")) and not is_view(x)


def test_names_are_replaced_and_what_is_superfluous_left_out():
    code = flattened(y, 1, 2)
    assert substitute_views(code, {y: unflattened(x, 1, SIZES)}) is x
