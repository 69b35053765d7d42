"""A reduction in a branch that leaves a part of an index runs over that part alone."""

from __future__ import annotations

from kit.lowered import assert_right

from derive import parse
from derive.calculus.build_lets import flatten_operation


def axes(text: str) -> dict[str, list[str]]:
    """The extents of the axes of each definition that the engine made."""
    return {let.name: [i.extent for i in let.formals] for let in flatten_operation(parse(text))}


CUT = "op f(a[i,d], b[j,d]) -> y\ny[m] = concat[m](logsumexp[d](a[m,d]), max[d](b[m,d]))"


def test_each_reduction_runs_over_its_piece():
    made = axes(CUT)
    assert made["lse"] == ["i"] and made["top"] == ["j"]
    assert_right(CUT)


def test_what_the_branch_leaves_whole_is_not_cut():
    text = "op f(a[m,d], w[m]) -> y\ny[m] = where(w[m] > 0, logsumexp[d](a[m,d]), 0)"
    assert axes(text)["lse"] == ["m"]
    assert_right(text)
