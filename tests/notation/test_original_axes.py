"""Formulas of single indices are put back on the axes as a person gave them."""

from __future__ import annotations

from derive import derivation, parse
from derive.algebra.expr import Access, Composite, Index
from derive.notation.split import given_axes, letters_of, on_given_axes

OP = parse("op f(x[n,(t d)], w[k]; size(t)=2) -> y\ny[n,(t d)] = x[n,(t d)]*w[(t d)]*w[0]")


def test_an_axis_that_is_composed_is_read_by_its_parts():
    axes = given_axes(OP)
    assert [(type(a).__name__, n) for a, n in axes["x"]] == [("Index", 1), ("Composite", 2)]
    t, d, n = (Index(name, name) for name in "tdn")
    found = on_given_axes(Access("x", (n, t, d)), axes)
    assert found is Access("x", (n, Composite((t, d))))


def test_one_letter_for_all_parts_is_found_again():
    op = parse(
        "op f(x[(t d)], w[t,d]) -> y\ny[k] = x[k]**2\nz = sum[t,d](x[(t d)]*w[t,d])".replace(
            "-> y", "-> y, z"
        )
    )
    assert {tuple(parts): i.name for parts, i in letters_of(op).items()} == {("t", "d"): "k"}
    assert "grad_w[t,d]" in str(derivation(op))


def test_formulas_are_told_on_given_axes():
    assert "grad_x[n,(t d)] = G[n,(t d)]·w[(t d)]·w[(0 0)]" in str(derivation(OP))
