"""Lines that compute in the memory of what is read no more: in the code of sums over blocks."""

import torch
from kit.lowered import assert_right
from kit.texts import source

from derive import load, parse


def body(equations: str, inputs: str) -> str:
    text = source(parse(f"op f({inputs}) -> t\n{equations}"), "n")
    _, _, rest = text.partition("def _f_t_formed(")
    return rest.partition("\n\n\n")[0]


def test_a_product_is_used_up_and_what_is_given_is_not():
    found = body("t = sum[n,c](exp(sum[i](x[n,i]*W[i,c])*v[n,c]))", "x[n,i], W[i,c], v[n,c]")
    assert "mul_(v)" in found or ".exp_()" in found
    assert " x.mul_" not in found
    assert " v.mul_" not in found


def test_a_softmax_writes_over_what_it_reads():
    equations = (
        "X[n,c] = sum[i](x[n,i]*W[i,c])\nF[n,c] = log_softmax[c](X[n,c])\nt = sum[n,c](F[n,c]*v[n])"
    )
    assert "out=" in body(equations, "x[n,i], W[i,c], v[n]")


def test_a_product_of_matrices_is_added_to_the_total():
    found = body("t = sum[n,c](tanh(sum[i](x[n,i]*W[i,c])))", "x[n,i], W[i,c]")
    assert "grad_W = rt.accumulate_product(grad_W, " in found


def test_lines_that_an_absent_tensor_needs_are_not_followed_without_it():
    inputs = "v[l], w[k], x[l,k,l]=0.5"
    text = f"op f({inputs}) -> y\ny = sum[k | k >= 2](x[1,k-2,0]*x[1,k,1]*v[1]*w[k])"
    assert_right(text)
    v, w = torch.rand(3), torch.rand(5)
    torch.testing.assert_close(load(parse(text))(v, w), 0.25 * v[1] * w[2:].sum())


def test_an_output_that_is_written_over_a_view_is_no_view():
    op = parse(
        "op f(x[n,d], W[d,k]; size(d)=4, size(k)=4) -> y\n"
        "y[n,k] = softmax[k](sum[j](W[j,k]*softmax[j](sum[d](x[n,d]*W[d,j])))/sqrt(size(d)))"
    )
    f = load(op)
    y = f(torch.randn(3, 4, requires_grad=True), torch.randn(4, 4))
    assert not y._is_view()
