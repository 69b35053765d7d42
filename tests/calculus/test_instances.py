"""Equations found by what they read, and multiples of a sum."""

from __future__ import annotations

import pytest
from kit.chains import CHAINS
from kit.equations import flat, index

import derive
from derive.algebra.expr import Access, Add, Mul, num, tensors
from derive.algebra.poly import ZERO, add, mul
from derive.calculus.build_lets import flatten_operation
from derive.calculus.fold import DefinitionIndex, multiples
from derive.calculus.lets import Let, Lets


def lets_of(text: str) -> Lets:
    return flatten_operation(derive.parse(text))


def plain(let: Let) -> bool:
    return let.kind == "sum"


SMALL = """
op f(x[i], w[i], T[n]: int) -> y, z, c
u[i] = x[i]*w[i]
v[i] = exp(u[i])*x[i]
c = pi/3
y[n] = v[T[n]]*w[T[n]]
z[i] = v[i]*w[i]*exp(x[i])
"""


def test_what_reads_all_that_an_equation_reads_may_hold_it():
    lets = lets_of(SMALL)
    found = DefinitionIndex(lets, plain)
    assert [let.name for let in found.like(lets["u"].body)] == ["u", "c"]
    assert [let.name for let in found.like(lets["v"].body)] == ["v", "c"]
    assert [let.name for let in found.like(lets["z"].body)] == ["u", "c", "z"]
    assert [let.name for let in found.like(lets["c"].body)] == ["c"]


def test_the_tensors_of_an_expression_are_those_of_its_positions_too():
    assert tensors(lets_of(SMALL)["y"].body) == {"v", "T", "w"}


def test_equations_that_do_not_fit_and_those_of_the_engine_are_left_out():
    lets = lets_of("op f(x[i,k]) -> y\ny[i] = max[k](x[i,k]) + logsumexp[k](x[i,k])")
    assert {let.internal for let in lets} == {True, False}
    assert [let.name for let in DefinitionIndex(lets, plain).like(lets["y"].body)] == ["y"]
    assert DefinitionIndex(lets, lambda let: False).like(lets["y"].body) == []


def test_equations_that_come_later_are_found():
    lets, more = lets_of("op f(x[i]) -> q\nq[i] = x[i]*x[i]"), lets_of(SMALL)
    found = DefinitionIndex(lets, plain)
    assert [let.name for let in found.like(more["v"].body)] == ["q"]
    lets.define(more["v"])
    assert [let.name for let in found.like(more["v"].body)] == ["q", "v"]


@pytest.mark.parametrize("name", CHAINS)
def test_few_come_into_question_in_a_network_of_any_depth(name):
    lets = lets_of(CHAINS[name](20))
    found = DefinitionIndex(lets, plain)
    for let in lets.given.values():
        if plain(let):
            like = found.like(let.body)
            assert let in like and len(like) <= 3


i, j = index("i"), index("j")
x, z, y = Access("x", (i,)), Access("A", (i, j)), Access("y", (j,))
BASE = flat(Add((x, z)))[0]


def test_a_multiple_and_the_rest_make_the_whole():
    p = add(mul(flat(Mul((num(2), y)))[0], BASE), flat(Mul((num(3), x)))[0])
    found = list(multiples(p, BASE, lambda q: q))
    assert found
    for multiple, rest in found:
        assert add(multiple.of(BASE), rest) is p
        assert len(rest.terms) < len(p.terms)


def test_half_of_the_sum_is_no_multiple():
    p = flat(Mul((num(2), y, x)))[0]
    assert list(multiples(p, BASE, lambda q: q)) == []
    assert list(multiples(ZERO, BASE, lambda q: q)) == []
