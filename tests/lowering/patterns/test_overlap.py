"""Windows with weights of their own: what is placed along them is added where they overlap."""

import pytest
import torch
from kit.each import each_row
from kit.lines import defined

import derive
from derive.check.checks import verify_source

STEPS = [(1, -1, 3), (2, 0, 3), (2, -2, 5), (3, 1, 2), (1, -4, 3), (1, 5, 2)]
SIZES = [(7, 9), (1, 5), (12, 4), (5, 1), (0, 6), (0, 2)]


def written(step, start, size):
    at = f"{step}*t + a + {start}" if step > 1 else f"t + a + {start}"
    inside = f"0 <= {at} and {at} < size(u)"
    return (
        f"op f(k[n,t,a], x[n,u]; size(a)={size}) -> y\n"
        f"y[n,t] = sum[a | {inside}](k[n,t,a]*x[n,{at}])"
    ).replace("+ -", "- ")


@pytest.mark.parametrize(("step", "start", "size"), STEPS)
def test_the_gradient_of_local_weights(step, start, size):
    op = derive.parse(written(step, start, size))
    assert "rt.overlap_add(" in derive.source(op, standalone=False)
    f = derive.load(op)

    for places, length in SIZES:
        k, x = torch.randn(2, places, size).double(), torch.randn(2, length).double()
        own, found = [k.requires_grad_(), x.requires_grad_()], ([], [])
        for g, made in zip((f, defined(op)), found, strict=True):
            made.append(g(*own))
            for _ in range(2):
                total = sum(y.sin().sum() for y in made if y.requires_grad)
                made += torch.autograd.grad(total, own, create_graph=True)
        torch.testing.assert_close(*found)


OTHERS = {
    "a channel behind": (
        "op f(k[n,t,a,d], x[n,u,d]; size(a)=3) -> y\n"
        "y[n,t,d] = sum[a | t + a < size(u)](k[n,t,a,d]*x[n,t+a,d])"
    ),
    "a group before": (
        "op f(k[*b,t,a], x[*b,u]; size(a)=3, p=1) -> y\n"
        "y[*b,t] = sum[a | 0 <= t + a - p and t + a - p < size(u)](k[*b,t,a]*x[*b,t+a-p])"
    ),
    "a group behind": (
        "op f(k[t,a,*b], x[u,*b]; size(a)=3, p=1) -> y\n"
        "y[t,*b] = sum[a | 0 <= t + a - p and t + a - p < size(u)](k[t,a,*b]*x[t+a-p,*b])"
    ),
    "two axes": (
        "op f(k[h,w,a,b], x[c,i,j]; size(a)=3, size(b)=2, size(i)=size(h)+size(a)-1, "
        "size(j)=2*size(w)+size(b)-2) -> y\n"
        "y[c,h,w] = sum[a,b](k[h,w,a,b]*x[c,h+a,2*w+b]**2)"
    ),
    "differences within": (
        "op f(x[n,h]; size(a)=3) -> y\n"
        "k[n,h,a] = where(0 <= h + a - 1 < size(h), exp(-(x[n,h+a-1] - x[n,h])**2), 0)\n"
        "y[n,h] = sum[a](k[n,h,a])"
    ),
}


@each_row("name, text", OTHERS.items())
def test_windows_of_other_tensors(name, text):
    op = derive.parse(text)
    assert "rt.overlap_add(" in derive.source(op, standalone=False)
    verify_source(op, derive.source(op))
    verify_source(op, derive.source(op, style="plain"))


def test_windows_side_by_side_are_digits():
    op = derive.parse(
        "op f(k[t,a], x[u]; size(a)=2, size(u)=2*size(t)+1) -> y\ny[t] = sum[a](k[t,a]*x[2*t+a])"
    )
    code = derive.source(op, standalone=False)
    assert "slice_scatter(" in code and "overlap_add" not in code
    verify_source(op, code)


def test_batches_and_compilers():
    f = derive.load(derive.parse(written(2, -2, 5)))
    k, x = torch.randn(4, 2, 7, 5), torch.randn(4, 2, 9, requires_grad=True)
    want = torch.stack([f(*own) for own in zip(k, x, strict=True)])
    torch.testing.assert_close(torch.func.vmap(f)(k, x), want)
    gradient = torch.func.vmap(torch.func.grad(lambda k, x: f(k, x).sin().sum(), 1))(k, x)
    torch.testing.assert_close(gradient, torch.autograd.grad(want.sin().sum(), x)[0])
