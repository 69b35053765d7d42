"""Sums over several brackets that say where a value is, without masks of all pairs."""

import numpy as np
import pytest
from kit.lines import named, run
from kit.texts import source

from derive import load, parse
from derive.check.checks import checks_of

TEXTS = (
    "op f(x[n,d], s[n]: int, t[n]: int; E=size(e), C=size(c)) -> y\n"
    "y[e,c,d] = sum[n | s[n]==e and t[n]==c](x[n,d])",
    "op f(x[n], s[n]: int, t[n]: int; E=size(e), C=size(c)) -> y\n"
    "y[c,e] = sum[n]([s[n]==e]*[c==t[n]]*x[n]**2)",
    "op f(x[n,k], s[n]: int, t[k]: int; E=size(e), C=size(c)) -> y\n"
    "y[e,c] = sum[n,k | s[n]==e and t[k]==c and n > k](x[n,k])",
)


@pytest.mark.parametrize("text", TEXTS, ids=named)
def test_the_code_is_the_equation(text):
    op = parse(text)
    assert "joined_positions(" in source(op) and "index_put" not in source(op)
    random = np.random.default_rng(0)
    x = random.normal(size=[{"n": 6, "d": 2, "k": 4}[i.name] for i in op.inputs[0].axes])
    s = np.array([0, 2, -1, 2, 5, 1])
    t = np.array([3, 0, 1, 0, 1, 9])[: 4 if "t[k]" in text else 6]
    run(text, {"x": x, "s": s, "t": t}, E=3, C=4)
    assert all(c.ok for c in checks_of(op, load(op)))


def test_the_gradient_reads_both_at_once():
    code = source(parse(TEXTS[0]))
    backward = code.partition("def backward(")[2]
    assert "rt.read_at" in backward and "==" not in backward.partition("def f(")[0]
