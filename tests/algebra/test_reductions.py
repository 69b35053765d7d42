"""The table of reductions, held against torch, the oracle and what a person writes."""

import math

import numpy as np
import pytest
import torch
from kit.each import each_row
from kit.programs.sympy_form import through_sympy

from derive import derivation, load, parse
from derive.algebra import reference_values
from derive.algebra.reductions import KINDS, OTHERS, REDUCTIONS
from derive.check import grid, oracle
from derive.notation import heads

TORCH = {
    "sum": lambda x: x.sum(1),
    "prod": lambda x: x.prod(1),
    "mean": lambda x: x.mean(1),
    "max": lambda x: x.max(1).values,
    "min": lambda x: x.min(1).values,
    "amax": lambda x: x.amax(1),
    "amin": lambda x: x.amin(1),
    "logsumexp": lambda x: x.logsumexp(1),
    "norm2": lambda x: torch.linalg.vector_norm(x, dim=1),
}
VALUES = [[0.5, -1.5, 2.0, 2.0], [0.0, 0.0, 0.0, 0.0], [3.0, 0.0, -4.0, -4.0]]
"""Ties, zeros, and a row of nothing else."""
SMOOTH = [name for name, row in REDUCTIONS.items() if row.is_smooth]


def test_every_reduction_has_a_definition_in_both_oracles():
    assert set(reference_values.REDUCTIONS) == set(grid.REDUCTIONS) == set(REDUCTIONS)
    assert set(KINDS) - set(REDUCTIONS) == {OTHERS.name}


@each_row("row", REDUCTIONS.values())
def test_what_nothing_is_is_what_the_oracle_says(row):
    assert reference_values.REDUCTIONS[row.name]([]) == pytest.approx(row.of_nothing, nan_ok=True)
    assert grid.REDUCTIONS[row.name].of_nothing == pytest.approx(row.of_nothing, nan_ok=True)


@each_row("row", [row for row in REDUCTIONS.values() if not math.isnan(row.neutral)])
def test_what_is_neutral_changes_nothing(row):
    taken = [(0, 0.5), (1, -2.0), (2, 1.5)] if row.dtype != "bool" else [(0, True), (1, False)]
    more = [*taken, (len(taken), row.neutral)]
    assert reference_values.REDUCTIONS[row.name](more) == reference_values.REDUCTIONS[row.name](
        taken
    )


@pytest.mark.parametrize("name", SMOOTH)
def test_value_and_gradient_are_those_of_torch(name):
    f = load(parse(f"op f(x[n,k]) -> y ; y[n] = {name}[k](x[n,k])"))
    weights = torch.tensor([0.7, -1.2, 1.1], dtype=torch.float64)
    found = []
    for g in (f, TORCH[name]):
        x = torch.tensor(VALUES, dtype=torch.float64, requires_grad=True)
        y = g(x)
        (gradient,) = torch.autograd.grad(y @ weights, x)
        found += [y.detach().numpy(), gradient.numpy()]
    for ours, theirs in zip(found[:2], found[2:], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)


@each_row("name", SMOOTH)
@each_row("over", ["k", "k | k < n", "m,k | x[n,m,k] > 0.4", "k | s[k] == n"])
def test_under_a_condition_the_value_and_gradient_are_the_oracles(name, over):
    axes = "n" if "m" in over else "n,m"
    op = parse(f"op f(x[n,m,k], s[k]: int) -> y ; y[{axes}] = {name}[{over}](x[n,m,k] + s[k])")
    pick = np.random.default_rng(3)
    arrays = {"x": pick.uniform(0.5, 2.0, (2, 3, 4)), "s": np.array([1, 0, 1, 1])}
    (wanted,) = oracle.outputs(op, arrays, {}).values()
    cotangent = pick.uniform(0.5, 1.5, wanted.shape)
    x = torch.tensor(arrays["x"], requires_grad=True)
    y = load(op)(x, torch.tensor(arrays["s"]))
    np.testing.assert_allclose(y.detach().numpy(), wanted, rtol=1e-10)
    if not np.isfinite(wanted).all():
        return
    (gradient,) = torch.autograd.grad(y, x, torch.tensor(cotangent))
    expected = oracle.gradient(op, arrays, {"y": cotangent}, {}, "x")
    np.testing.assert_allclose(gradient.numpy(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("row", REDUCTIONS.values(), ids=lambda row: row.name)
def test_each_is_written_in_every_notation(row):
    body = "[{}[k](x[n,k] > 0)]*x[n,0]" if row.dtype == "bool" else "x[n,0]*{}[k](x[n,k])"
    text = f"op f(x[n,k]) -> y ; y[n] = {body.format(row.name)}"
    op = parse(text)
    assert through_sympy(text).equations[0].body is op.equations[0].body
    assert issubclass(getattr(heads, row.head), heads.Head)
    assert getattr(heads, row.head).__doc__ == row.about
    for formula in derivation(op).gradients.values():
        assert str(formula) and formula.latex() and formula.mathml()
        assert formula.sympy() is not None
