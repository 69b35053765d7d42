"""Choices between a tensor and its bounds are clamps."""

import pytest
import torch
from kit.each import each_row, told
from kit.lines import defined
from kit.lowered import assert_code, assert_right

from derive import load, parse

FORMS = dict(
    told(
        """\
op f(x[i]; d=0.7) -> y; y[i] = where(abs(x[i]) <= d, x[i], d*sign(x[i]))
    x.clamp(-d, d) if 0 <= d else d * x.sign()
op f(x[i]) -> y; y[i] = where(abs(x[i]) <= 3, 2*x[i], 6*sign(x[i]))
    2 * x.clamp(-3, 3)
op f(x[i]) -> y; y[i] = where(abs(x[i]) < 3, x[i], 3*sign(x[i]))
    torch.ops.aten.hardtanh(x, -3, 3)
op f(x[i]) -> y; y[i] = where(x[i] <= -1, -1, where(x[i] >= 2, 2, x[i]))
    torch.ops.aten.hardtanh(x, -1, 2)
op f(x[i]) -> y; y[i] = where(x[i] >= 2, 2, where(x[i] <= -1, -1, x[i]))
    torch.ops.aten.hardtanh(x, -1, 2)
op f(x[i]; d=0.7) -> y; y[i] = where(x[i] <= d, 2, x[i])
    torch.threshold(x, d, 2)
op f(x[i]; d=0.7) -> y; y[i] = where(x[i] >= d, -1, x[i])
    -torch.threshold(-x, -d, 1)
# No bounds, other values, and bounds that cross.
op f(x[i]) -> y; y[i] = where(abs(x[i]) <= 3, x[i], 2*sign(x[i]))
    rt.where(x.abs() <= 3, x, 2 * x.sign())
op f(x[i]) -> y; y[i] = where(abs(x[i]) <= 3, x[i]**2, 3*sign(x[i]))
    rt.where(x.abs() <= 3, x.square(), 3 * x.sign())
op f(x[i]) -> y; y[i] = where(x[i] <= 2, 2, where(x[i] >= -1, -1, x[i]))
"""
    )
)
POINTS = [-4.0, -3.0, -1.0, -0.7, -0.1, 0.0, 0.2, 0.7, 2.0, 2.5, 3.0, torch.inf, -torch.inf]


@pytest.mark.parametrize("spec", FORMS)
def test_one_pass(spec):
    if FORMS[spec]:
        assert_code(spec, [f"y = {FORMS[spec]}"])
    assert_right(spec)


@each_row("d", [0.7, 0.0, -0.3, torch.inf])
@each_row("spec", FORMS)
def test_values_and_slopes_at_the_bounds(spec, d):
    given = {"d": d} if "; d" in spec else {}
    ours, plain = load(parse(spec)), defined(parse(spec), **given)
    x = torch.tensor(POINTS, dtype=torch.float64, requires_grad=True)
    found, wanted = ours(x, **given), plain(x)
    assert torch.equal(found, wanted)
    finite = x.detach().isfinite()
    slopes = [torch.autograd.grad(y.sum(), x)[0][finite] for y in (found, wanted)]
    torch.testing.assert_close(*slopes)
    (tangent,) = torch.func.jvp(lambda x: ours(x, **given), (x.detach(),), (torch.ones_like(x),))[
        1:
    ]
    torch.testing.assert_close(tangent[finite], slopes[1])


def test_a_nan_stays_one():
    x = torch.tensor([torch.nan])
    for spec, code in FORMS.items():
        if code and "rt.where" not in code and "; d" not in spec:
            assert load(parse(spec))(x).isnan().all()


def test_a_bound_that_is_a_parameter_scales():
    text = "op f(x[i]; b=1) -> y\ny[i] = where(abs(x[i]) < b, x[i]**2/(2*b), abs(x[i]) - b/2)"
    f = load(parse(text))
    for b in (0.7, 2.0):
        x = torch.tensor(POINTS[:-2], dtype=torch.float64, requires_grad=True)
        (found,) = torch.autograd.grad(f(x, b=b).sum(), x)
        wanted = torch.where(x.abs() < b, x / b, x.sign())
        torch.testing.assert_close(found, wanted)
