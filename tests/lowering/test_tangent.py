"""The code of tangents, for whatever operation: against the loops, and against the gradients."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from kit.each import each_operation, some_now
from kit.once import sample
from kit.tangents import INVENTED, loaded, of_floats, slopes

import derive
from derive.check import oracle
from derive.check.derivatives import detaches
from derive.check.samples import cases
from derive.pipeline import program_of, tangent_program

PARTS = (1, 1 / 8, 1 / 64)
"""Fractions of a step: the error of a long one is of curvature, that of a short one of rounding."""


def steadiest(slopes):
    """The slope that differs least from that of the step before."""
    return min(pairwise(slopes), key=lambda pair: abs(pair[1] - pair[0]))[1]


def along_each(op, f, tensors, parameters):
    """Each input's tangent alone, against differences of the loops."""
    call, inputs = of_floats(f, tensors, parameters)
    expected = oracle.outputs(op, tensors, parameters)
    floats = {n: v for n, v in expected.items() if v.dtype == np.float64}
    rng = np.random.default_rng(2)
    weights = {
        n: np.where(np.isfinite(v), rng.uniform(0.5, 1.5, v.shape), 0) for n, v in floats.items()
    }
    for n, name in enumerate(inputs):
        way = rng.uniform(0.5, 1.5, inputs[name].shape)
        steps = [part * way for part in PARTS]
        tried = oracle.slopes(op, tensors, weights, parameters, name, steps)
        slope = steadiest([total / part for total, part in zip(tried, PARTS, strict=True)])
        ways = [torch.zeros_like(x) for x in inputs.values()]
        ways[n] = torch.from_numpy(np.asarray(way))
        values, moved = torch.func.jvp(call, tuple(inputs.values()), tuple(ways))
        pairs = list(zip(floats, values, moved, strict=True))
        for output, value, _ in pairs:
            np.testing.assert_allclose(value.numpy(), expected[output], rtol=1e-9, atol=1e-12)
        terms = [torch.from_numpy(np.asarray(weights[o])) * d for o, _, d in pairs]
        size = 1 + sum(float(t.nan_to_num().abs().sum()) for t in terms)
        found = sum(
            float(t[torch.isfinite(v)].sum()) for t, (_, v, _) in zip(terms, pairs, strict=True)
        )
        assert found == pytest.approx(slope, rel=1e-6, abs=1e-7 * size), name


@pytest.mark.parametrize("name", some_now([*INVENTED], 5))
def test_tangents_of_invented_operations_are_differences_of_the_loops(name):
    one = INVENTED[name]
    along_each(one.op, loaded(one.op), one.tensors, one.parameters)


@pytest.mark.parametrize("name", some_now([*INVENTED][::-1], 3))
def test_forward_mode_is_the_transpose_of_reverse_mode(name):
    one = INVENTED[name]
    call, inputs = of_floats(loaded(one.op), one.tensors, one.parameters)
    slopes(call, list(inputs.values())).assert_alike()


EDGES = {
    "ties": np.round,
    "zeros": lambda x: np.where(np.arange(x.size).reshape(x.shape) % 3, x, 0.0),
    "all alike": lambda x: np.full_like(x, 0.5),
    "far apart": lambda x: np.where(np.arange(x.size).reshape(x.shape) % 3, x, 300 * x),
}


QUICK = ("shared winners", "a product")
OUT_OF_RANGE = [("positions from floats", "far apart")]
THROUGH_TORCH = [("a running logsumexp", "far apart")]
"""Where what is no output slips, torch's own rule makes its second derivatives."""
AT_EDGES = [
    pytest.param(name, edge, marks=() if name in QUICK else pytest.mark.long)
    for name in INVENTED
    for edge in EDGES
    if (name, edge) not in (*OUT_OF_RANGE, *THROUGH_TORCH)
]


@pytest.mark.parametrize(("name", "edge"), AT_EDGES)
def test_at_kinks_ties_and_far_values_both_modes_agree(name, edge):
    one = INVENTED[name]
    moved = {
        n: EDGES[edge](v) if v is not None and v.dtype == np.float64 else v
        for n, v in one.tensors.items()
    }
    call, inputs = of_floats(loaded(one.op), moved, one.parameters)
    slopes(call, list(inputs.values())).assert_alike(1e-8)


def each_case(op):
    chosen = ("typical", "without optional tensors", "no axes in groups", "kept axes")
    return [(case,) for case in cases(op) if case.label in chosen]


@each_operation(each_case, share=70)
def test_tangents_of_the_catalog_are_differences_of_the_loops(op, case):
    made = sample(op, case)
    given = {n: v for n, v in made.parameters.items() if v is not None}
    along_each(op, loaded(op), made.tensors, given)


@each_operation(each_case, share=70)
def test_forward_mode_of_the_catalog_is_the_transpose_of_reverse_mode(op, case):
    made = sample(op, case)
    given = {n: v for n, v in made.parameters.items() if v is not None}
    call, inputs = of_floats(loaded(op), made.tensors, given)
    if (
        inputs
        and not detaches(op)
        and torch.isfinite(torch.cat([y.flatten() for y in call(*inputs.values())])).all()
    ):
        slopes(call, list(inputs.values())).assert_alike(1e-8)


def test_what_no_output_depends_on_is_not_given():
    op = derive.parse("op f(x[n], w[n]) -> y\ny[n] = x[n]*detach(w[n])")
    made = tangent_program(op, None)
    assert made.given == {"x": "d_x"}
    assert made.results == {"y": "d_y"}


def test_a_statistic_that_is_held_has_neither_cotangent_nor_tangent():
    op = derive.parse("op f(x[n], w[k]) -> y\nd = detach(mean[k](w[k]))\ny[n] = x[n]**2*d")
    (d,) = program_of(op, None).statistics
    assert d not in program_of(op, None).pulled
    tensors = {"x": np.array([1.0, 2.0, 3.0]), "w": np.array([0.5, -0.25])}
    along_each(op, loaded(op), tensors, {})


def test_sizes_are_read_on_tangents():
    op = derive.parse("op f(x[n,d]) -> y\ny[n] = mean[d](x[n,d])")
    names = {line.name for line in tangent_program(op, None).lines}
    assert names == {"d_y"}
