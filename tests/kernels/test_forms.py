"""Which arguments make an equation another: by whatever names and in whatever form it is told."""

import numpy as np
import pytest
from kit.lines import made, named, run

from derive import source

WRITTEN = {
    # A number that stands as a divisor, known or not, and as a part of another.
    "op f(z[n]; a=1.5) -> y\ny[n] = where(z[n] > 0, z[n], a*expm1(z[n]/a))": "torch.celu(z, a)",
    "op f(z[n]) -> y\ny[n] = where(z[n] > 0, z[n], 2*expm1(z[n]/2))": "torch.celu(z, 2)",
    "op f(z[n]; a=1.5) -> y\ny[n] = 3*where(z[n] > 0, z[n], (a+1)*expm1(z[n]/(a+1)))": "celu(z, ",
    "op f(g[n], z[n]) -> y\ny[n] = g[n]*z[n]*clamp(z[n] + 3, 0, 6)/6": "hardswish(z)",
    "op f(z[n]) -> y\ny[n] = where(z[n] <= 0, 0, where(z[n] >= 6, 6, z[n]))": "hardtanh(z, 0, 6)",
    # A difference, of sums too.
    "op f(p[n], q[n], r[n]) -> y\nd[n] = p[n] + q[n] - r[n]\n"
    "y[n] = where(abs(d[n]) < 2, d[n]**2/4, abs(d[n]) - 1)": "smooth_l1_loss(p + q, r, 0, 2)",
    # A part of a sum, beside what is no part of it.
    "op f(z[n], w[n]) -> y\ny[n] = w[n]*z[n] + where(abs(z[n]) <= 1/2, 0, z[n])": (
        "hardshrink(z, 0.5)"
    ),
}

OTHERS = (
    "op f(z[n]; a=1.5, b=2.5) -> y\ny[n] = where(z[n] > 0, z[n], a*expm1(z[n]/b))",
    "op f(z[n]) -> y\ny[n] = where(z[n] > 0, z[n], 2*expm1(z[n]/3))",
    "op f(p[n], q[n]) -> y\nd[n] = p[n] - q[n]\n"
    "y[n] = where(abs(d[n]) < 2, d[n]**2/2, abs(d[n]) - 1)",
    "op f(z[n]) -> y\ny[n] = z[n]*clamp(z[n] + 2, 0, 6)/6",
)


@pytest.mark.parametrize("text", WRITTEN, ids=named)
def test_the_kernel_is_found(text):
    assert WRITTEN[text] in source(made(text))
    _run(text)


@pytest.mark.parametrize("text", OTHERS, ids=named)
def test_what_is_almost_it_is_not(text):
    forward = source(made(text)).partition("def forward(")[2].partition("def setup_context")[0]
    assert not any(name in forward for name in ("celu", "smooth_l1", "hardswish"))
    _run(text)


def _run(text):
    random = np.random.default_rng(2)
    run(text, {t.name: 2 * random.normal(size=6) for t in made(text).inputs})
