"""Choices between a tensor and its bounds are clamps."""

import pytest
import torch
from kit.each import each_row
from kit.lowered import assert_code, assert_right

from derive import load, parse

FORMS = {
    "op f(x[i]; d=0.7) -> y\ny[i] = where(abs(x[i]) <= d, x[i], d*sign(x[i]))": (
        "x.clamp(-d, d) if 0 <= d else d * x.sign()",
        lambda x, d: torch.where(x.abs() <= d, x, d * x.sign()),
    ),
    "op f(x[i]) -> y\ny[i] = where(abs(x[i]) <= 3, 2*x[i], 6*sign(x[i]))": (
        "2 * x.clamp(-3, 3)",
        lambda x: torch.where(x.abs() <= 3, 2 * x, 6 * x.sign()),
    ),
    "op f(x[i]) -> y\ny[i] = where(abs(x[i]) < 3, x[i], 3*sign(x[i]))": (
        "torch.ops.aten.hardtanh(x, -3, 3)",
        lambda x: torch.where(x.abs() < 3, x, 3 * x.sign()),
    ),
    "op f(x[i]) -> y\ny[i] = where(x[i] <= -1, -1, where(x[i] >= 2, 2, x[i]))": (
        "torch.ops.aten.hardtanh(x, -1, 2)",
        lambda x: torch.where(x <= -1, -1, torch.where(x >= 2, 2, x)),
    ),
    "op f(x[i]) -> y\ny[i] = where(x[i] >= 2, 2, where(x[i] <= -1, -1, x[i]))": (
        "torch.ops.aten.hardtanh(x, -1, 2)",
        lambda x: torch.where(x <= -1, -1, torch.where(x >= 2, 2, x)),
    ),
    "op f(x[i]; d=0.7) -> y\ny[i] = where(x[i] <= d, 2, x[i])": (
        "torch.threshold(x, d, 2)",
        lambda x, d: torch.where(x <= d, 2, x),
    ),
    "op f(x[i]; d=0.7) -> y\ny[i] = where(x[i] >= d, -1, x[i])": (
        "-torch.threshold(-x, -d, 1)",
        lambda x, d: torch.where(x >= d, -1, x),
    ),
    # No bounds, other values, and bounds that cross.
    "op f(x[i]) -> y\ny[i] = where(abs(x[i]) <= 3, x[i], 2*sign(x[i]))": (
        "rt.where(x.abs() <= 3, x, 2 * x.sign())",
        lambda x: torch.where(x.abs() <= 3, x, 2 * x.sign()),
    ),
    "op f(x[i]) -> y\ny[i] = where(abs(x[i]) <= 3, x[i]**2, 3*sign(x[i]))": (
        "rt.where(x.abs() <= 3, x.square(), 3 * x.sign())",
        lambda x: torch.where(x.abs() <= 3, x**2, 3 * x.sign()),
    ),
    "op f(x[i]) -> y\ny[i] = where(x[i] <= 2, 2, where(x[i] >= -1, -1, x[i]))": (
        "",
        lambda x: torch.where(x <= 2, 2, torch.where(x >= -1, -1, x)),
    ),
}
POINTS = [-4.0, -3.0, -1.0, -0.7, -0.1, 0.0, 0.2, 0.7, 2.0, 2.5, 3.0, torch.inf, -torch.inf]


@pytest.mark.parametrize("spec", FORMS)
def test_one_pass(spec):
    code, _ = FORMS[spec]
    if code:
        assert_code(spec, [f"y = {code}"])
    assert_right(spec)


@each_row("d", [0.7, 0.0, -0.3, torch.inf])
@each_row("spec", FORMS)
def test_values_and_slopes_at_the_bounds(spec, d):
    given = {"d": d} if "; d" in spec else {}
    ours, plain = load(parse(spec)), FORMS[spec][1]
    x = torch.tensor(POINTS, dtype=torch.float64, requires_grad=True)
    found, wanted = (f(x, **given) for f in (ours, plain))
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
    for spec, (code, _) in FORMS.items():
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
