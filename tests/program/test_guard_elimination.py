"""A guard stands only where the value is read though its condition fails."""

import pytest
from kit.torch_code import torch_code

from derive.algebra.poly import constant
from derive.program.cse import Line
from derive.program.guard_elimination import unguarded
from derive.program.shape_rules import TensorType
from derive.program.torch_ir import Code, FunctionCall, MethodCall, Name, literal, text
from derive.program.types import Types

x, m, n, p = map(Name, "xmnp")


def where(mask: Code, then: Code, other: int) -> Code:
    return FunctionCall("torch.where", (mask, then, literal(other)))


GUARDED = where(m, x, 1)
LOG = torch_code("x.log()")


def made(*lines):
    found = unguarded([Line(*line) for line in lines], ["y"], ["p"])
    return [f"{line.name} = {text(line.code)}" for line in found]


def test_the_choice_around_it_makes_it_needless():
    assert made(("y", where(m, torch_code("torch.where(m, x, 1).log()"), 0))) == [
        "y = torch.where(m, x.log(), 0)"
    ]
    lines = [
        ("u", torch_code("torch.where(m, x, 1).log()")),
        ("y", where(m, torch_code("u * x"), 0)),
    ]
    assert made(*lines) == ["u = x.log()", "y = torch.where(m, u * x, 0)"]


def test_conditions_of_a_mask_are_known_by_their_names():
    both = torch_code("m & n")
    lines = [("k", both), ("y", where(Name("k"), torch_code("torch.where(m, x, 1).log()"), 0))]
    assert made(*lines)[-1] == "y = torch.where(k, x.log(), 0)"
    less = where(m, MethodCall(where(both, x, 1), "log"), 0)
    assert made(("y", less)) == ["y = torch.where(m, torch.where(m & n, x, 1).log(), 0)"]


@pytest.mark.parametrize(
    "reader",
    [
        torch_code("u + torch.where(m, u, 0)"),
        where(m, torch_code("u.sum(0)"), 0),
        where(m, torch_code("x.gather(0, u)"), 0),
        where(n, Name("u"), 0),
    ],
    ids=text,
)
def test_what_is_read_elsewhere_keeps_it(reader):
    assert made(("u", GUARDED), ("y", reader))[0] == "u = torch.where(m, x, 1)"


def test_a_name_is_what_its_last_line_says():
    lines = [("u", GUARDED), ("v", Name("u")), ("u", LOG), ("y", where(m, Name("u"), 0))]
    assert made(*lines, ("y", torch_code("y + v")))[0] == "u = torch.where(m, x, 1)"


def test_a_number_stays_a_tensor():
    for number in ("2", "p"):
        inner = where(m, torch_code(number), 1)
        assert made(("y", where(m, inner, 0))) == [
            f"y = torch.where(m, torch.where(m, {number}, 1), 0)"
        ]


def test_what_only_a_guard_asked_is_gone():
    lines = [
        ("k", torch_code("m & n")),
        ("u", where(Name("k"), x, 1)),
        ("v", torch_code("m.any()")),
    ]
    both = torch_code("m & n")
    assert made(*lines, ("y", where(both, Name("u"), 0))) == [
        "u = x",
        "y = torch.where(m & n, u, 0)",
    ]


def test_a_line_without_its_guard_has_the_axes_of_its_code():
    three, four = map(constant, (3, 4))
    types = Types({}, {"x": TensorType((three, constant(1))), "m": TensorType((three, four))})
    declared = TensorType((three, four))
    lines = [Line("y", torch_code(code), type=declared) for code in ("x * m", "x + 1")]
    shapes = []
    for line in lines:
        types.run([line])
        shapes.append(types.shape(Name("y")))
    assert shapes == [(three, four), (three, constant(1))]


@pytest.mark.parametrize(
    "number", ["math.prod(s)", "rt.ieee_divide(1, d)", "2 * len(s)", "1 if c else math.sqrt(d)"]
)
def test_a_number_keeps_the_guard_that_gives_it_axes(number):
    lines = [("u", torch_code(number)), ("y", where(m, where(m, Name("u"), 0), 1))]
    assert made(*lines)[-1] == "y = torch.where(m, torch.where(m, u, 0), 1)"


def test_a_line_may_assign_to_an_argument_what_it_reads_of_it():
    lines = [("x", torch_code("x if c else -x")), ("y", where(m, where(m, x, 0), 1))]
    assert made(*lines)[-1] == "y = torch.where(m, x, 1)"
