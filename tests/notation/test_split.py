"""The same operation with one index for each axis computes the same numbers."""

import numpy as np

from derive import derivation, parse
from derive.algebra.expr import Access, Composite, Index
from derive.check import oracle
from derive.notation.split import (
    composites,
    given_axes,
    is_plain,
    letters_of,
    on_given_axes,
    split_axes,
)

TEXT = "op f(x[*p,(t d)], w[d]; size(t)=2) -> y\ny[*p,t] = sum[d](x[*p,(t d)]*w[d])"
OP = parse(TEXT)


def test_plain_is_what_has_one_index_on_each_axis():
    assert is_plain(parse("y[i] = sum[k](A[i,k]*x[k])"))
    assert not is_plain(OP)


def test_a_composite_axis_becomes_its_parts_and_a_group_stays():
    assert [len(t.axes) for t in split_axes(OP).operation.inputs] == [3, 1]
    assert any(a.group for a in split_axes(OP).operation.inputs[0].axes)
    assert list(composites(OP).values()) == [[("t", "d")]]


def test_the_split_operation_computes_the_same():
    rng = np.random.default_rng(0)
    x, w = rng.uniform(size=(4, 3, 10)), rng.uniform(size=5)
    want = oracle.outputs(OP, {"x": x, "w": w}, {})["y"]
    inner = split_axes(OP).operation
    names = [t.name for t in inner.inputs]
    found = oracle.outputs(inner, dict(zip(names, (x.reshape(4, 3, 2, 5), w), strict=True)), {})
    (y,) = found.values()
    np.testing.assert_allclose(y.reshape(want.shape), want, rtol=1e-12)


OP_ORIGINAL_AXES = parse(
    "op f(x[n,(t d)], w[k]; size(t)=2) -> y\ny[n,(t d)] = x[n,(t d)]*w[(t d)]*w[0]"
)


def test_an_axis_that_is_composed_is_read_by_its_parts():
    axes = given_axes(OP_ORIGINAL_AXES)
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
    assert "grad_x[n,(t d)] = G[n,(t d)]·w[(t d)]·w[(0 0)]" in str(derivation(OP_ORIGINAL_AXES))
