"""Scalar functions that NumPy lacks: at poles and kinks, and against torch between them."""

import math

import numpy as np
import pytest
import torch

from derive.algebra import reference_values


def test_poles_are_those_of_torch():
    for name in ("lgamma", "digamma"):
        points = [0.0, -0.0, -1.0, 0.5, 3.5, -1.5, math.inf]
        wanted = getattr(torch, name)(torch.tensor(points, dtype=torch.float64))
        np.testing.assert_allclose(
            [getattr(reference_values, name)(x) for x in points], wanted, rtol=1e-12
        )


def test_polygamma_is_the_derivative_of_digamma():
    h = 1e-5
    slope = (reference_values.digamma(2.3 + h) - reference_values.digamma(2.3 - h)) / (2 * h)
    assert reference_values.polygamma(1, 2.3) == pytest.approx(slope, rel=1e-8)
    assert reference_values.polygamma(1, -2.0) == math.inf


@pytest.mark.parametrize("y", [0.0, 0.3, -0.7, 0.999999, 1 - 1e-15])
def test_erfinv_is_the_inverse_of_erf(y):
    assert math.erf(reference_values.erfinv(y)) == pytest.approx(y, rel=1e-14)
    assert math.copysign(1, reference_values.erfinv(-0.0)) == -1
    assert reference_values.erfinv(1.0) == math.inf and math.isnan(reference_values.erfinv(1.5))


def test_far_out_nothing_overflows():
    with np.errstate(over="ignore"):
        assert reference_values.softplus(800.0) == 800
    assert reference_values.logsigmoid(-800.0) == -800
    np.testing.assert_array_equal(
        reference_values.sign(np.array([-3, 0, np.nan, 2])), [-1, 0, 0, 1]
    )
    np.testing.assert_array_equal(reference_values.clamp(np.array([-3.0, 9.0]), -1, 2), [-1, 2])
