"""Products: numbers and small tensors first, what is divided by last, brackets as masks."""

import numpy as np
import pytest
import torch
from kit.each import each_row
from kit.lines import defined, made
from kit.lowered import assert_right
from kit.recognised import functions
from kit.unwritten import source_without_reuse

from derive import load, parse
from derive.algebra.expr import And, Index, Rel, num
from derive.algebra.logic import conjunction


def test_brackets_are_one_condition():
    i = Index("i", "i")
    a, b = Rel("<", i, num(3)), Rel("<", num(0), i)
    assert conjunction([a]) is a
    assert conjunction([a, b]) is And((a, b))


def test_factors_go_to_what_is_placed_and_to_what_it_is_added_to():
    text = (
        "op f(x[n,k], t[n]: int, a[n], G[]) -> y\nl[n,k] = log_softmax[k](x[n,k])\n"
        "y[] = G*sum[n](l[n,t[n]] + a[n]*mean[k](l[n,k]))"
    )
    assert_right(text, t=np.array([1, 0, 1]), G=np.array(0.7))
    backward = functions(source_without_reuse(made(text)))[-1]
    (line,) = [line for line in backward if "scatter_add" in line]
    assert "mul" not in line and "*" not in line.split("scatter_add")[0]


SQUARES = (
    "op f(x[i,k]) -> y\ny[i] = sum[k](x[i,k])/size(k)**2",
    "op f(x[i,k]) -> y\ny[i] = mean[k](x[i,k]**2) - mean[k](x[i,k])**2",
    "op f(x[a]; size(u)=3) -> y\ny[i] = mean[u](x[i+u]**2) - mean[u](x[i+u])**2",
    "op f(x[a], z[a]; size(u)=3) -> y\n"
    "y[i] = mean[u](x[i+u]*z[i+u]) - mean[u](x[i+u])*mean[u](z[i+u])",
    "op f(x[a]; size(u)=2) -> y\ny[i] = mean[u](sin(x[i+u])) - mean[u](x[i+u]**2)**2",
)


@pytest.mark.parametrize("text", SQUARES)
def test_a_mean_uses_up_one_size(text):
    assert_right(text)
    f, axes = load(made(text)), 2 if "x[i,k]" in text else 1
    tensors = [torch.randn((3, 5)[-axes:], dtype=torch.float64, requires_grad=True)]
    tensors += [torch.randn_like(tensors[0]).requires_grad_() for _ in range(text.count(", z["))]
    assert torch.autograd.gradcheck(f, tensors)


MOST = (
    "maximum(logsumexp[t | t == i](amin[j](w[j]) + a[t]), "
    "min[t](where(t == i, amin[j](w[j]) + a[t], 0)))"
)


def test_of_two_equal_sums_over_one_size_one_is_a_mean():
    """The gradient of w has sum(w)*sum(w)/size(w) under the conditions of the maximum."""
    mean, top = f"mean[l]({MOST} + w[l])", f"amax[l]({MOST} + w[l])"
    op = made(
        f"op f(a[i], b[i], w[j]) -> y\n"
        f"y[i] = {top}*{mean}*(sum[u](b[i] + w[u]) - min[j](b[i] + w[j]))"
    )

    given = [torch.tensor(x, requires_grad=True) for x in ([0.8], [-0.3], [1.1, -0.7, 0.4])]
    totals = (f(*given).sum() for f in (load(op), defined(op)))
    torch.testing.assert_close(*(torch.autograd.grad(total, given) for total in totals))


@pytest.mark.parametrize(
    ("number", "code"),
    [("0.044715*x[n]", "0.044715 *"), ("x[n]/25", "/ 25"), ("x[n]/1001", "/ 1001")],
)
def test_a_finite_decimal_is_written_as_one(number, code):
    text = f"op f(x[n]) -> y\ny[n] = tanh({number})"
    assert code in "\n".join(functions(source_without_reuse(parse(text)))[0])
    assert_right(text)


COUNTS = (
    "[T[k] > 0]*[v[k] > T[k]]",
    "3*[T[k] == 1]*[T[k] > v[1]]",
    "sum[e]([T[e] == k]*[T[k] == e])",
    "sum[e]([T[e] == k]*[T[k] == e]*[v[1] > 0]*3)",
)


@each_row("text", COUNTS)
def test_a_product_of_brackets_is_an_integer(text):
    op = parse(f"op f(T[k]: int, v[k]) -> n, z\nn[k] = {text}\nz[k] = v[k]**2")
    T, v = torch.tensor([1, 0, 3, 1]), torch.tensor([0.5, 0.1, -1.0, 2.0])
    (n, _), (wanted, _) = load(op)(T, v), defined(op)(T, v)
    assert n.dtype == torch.int64 and n.tolist() == wanted.tolist()
