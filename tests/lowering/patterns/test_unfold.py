"""Windows that slide: step*place + dilation*within - before, and which index counts them."""

from __future__ import annotations

import pytest
import torch
from kit.each import each_row
from kit.lowered import assert_code, assert_right
from kit.windows import random_statistics, tensors

from derive import load, parse
from derive.algebra.expr import Access, Guard, Index, Rel, Size, num, walk
from derive.calculus.guards import bounds_of
from derive.lowering.patterns.unfold import nonnegative_form, runs_over, sliding, unguarded_position

OP = parse("op f(x[n,u], w[k]) -> y\ny[n,t] = sum[k](x[n,3*t+2*k]*w[k])")
BOUNDS = bounds_of(OP)


def test_step_and_dilation_are_found():
    (read,) = (e for e in walk(OP.equations[0].body) if isinstance(e, Access) and e.tensor == "x")
    found = sliding(BOUNDS, read.positions[1], "u")
    assert found is not None
    assert (found.place.name, found.within.name) == ("t", "k")
    coefficients = runs_over(BOUNDS, read.positions[1])
    assert coefficients is not None
    assert {i.name: c.number for i, c in coefficients.items()} == {"t": 3, "k": 2}


def test_one_index_is_no_window():
    t = Index("t", "t")
    assert sliding(BOUNDS, t + num(1), "u") is None
    assert unguarded_position(Guard(Rel("<", t, num(2)), t)) is t


def test_the_gap_of_a_condition_is_at_least_0_where_it_holds():
    t = Index("t", "t")
    found = nonnegative_form(BOUNDS, Rel("<", t, Size("t")))
    assert found is not None
    assert nonnegative_form(BOUNDS, Rel("==", t, num(0))) is None


def test_a_maximum_over_windows_reads_a_view():
    text = "op f(x[n,u]; size(k)=3) -> y\ny[n,t] = max[k](x[n,t+k])"
    largest = [
        "max_of_x = x.unfold(1, 3, 1).max(2)",
        "y = max_of_x.values",
        "winner = max_of_x.indices",
    ]
    assert_code(text, largest)
    assert_right(text)


MIXED = (
    "op f(x[n,a]; size(u)=3) -> y\nm[n,i] = mean[u](x[n,i+u])\n"
    "y[n,i] = mean[u](x[n,i+u]**2) - m[n,i]**2",
    "op f(x[n,a]; size(u)=3) -> y\ny[n,i] = amax[u](x[n,i+u])",
    "op f(x[a,b]; size(u)=3, size(v)=2) -> y\ny[i,j] = logsumexp[u,v](x[i+u,j+v])",
    "op f(x[a,b], w[u,v]) -> y\ny[i,j] = sum[u,v](abs(w[u,v] - x[i+u,j+v]))",
    "op f(x[a,b]; size(u)=3) -> y\ny[i,b] = sum[u](exp(x[i+u,b] - mean[u](x[i+u,b])))",
)


@pytest.mark.parametrize("text", MIXED)
def test_what_is_compared_with_a_statistic_of_its_window(text):
    """Terms along the axis, and terms along the windows, are placed each by itself."""
    f = load(parse(text))
    tensors = [torch.randn(5, 7, dtype=torch.float64, requires_grad=True)]
    tensors += [torch.randn(3, 2, dtype=torch.float64, requires_grad=True)] * text.count("w[u,v])")
    assert torch.autograd.gradcheck(f, tensors) and torch.autograd.gradgradcheck(f, tensors)


@each_row("seed", range(16))
def test_statistics_of_windows_are_what_a_person_writes(seed):
    program = random_statistics(seed)
    f, (x, z) = load(parse(program.text)), tensors(program, seed)
    y, expected = f(x, z), program.written(x, z)
    torch.testing.assert_close(y, expected)
    G = torch.randn_like(expected)
    wanted = torch.autograd.grad(expected, (x, z), G, materialize_grads=True)
    for create_graph in (False, True):
        found = torch.autograd.grad(
            f(x, z), (x, z), G, create_graph=create_graph, materialize_grads=True
        )
        torch.testing.assert_close(found, wanted)
