"""What a condition excludes is not read: its position carries the condition, unless it is safe."""

import warnings

from derive import parse
from derive.algebra.expr import Access, Guard, Rel, walk


def guards(body, head="x[i], m[i]: bool, A[i,j]"):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        op = parse(f"op f({head}) -> y; {body}")
    return [g for e in op.equations for g in walk(e.body) if isinstance(g, Guard)]


def test_a_read_off_its_axis_carries_the_condition_that_keeps_it_on():
    (guard,) = set(guards("y[i] = where(i > 0, x[i-1], 0)"))
    assert isinstance(guard.condition, Rel)
    assert guards("y[i] = [i > 0]*x[i-1]")


def test_a_read_that_is_always_on_its_axis_has_none():
    assert guards("y[i] = where(m[i], x[i], 0)") == []
    assert guards("y[i] = sum[j | j <= i](A[i,j])") == []
    window = "x[i], r[k], A[i,j]; size(k) = size(i) + size(j) - 1"
    assert guards("y[i] = sum[j | j <= i](A[i,j]*x[i]*r[j - i + size(i) - 1])", window) == []


def test_the_condition_itself_is_asked_without():
    found = guards("y[i] = where(i > 0 and x[i-1] > 0, x[i-1], 0)")
    assert found and all(isinstance(g.condition, Rel) or g.condition for g in found)


def test_the_guard_stands_at_the_position_so_that_the_read_may_move():
    op = parse("op f(x[i]) -> y; y[i] = where(i > 1, x[i-2], 0)")
    reads = [e for e in walk(op.equations[0].body) if isinstance(e, Access)]
    assert all(isinstance(r.positions[0], Guard) for r in reads)
