"""Conditions that leave one position: which, of one index or several, and what comes of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from kit.lowered import assert_right

from derive import derivation, load, parse, read_torch, source
from derive.algebra.expr import Delta, Index, Rel, Size, num
from derive.algebra.inequalities import Bounds
from derive.algebra.poly import add, atom, constant, scale
from derive.calculus.position_cases import case_of, only_case

BOUNDS = Bounds({"t": num(3), "u": num(4), "v": num(2), "n": None})
t, u, v, n = (Index(name, name) for name in "tuvn")


def rel(op, left, right):
    return Rel(op, *(e if hasattr(e, "terms") else constant(e) for e in (left, right)))


def row_major(*parts):
    return add(constant(0), *(scale(atom(i), c) for c, i in parts))


@pytest.mark.parametrize("position", range(12))
def test_a_row_major_position_has_a_digit_for_each_index(position):
    case = case_of(BOUNDS, rel("==", row_major((4, t), (1, u)), position))
    assert not case.denied
    assert case.at(position) == (Delta(t, num(position // 4)), Delta(u, num(position % 4)))
    turned = case_of(BOUNDS, rel("!=", position, row_major((4, t), (1, u))))
    assert turned.denied and turned.indices == case.indices and turned.position == position


@pytest.mark.parametrize(
    "condition",
    [
        rel("==", row_major((3, t), (1, u)), 5),
        rel("==", row_major((4, t)), 4),
        rel("==", row_major((4, t), (-1, u)), 4),
        rel("==", row_major((1, n)), 0),
        rel("==", row_major((1, t)), 3),
        rel("==", row_major((1, t)), -1),
        rel("<=", row_major((1, t)), 1),
        rel("==", row_major((1, t)), row_major((1, u))),
        rel("==", row_major((1, t)), atom(Size("n"))),
    ],
)
def test_others_are_no_cases(condition):
    assert case_of(BOUNDS, condition) is None
    assert only_case(BOUNDS, condition, ()) is None


def test_what_is_left_when_others_are_denied():
    first, second = (rel("!=", row_major((1, t)), m) for m in (0, 2))
    assert only_case(BOUNDS, first, ()) is None
    assert only_case(BOUNDS, first, (second,)) == (Delta(t, num(1)),)
    assert only_case(BOUNDS, first, (rel("!=", row_major((1, u)), 2),)) is None
    assert only_case(BOUNDS, rel("!=", row_major((1, v)), 0), ()) == (Delta(v, num(1)),)


def test_a_delta_elsewhere_is_excluded():
    case = case_of(BOUNDS, rel("!=", row_major((4, t), (1, u)), 6))
    assert case.excludes(Delta(t, num(0))) and case.excludes(Delta(u, num(3)))
    assert not case.excludes(Delta(t, num(1))) and not case.excludes(Delta(v, num(0)))


CHOSEN = (
    "op f(x[n], z[n]; size(t)=3) -> y\n"
    "y[n,t] = where(t==0, x[n]*z[n], where(t==1, sin(x[n]), z[n]**2))",
    "op f(x[n], z[n]; size(t)=2, size(u)=3) -> y\n"
    "y[t,n,u] = where(3*t+u==0, x[n], where(3*t+u==1, z[n]**2, where(3*t+u==2, sin(x[n]), "
    "where(3*t+u==3, x[n]*z[n], where(3*t+u==4, exp(z[n]), 1)))))",
    "op f(x[n], z[n]; size(t)=3) -> y\n"
    "c[n,t] = where(t!=1, where(t==0, x[n], z[n]), x[n]*z[n])\n"
    "y[n] = c[n,2]*c[n,1] + c[n,0]",
)


@pytest.mark.parametrize("text", CHOSEN)
def test_chosen_values_are_stacked_without_masks(text):
    assert_right(text)
    code = source(parse(text))
    assert "mask" not in code and "_where" not in code


def test_some_cases_and_others():
    assert_right(
        "op f(x[n], w[t,n]; size(t)=4) -> y\ny[t,n] = where(t==0, x[n]**2, where(t==2, 1, w[t,n]))",
        x=np.array([0.5, 1.5, -0.5]),
        w=np.random.default_rng(0).uniform(0.5, 1.5, (4, 3)),
    )


def rotated(q):
    w, x, y, z = (q / q.norm(dim=-1, keepdim=True)).unbind(-1)
    rows = [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)]
    rows += [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)]
    rows += [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)]
    return torch.stack(rows, -1).view(-1, 3, 3)


def test_a_stack_that_is_viewed_as_a_matrix():
    q = torch.tensor(np.random.default_rng(0).normal(size=(5, 4)), requires_grad=True)
    op = read_torch(rotated, q.detach())
    y, expected = load(op)(q), rotated(q)
    torch.testing.assert_close(y, expected)
    G = torch.rand_like(y)
    found, right = (torch.autograd.grad(e, q, G, create_graph=True)[0] for e in (y, expected))
    torch.testing.assert_close(found, right)
    seconds = (torch.autograd.grad(g.square().sum(), q)[0] for g in (found, right))
    torch.testing.assert_close(*seconds)
    assert "Σₖ" not in "".join(map(str, derivation(op).gradients.values()))
