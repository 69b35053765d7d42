"""Sums over near positions as windows, held against the oracle where axes are short or empty."""

import numpy as np
import pytest
import torch
from kit.lines import made, named, run

from derive import load, parse
from derive.api import source

CODE = {
    "op f(x[n,c]) -> y\ny[n,c] = sum[d | c - 2 <= d and d < c + 2](x[n,d])": "unfold(1, 4, 1)",
    "op f(x[c,n]) -> y\ny[n,c] = sum[d | d <= c + 1 and c <= d + 3](x[d,n]**2)": "unfold(1, 5, 1)",
    "op f(x[n,c,*q]; w=size(k)) -> y\n"
    "y[n,c,*q] = sum[d | c - size(k)/2 <= d and d <= c + (size(k) - 1)/2](x[n,d,*q])": "w // 2",
    "op f(x[n,c]) -> y\ny[c] = sum[n,d | c - 1 <= d and d <= c + 1 and n < 3](x[n,d])": "unfold",
}

OTHERS = (
    # One end, both ends on one side of no certain order, weights, another size.
    "op f(x[n,c]) -> y\ny[n,c] = sum[d | c - 2 <= d](x[n,d])",
    "op f(x[n,c]) -> y\ny[n,c] = sum[d | c + 2 <= d and d <= c + 4](x[n,d])",
    "op f(x[n,c]) -> y\ny[n,c] = sum[d | c - 1 <= d and d <= c + 1](sin(x[n,d]*x[n,c]))",
    "op f(x[n,c], v[m]) -> y\ny[n,m] = v[m]*sum[d | m - 1 <= d and d <= m + 1](x[n,d])",
)


@pytest.mark.parametrize("text", (*CODE, *OTHERS), ids=named)
def test_the_code_is_the_equation(text):
    op = made(text)
    code = source(op)
    assert CODE[text] in code if text in CODE else "unfold" not in code
    for size in (0, 1, 2, 7):
        random = np.random.default_rng(size)
        axes = {"n": 3, "m": 4, "c": size, "q": 2}
        shapes = {t.name: [axes[i.name] for i in t.axes] for t in op.inputs}
        given = {name: random.normal(size=s) for name, s in shapes.items()}
        run(text, given, **{p.name: 4 for p in op.parameters})


def test_what_is_outside_a_window_does_not_reach_it():
    f = load(parse("op f(x[c]) -> y\ny[c] = sum[d | c - 1 <= d and d <= c](x[d])"))
    x = torch.tensor([1.0, torch.inf, 2.0, 3.0])
    torch.testing.assert_close(f(x), torch.tensor([1.0, torch.inf, torch.inf, 5.0]))
