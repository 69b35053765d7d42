"""Windows that slide: step*place + dilation*within - before, and which index counts them."""

from random import Random

import pytest
import torch
from kit.each import each_row
from kit.lines import defined
from kit.lowered import assert_right

from derive import load, parse
from derive.algebra.expr import Access, Guard, Index, Rel, Size, num, walk
from derive.calculus.guards import bounds_of
from derive.lowering.ground.windows import unguarded_position
from derive.lowering.patterns.unfold import nonnegative_form, runs_over, sliding

WIDTH = 3
"""The extent of every window."""
ELEMENTS = ("{x}", "{x}**2", "{x}*{z}", "exp({x})", "abs({x} - {z})", "tanh({x})*{z}")
REDUCTIONS = ("mean", "sum", "amax", "logsumexp")
JOINED = ("({a}) - ({b})", "({a})*({b})", "({a})/(1 + ({b})**2)", "({a}) - ({b})**2")


def random_statistics(seed: int) -> str:
    """Two or three statistics of the same windows of x and z, at times with rows, joined.

    The first of them has at times a name.
    """
    draw = Random(seed)
    before, step = "n," if draw.random() < 0.5 else "", draw.choice((1, 1, 2))
    place = f"{before}{step}*i + u" if step > 1 else f"{before}i + u"

    def statistic() -> str:
        element, reduction = draw.choice(ELEMENTS), draw.choice(REDUCTIONS)
        return f"{reduction}[u]({element.format(x=f'x[{place}]', z=f'z[{place}]')})"

    text = statistic()
    named = ""
    for n in range(draw.choice((1, 1, 2))):
        if n == 0 and draw.random() < 0.4:
            named, text = f"m[{before}i] = {text}\n", f"m[{before}i]"
        other = statistic()
        text = draw.choice(JOINED).format(a=text, b=other)
    axes = f"{before}a"
    head = f"op f(x[{axes}], z[{axes}]; size(u)={WIDTH}) -> y\n"
    unread = "" if "z[" in named + text else f" + 0*mean[u](z[{place}])"
    return f"{head}{named}y[{before}i] = {text}{unread}"


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


@each_row(
    "text",
    [
        "op f(x[n,u]; size(m)=2) -> y\ny[n,k,m] = x[n,size(u)-1-(k*2+m)]",
        "op f(x[n,u], w[m]) -> y\ny[n,k] = sum[m](w[m]*x[n,size(u)-1-(k*4+m)])",
        "op f(x[c,u], w[c,m]) -> y\ny[k] = sum[c,m](w[c,m]*x[c,size(u)-1-(k*4+m)])",
        "op f(x[c,u], w[c,m]) -> y\ny[k] = sum[c,m](w[c,m]*x[c,size(u)-1-k*4-2*m])",
    ],
)
def test_windows_from_the_end_leave_out_the_start(text):
    """The axis has 9 positions, a remainder of 1 or 2."""
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
def test_statistics_of_windows_are_what_the_equations_say(seed):
    op = parse(random_statistics(seed))
    shape = (2, 9) if op.inputs[0].axes[1:] else (9,)
    x, z = (torch.randn(shape, dtype=torch.float64, requires_grad=True) for _ in range(2))
    f = load(op)
    y, expected = f(x, z), defined(op)(x, z)
    torch.testing.assert_close(y, expected)
    G = torch.randn_like(expected)
    wanted = torch.autograd.grad(expected, (x, z), G, materialize_grads=True)
    for create_graph in (False, True):
        found = torch.autograd.grad(
            f(x, z), (x, z), G, create_graph=create_graph, materialize_grads=True
        )
        torch.testing.assert_close(found, wanted)
