"""Partial derivatives at kinks, ties and singular points, against those of torch itself."""

from __future__ import annotations

import math

import pytest
import torch

import derive

POINTS = {
    "maximum(x[n], y[n])": (torch.maximum, [(1.0, 1.0), (1.0, 2.0), (2.0, 1.0)]),
    "minimum(x[n], y[n])": (torch.minimum, [(1.0, 1.0), (1.0, 2.0), (2.0, 1.0)]),
    "clamp(x[n], y[n], y[n] + 1)": (
        lambda x, y: torch.clamp(x, y, y + 1),
        [(0.0, 0.0), (1.0, 0.0), (2.0, 0.0), (-1.0, 0.0)],
    ),
    "atan2(x[n], y[n])": (torch.atan2, [(0.0, 1.0), (1.0, -1.0)]),
    "x[n]**y[n]": (torch.pow, [(0.0, 0.0), (0.0, 2.0), (2.0, 0.0)]),
    "relu(x[n]*y[n])": (lambda x, y: torch.relu(x * y), [(0.0, 1.0), (1.0, 1.0), (-1.0, 1.0)]),
    "logaddexp(x[n], y[n])": (torch.logaddexp, [(1.0, 1.0), (80.0, -80.0)]),
    "hypot(x[n], y[n])": (torch.hypot, [(3.0, 4.0), (0.0, 1.0)]),
}


@pytest.mark.parametrize("body", POINTS)
def test_the_slope_is_that_of_torch(body):
    own, points = POINTS[body]
    f = derive.load(derive.parse(f"op f(x[n], y[n]) -> z\nz[n] = {body}"))
    columns = zip(*points, strict=True)
    given = [torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in columns]
    found = torch.autograd.grad(f(*given).sum(), given)
    wanted = torch.autograd.grad(own(*given).sum(), given)
    for a, b in zip(found, wanted, strict=True):
        assert all(
            math.isclose(p, q, abs_tol=1e-12) or (math.isnan(p) and math.isnan(q))
            for p, q in zip(a.tolist(), b.tolist(), strict=True)
        )
