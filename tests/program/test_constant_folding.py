"""Code says nothing twice, and computes nothing that is known when it is written."""

import pytest
import torch
from kit.each import each_row
from kit.torch_code import torch_code

from derive import load, parse, source
from derive.program.constant_folding import asked_once, folded
from derive.program.torch_ir import Binary, Conditional, FunctionCall, Name, literal, text

a, b, m, n = map(Name, "abmn")


def where(*args):
    return FunctionCall("torch.where", args)


FOLDED = {
    "a minimum": (torch_code("min(4 - 1, 3)"), "3"),
    "the same twice": (torch_code("max(a, a)"), "a"),
    "a test": (torch_code("a if 1 != 0 else b"), "a"),
    "a test with a name": (
        Conditional(Binary("and", torch_code("2 < 3"), n), a, b),
        "a if n else b",
    ),
    "a test that fails": (Conditional(Binary("and", n, torch_code("3 < 3")), a, b), "b"),
    "a choice in a choice": (where(m, where(m, a, literal(1)), b), "torch.where(m, a, b)"),
    "a choice beside a choice": (where(m, a, where(m, literal(1), n)), "torch.where(m, a, n)"),
    "a tensor that is left out": (
        where(m, where(m, a, b), literal(0)),
        "torch.where(m, torch.where(m, a, b), 0)",
    ),
    "a double negation": (torch_code("~~m"), "m"),
}


@each_row("case", FOLDED)
def test_what_is_known_is_folded(case):
    code, expected = FOLDED[case]
    assert text(folded(code)) == expected


KEPT = {
    "a quotient": torch_code("2 / 3"),
    "decimals": torch_code("0.1 * 3"),
    "other masks": torch_code("m & n & a"),
    "a choice by another mask": where(m, where(n, a, b), literal(0)),
    "a choice of the negation": where(m, where(torch_code("~m"), a, b), literal(0)),
}


@pytest.mark.parametrize("case", KEPT)
def test_what_is_not_known_is_not(case):
    assert folded(KEPT[case]) is KEPT[case]


QUATERNION = """op f(q[n,k], r[n,k]; size(k)=4) -> y
y[n,k] = where(k == 0, q[n,0]*r[n,0] - q[n,1]*r[n,1], where(k == 1, q[n,0]*r[n,1] + q[n,1]*r[n,0],
    where(k == 2, q[n,2], exp(r[n,3]))))"""


def test_positions_of_an_axis_whose_size_is_given_are_asked_nothing():
    code = source(parse(QUATERNION))
    body = code[code.index("def backward") : code.index("\ndef ", code.index("def backward"))]
    for sign in ("any(", "index_select", " if 1", "position", "scatter_add("):
        assert sign not in body, sign
    torch.manual_seed(1)
    q, r = (torch.rand(3, 4, dtype=torch.float64, requires_grad=True) for _ in range(2))
    G = torch.rand(3, 4, dtype=torch.float64)
    parts = (
        q[:, 0] * r[:, 0] - q[:, 1] * r[:, 1],
        q[:, 0] * r[:, 1] + q[:, 1] * r[:, 0],
        q[:, 2],
        r[:, 3].exp(),
    )
    wanted = torch.autograd.grad(torch.stack(parts, 1), (q, r), G)
    found = torch.autograd.grad(load(parse(QUATERNION))(q, r), (q, r), G)
    assert all(map(torch.allclose, found, wanted))


def test_a_question_is_asked_once_on_the_way():
    p, x = Name("p"), Name("x")
    positive, log = Binary(">", p, literal(0)), FunctionCall("math.log", (p,))
    inner = Conditional(positive, log, literal(0))
    code = Conditional(positive, Binary("*", inner, x), inner)
    assert asked_once(code) is Conditional(positive, Binary("*", log, x), literal(0))
