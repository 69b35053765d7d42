"""Reductions that keep their axes, by examples of lines before and after."""

import doctest

from kit.each import each_row
from kit.torch_code import torch_code

from derive.program import public_calls, reduced_axes
from derive.program.cse import Line
from derive.program.reduced_axes import with_kept_axes
from derive.program.torch_ir import text


def kept(*lines: str) -> list[str]:
    """The lines afterwards; ``y`` is the result, and ``n`` a number."""
    given = [line.split(" = ") for line in lines]
    made = with_kept_axes([Line(a, torch_code(b)) for a, b in given], {"y"}, {"n"})
    return [f"{line.name} = {text(line.code)}" for line in made]


@each_row("before, after", [
        (("m = x.mean(1)", "y = x - m.unsqueeze(1)"), ("m = x.mean(1, keepdim=True)", "y = x - m")),
        (("y = x * (x.sum(1) / n).sqrt().unsqueeze(1)",),
         ("y = x * (x.sum(1, keepdim=True) / n).sqrt()",)),
        (("v = x.sum(1) / n", "r = v.rsqrt()", "y = x * r.unsqueeze(1)"),
         ("v = x.sum(1, keepdim=True) / n", "r = v.rsqrt()", "y = x * r")),
        (("y = (x.squeeze(1) / n).unsqueeze(1)",), ("y = x / n",)),
        (("y = a.unsqueeze(-1) / b.unsqueeze(-1) * x",), ("y = (a / b).unsqueeze(-1) * x",)),
        (("m = rt.mean_over(x, s_axes)", "y = x - rt.unsqueeze(m, s_axes)"),
         ("m = rt.mean_over(x, s_axes, keepdim=True)", "y = x - m")),
    ])  # fmt: skip
def test_all_readers_insert_the_axes(before, after):
    assert kept(*before) == list(after)


@each_row(
    "lines",
    [
        ("m = x.mean(1)", "y = m + (x - m.unsqueeze(1)).sum(1)"),  # a reader without the axis
        ("m = x.mean(1)", "y = x - m.unsqueeze(0)"),  # another axis
        ("m = x.sum((1, 2))", "y = x - m.unsqueeze(1)"),  # one of two axes
        ("m = x.sum((0, 2))", "y = v * m.unsqueeze(1)"),  # one more in front, a row of y
        ("m = x @ w", "y = x - m.unsqueeze(1)"),  # no reduction
        ("y = x.mean(1)",),  # a result
        ("y = a.unsqueeze(1) / b.unsqueeze(1)",),  # a and b may have unlike numbers of axes
        ("y = x - x.sum(0).cumsum(0).unsqueeze(0)",),  # along an axis, which would be another one
        ("m = x != n", "y = m.sum() + m.unsqueeze(1)"),  # a map, which would be computed twice
    ],
)
def test_others_stay(lines):
    assert kept(*lines) == list(lines)


def test_examples():
    for module in (reduced_axes, public_calls):
        assert doctest.testmod(module).failed == 0
