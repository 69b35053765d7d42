"""What `Bounds` says, against all small sizes and all values of the indices."""

import doctest
import random
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from kit.each import each_row

from derive import parse
from derive.algebra import inequalities as module
from derive.algebra.affine import Polynomial
from derive.algebra.expr import (
    MIRRORED,
    RELATIONS,
    Access,
    Add,
    And,
    Call,
    Expr,
    Index,
    Iverson,
    Mul,
    Not,
    Or,
    Param,
    Rel,
    Size,
    num,
)
from derive.algebra.inequalities import Bounds
from derive.algebra.poly import add, atom, constant, scale
from derive.calculus.guards import bounds_of, given_sizes
from derive.check import oracle
from derive.notation.operation import Extent

k, l, m, t, u = (Index(n, n) for n in "klmtu")  # noqa: E741

JOINED = (Extent("k"), Extent("l"), Extent("m", size=Size("k") + Size("l")))
SHORTER = (Extent("t"), Extent("u", size=Size("t") + num(-2)))
HALVED = (Extent("t"), Extent("u", size=Call("floordiv", (Size("t") + num(-2), num(2))) + num(1)))
SHORTEST = (Extent("k"), Extent("l"), Extent("u", size=Call("minimum", (Size("k"), Size("l")))))

HALF = num(Fraction(1, 2))
LONGEST = Call("maximum", (Size("k"), num(1)))
TURNED = (
    Extent("k"),
    Extent("u", size=Param("n") + -1 * LONGEST * Call("floordiv", (Param("n"), LONGEST))),
)


def less(a: Expr | int, b: Expr | int) -> Rel:
    return Rel("<", num(0) + a, num(0) + b)


KNOWN = [
    (JOINED, less(k, Size("m")), True),
    (JOINED, less(k + Size("l"), Size("m")), True),
    (JOINED, less(m, Size("k")), None),
    (JOINED, less(m, Size("m")), True),
    (JOINED, less(Size("m"), k), False),
    (JOINED, Rel("<=", num(0), l), True),
    (JOINED, Rel("<=", num(0), l - num(1)), None),
    (JOINED, Rel("==", Size("m"), Size("l") + Size("k")), True),
    (JOINED, Rel("!=", Size("m"), k), True),
    (JOINED, Rel("==", Size("m"), k), False),
    (JOINED, Rel("==", m, k), None),
    (JOINED, Not(less(k + Size("k"), Size("k"))), True),
    (JOINED, And((less(k, Size("k")), less(m, Size("k")))), None),
    (JOINED, And((less(m, Size("k")), less(Size("m"), k))), False),
    (JOINED, Or((less(m, Size("k")), less(k, Size("m")))), True),
    (JOINED, Iverson(less(k, Size("m"))), True),
    (SHORTER, less(u + num(2), Size("t")), True),
    (SHORTER, less(u + num(3), Size("t")), None),
    (SHORTER, Rel("<=", num(2), Size("t")), True),
    (SHORTER, Rel("<=", num(3), Size("t")), None),
    (SHORTER, Rel("<", u, Size("t") - num(2)), True),
    (HALVED, less(2 * u + 1, Size("t")), True),
    (HALVED, less(2 * u + 2, Size("t")), None),
    (SHORTEST, less(u, Size("k")), True),
    (SHORTEST, less(k, Size("u")), None),
    (JOINED, Rel("<=", LONGEST, Size("k") + num(1)), True),
    (JOINED, Rel("<=", LONGEST, Size("k")), None),
    (JOINED, Rel("<=", HALF * k - HALF, HALF * Size("k") + num(-1)), True),
    (JOINED, Rel("<=", HALF * k, HALF * Size("k") + num(-1)), None),
    (JOINED, Rel("<", k + HALF, Size("k")), True),
    (JOINED, Rel("==", HALF * k, k + HALF), False),
]


@each_row("extents, condition, holds", KNOWN)
def test_what_is_known(extents, condition, holds):
    assert Bounds(given_sizes(extents)).holds(condition) is holds


@each_row("op", RELATIONS)
@each_row("known", [">", ">=", "<", "<=", "!="])
def test_what_a_call_checks_of_a_number_is_known(op, known):
    """Against all values between -4 and 4 that the check allows."""
    for value, bound in product((-1, 0, 1), repeat=2):
        bounds = Bounds(checked={"p": [(known, Fraction(bound))]})
        allowed = [Fraction(n, 2) for n in range(-8, 9) if RELATIONS[known](Fraction(n, 2), bound)]
        truths = {RELATIONS[op](p, value) for p in allowed}
        want = truths.pop() if len(truths) == 1 else None
        sides = Param("p"), num(value)
        assert (
            bounds.holds(Rel(op, *sides)) is bounds.holds(Rel(MIRRORED[op], *sides[::-1])) is want
        )


def test_a_number_that_a_person_gives_has_no_sign():
    bounds = Bounds(given_sizes(JOINED), ["n"])
    assert bounds.holds(Rel("<=", num(0), Param("n"))) is None
    assert bounds.holds(less(k, Param("n") + Size("k") + -1 * Param("n"))) is True
    assert Bounds(given_sizes(JOINED)).form(Param("x")) is None


def test_what_a_quotient_leaves_is_less_than_the_divisor():
    bounds = Bounds(given_sizes(TURNED), ["n"])
    assert bounds.holds(Rel("<=", Size("u"), Size("k"))) is True
    assert bounds.holds(less(u, Size("k"))) is True
    assert bounds.holds(less(Size("u"), Size("k"))) is None


def test_what_is_read_and_what_is_no_integer_is_no_form():
    bounds = Bounds(given_sizes(JOINED))
    assert bounds.form(Access("T", (k,))) is None
    assert bounds.form(num(Fraction(1, 2)) * k) is None
    assert bounds.form(Index("p", "p", group=True)) is None
    assert bounds.holds(Rel("<", Access("x", (k,)), num(0))) is None


def test_a_size_that_leads_back_to_itself_stands_for_itself():
    around = Bounds({"k": Size("l") + num(1), "l": Size("k") + num(-1)})
    assert around.holds(less(k, Size("k"))) is True
    assert around.holds(less(k, Size("l"))) in (None, False)


def test_an_edge_is_where_a_condition_begins_or_ends_to_hold():
    bounds, size = Bounds(given_sizes(JOINED)), Polynomial.of(Size("k"))
    one = Polynomial.of(1)
    assert bounds.edge(less(m, Size("k")), m) == (False, size)
    assert bounds.edge(Not(less(m, Size("k"))), m) == (True, size)
    assert bounds.edge(Rel("<=", m, Size("k")), m) == (False, size + one)
    assert bounds.edge(Rel(">", m, Size("k")), m) == (True, size + one)
    assert bounds.edge(Rel(">=", Size("k"), m), m) == (False, size + one)
    assert bounds.edge(less(Size("m") - m, Size("l")), m) == (True, size + one)
    for other in (less(2 * m, Size("k")), Rel("==", m, k), less(k, Size("k"))):
        assert bounds.edge(other, m) is None


def test_the_extents_of_a_size():
    bounds = Bounds(given_sizes([*JOINED, Extent("o", size=Size("l") + Size("k"))]))
    assert bounds.extents_of(bounds.size("m")) == ["m", "o"]
    assert bounds.extents_of(bounds.size("m") - bounds.size("l")) == ["k"]
    assert bounds.extents_of(Polynomial.of(7)) == []


def test_the_flat_sum_of_a_form():
    bounds = Bounds(given_sizes(JOINED))
    position = add(scale(atom(m), -1), atom(Size("k")), constant(3))
    assert bounds.form(position).poly() is position


SYSTEMS = {
    "joined": (JOINED, ("k", "l"), "klm"),
    "shorter": (SHORTER, ("t",), "tu"),
    "halved": (HALVED, ("t",), "tu"),
    "shortest": (SHORTEST, ("k", "l"), "klu"),
    "differences": (
        (Extent("k"), Extent("t"), Extent("u", size=Size("t") + -1 * Size("k") + num(1))),
        ("k", "t"),
        "ktu",
    ),
}


@pytest.mark.parametrize("name", SYSTEMS)
def test_what_is_said_of_random_conditions_is_so(name):
    """True: at all sizes that the operation admits. False: at none."""
    extents, free, letters = SYSTEMS[name]
    pick, bounds = random.Random(name), Bounds(given_sizes(extents))
    indices = [Index(x, x) for x in letters]
    told = 0
    for _ in range(150):
        atoms = [*pick.sample(indices, pick.randint(0, 2)), *map(Size, pick.sample(letters, 2))]
        parts = [Mul((num(pick.choice((-2, -1, 1, 1, 2))), a)) for a in atoms]
        side = Add((*parts, num(pick.randint(-3, 3))))
        condition = Rel(pick.choice(("<", "<=", "==", "!=")), num(0), side)
        holds = bounds.holds(condition)
        if holds is None:
            continue
        told += 1
        used = [i for i in indices if any(i is a for a in atoms)]
        for sizes in sized(extents, free):
            for values in product(*(range(sizes[i.extent]) for i in used)):
                scope = dict(zip(used, values, strict=True))
                assert oracle.evaluate(condition, {}, sizes, scope, {}) == holds
    assert told >= 10


def test_a_condition_on_some_indices_says_something_of_the_others():
    """Random comparisons, against all positions of axes that are not empty."""
    pick, bounds, told = random.Random(7), Bounds({"k": None, "l": None}), 0
    indices = [Index("i", "k"), Index("j", "k"), Index("h", "l")]
    for _ in range(300):
        parts = []
        for _ in range(pick.randint(1, 3)):
            low, high = pick.sample(indices, 2)
            side = Add((high, num(pick.randint(-2, 2))))
            parts.append(Rel(pick.choice(("<", "<=", ">", ">=", "==")), low, side))
        condition, gone = And(tuple(parts)), pick.sample(indices, pick.randint(1, 2))
        left = bounds.projected(condition, gone)
        if left is None:
            continue
        told += 1
        said = And(tuple(Rel(c.op, *(bounds.form(s).expr() for s in c.parts())) for c in left))
        kept = [i for i in indices if i not in gone]
        for sizes in ({"k": 1, "l": 3}, {"k": 4, "l": 1}, {"k": 3, "l": 2}):
            met = {}
            for values in product(*(range(sizes[i.extent]) for i in indices)):
                scope = dict(zip(indices, values, strict=True))
                at = tuple(scope[i] for i in kept)
                now = oracle.evaluate(condition, {}, sizes, scope, {})
                met[at] = met.get(at, False) or now
            for at, meets in met.items():
                scope = dict(zip(kept, at, strict=True))
                assert oracle.evaluate(said, {}, sizes, scope, {}) == meets, (condition, gone)
    assert told > 200


def test_comparisons_that_others_imply_or_exclude():
    bounds = Bounds({"k": None, "l": None})
    i, j, h = (Index(n, "k") for n in "ijh")
    chain = [Rel("<", i, j), Rel("<=", j, h)]
    assert bounds.follows(Rel("<", i, h), chain)
    assert not bounds.follows(Rel("<", Add((i, num(1))), h), chain)
    assert bounds.follows(Rel("!=", num(0), j), chain)
    assert not bounds.follows(Rel("!=", num(1), j), chain)
    assert bounds.excludes([*chain, Rel("<=", h, i)])
    assert not bounds.excludes([*chain, Rel("<=", h, Add((i, num(1))))])


def test_quotients_of_sizes_by_each_other_are_asked_for_once():
    a, b, k = (Size(n) for n in "abk")
    bounds = Bounds({"k": None, "a": Call("floordiv", (k, b)), "b": Call("floordiv", (k, a))})
    assert bounds.holds(Rel("<", Index("i", "a"), k)) is None


def test_what_is_no_comparison_of_indices_is_not_projected():
    bounds = Bounds({"k": None, "l": None})
    i, j, h = Index("i", "k"), Index("j", "k"), Index("h", "l")
    bit = Rel("<", Access("x", (h,)), num(0))
    assert bounds.projected(And((Rel("<", j, i), bit)), [j]) == (
        bit,
        Rel("<=", constant(1), atom(i)),
    )
    assert bounds.projected(And((Rel("<", j, i), bit)), [h]) is None
    assert bounds.projected(Rel("!=", j, i), [j]) is None
    assert bounds.projected(Rel("<", Mul((j, h)), i), [j]) is None
    assert bounds.projected(Rel("==", Mul((num(2), j)), Mul((num(3), i))), [j]) is None


def sized(extents, free):
    """All sizes below 5 of what is free, with those that follow, none of them negative."""
    for values in product(range(5), repeat=len(free)):
        sizes = dict(zip(free, values, strict=True))
        for e in extents:
            if e.size is not None:
                sizes[e.name] = int(oracle.evaluate(e.size, {}, sizes, {}, {}))
        if min(sizes.values()) >= 0:
            yield sizes


def test_a_system_that_is_too_large_is_not_known():
    """An honest answer in a moment, not a proof at any price."""
    letters = [f"a{n}" for n in range(30)]
    sizes = [Extent(x) for x in letters]
    total = Add(tuple(Size(x) for x in letters))
    bounds = Bounds(given_sizes([*sizes, Extent("s", size=total)]))
    assert bounds.holds(less(num(-1), total)) in (True, None)
    assert bounds.holds(less(num(0), total)) is None


def test_a_size_on_an_axis_is_as_the_operation_says():
    """W has its axis checked against what is joined, so it is as long."""
    op = parse(
        "op f(a[n,i], b[n,j], W[o,k]) -> y\nh[n,m] = concat[m](a[n,m], b[n,m])\n"
        "y[n,o] = sum[m](h[n,m]*W[o,m])"
    )
    bounds = bounds_of(op)
    letter = next(e.name for e in op.extents if e.size is not None)
    assert bounds.size(letter) == bounds.size("i") + bounds.size("j")
    assert np.array_equal(bounds.extents_of(bounds.size(letter)), [letter])


def test_the_example_of_the_documentation():
    names = {"Rel": Rel, "Index": Index, "Size": Size, "Extent": Extent}
    assert doctest.testmod(module, extraglobs=names).failed == 0
