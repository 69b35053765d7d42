"""The same operation with one index for each axis computes the same numbers."""

from __future__ import annotations

import numpy as np

from derive import parse
from derive.check import oracle
from derive.notation.split import composites, is_plain, split_axes

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
