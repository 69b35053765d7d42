"""What brackets leave of the range of an index, where an extent has that size."""

from __future__ import annotations

from derive.algebra.expr import Access, Index, Iverson, Rel, Size, num
from derive.algebra.inequalities import Bounds
from derive.calculus.index_ranges import part_of_range

t, s = Index("t", "t"), Index("s", "t")
BOUNDS = Bounds({"t": None, "u": Size("t") - num(1)})
x = Access("x", (t,))


def test_a_bracket_cuts_the_first_positions_off():
    factors = (x, Iverson(Rel("<=", num(1), t)))
    found = part_of_range(BOUNDS, factors, t)
    assert found is not None
    own, start, rest = found
    assert (own.extent, start.number, rest) == ("u", 1, [x])


def test_a_bracket_cuts_the_last_ones_off():
    found = part_of_range(BOUNDS, (Iverson(Rel("<", t, Size("t") - num(1))), x), t)
    assert found is not None and (found[0].extent, found[1].number) == ("u", 0)


def test_without_an_extent_of_that_size_or_a_bracket_of_the_index_alone_there_is_no_part():
    assert part_of_range(BOUNDS, (Iverson(Rel("<=", num(5), t)), x), t) is None
    assert part_of_range(BOUNDS, (Iverson(Rel("<=", s, t)), x), t) is None
    assert part_of_range(BOUNDS, (x,), t) is None
