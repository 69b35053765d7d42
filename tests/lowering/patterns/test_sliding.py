"""Windows that slide: step*place + dilation*within - before, and which index counts them."""

from __future__ import annotations

from kit.lowered import assert_code, assert_right

from derive import parse
from derive.algebra.expr import Access, Guard, Index, Rel, Size, num, walk
from derive.calculus.positions import bounds_of
from derive.lowering.patterns.sliding import bare, gap, runs_over, sliding

OP = parse("op f(x[n,u], w[k]) -> y\ny[n,t] = sum[k](x[n,3*t+2*k]*w[k])")
BOUNDS = bounds_of(OP)


def test_step_and_dilation_are_found():
    (read,) = (e for e in walk(OP.equations[0].body) if isinstance(e, Access) and e.tensor == "x")
    found = sliding(BOUNDS, read.positions[1], "u")
    assert found is not None
    assert (found.place.name, found.within.name) == ("t", "k")
    coefficients = runs_over(BOUNDS, read.positions[1])
    assert coefficients is not None
    assert {i.name: c.number for i, c in coefficients.items()} == {"t": 3, "k": 2}


def test_one_index_is_no_window():
    t = Index("t", "t")
    assert sliding(BOUNDS, t + num(1), "u") is None
    assert bare(Guard(Rel("<", t, num(2)), t)) is t


def test_the_gap_of_a_condition_is_at_least_0_where_it_holds():
    t = Index("t", "t")
    found = gap(BOUNDS, Rel("<", t, Size("t")))
    assert found is not None
    assert gap(BOUNDS, Rel("==", t, num(0))) is None


def test_a_maximum_over_windows_reads_a_view():
    text = "op f(x[n,u]; size(k)=3) -> y\ny[n,t] = max[k](x[n,t+k])"
    largest = ["part = x.unfold(1, 3, 1).max(2)", "y = part.values", "winner = part.indices"]
    assert_code(text, largest)
    assert_right(text)
