"""Values that are the same with two indices exchanged, in gradients of sums over pairs."""

import re

from kit.each import each_row
from kit.lowered import assert_right

import derive

CASES = {
    "z[n,i] -> L\nS[i,j] = sum[n](z[n,i]*z[n,j])\nL = sum[i,j](S[i,j]**2)": (
        "grad_z[n,i] = 4·G·Σⱼ z[n,j]·S[i,j]"
    ),
    # The adjoint of a symmetric value is symmetric too.
    "z[n,d]; t=2 -> L\nD[n,m] = sum[d]((z[n,d] - z[m,d])**2)\nL = log(mean[n,m](exp(-t*D[n,m])))": (
        "grad_z[n,d] = 4·t·G·Σₘ exp(−(lse + t·D[n,m]))·(z[m,d] − z[n,d])"
    ),
    # An odd function of a difference changes its sign, and the other index of a pair is its own.
    "x[n], w[n] -> L\nK[n,m] = sin(x[n] - x[m])\nL = sum[n,m](K[n,m]*w[n])": (
        "grad_x[n] = G·Σₘ cos(x[n] − x[m])·(w[n] − w[m])"
    ),
    "x[b,n], w[b,c] -> y\nK[b,c] = w[b,c] + w[c,b]\ny[b,n] = sum[c](K[c,b]*x[c,n])": (
        "grad_x[b,n] = Σ[c] G[c,n]·K[b,c]"
    ),
}


@each_row("text", CASES)
def test_what_reads_both_orders_reads_one(text):
    header, _, body = text.partition("\n")
    inputs, _, result = header.partition(" -> ")
    spec = f"op f({inputs}) -> {result}\n{body}"
    assert CASES[text] in str(derive.derivation(derive.parse(spec)))
    assert_right(spec)


KERNELS = {
    "exp(-sum[k]((x[i,k] - x[j,k])**2))": True,
    "sum[k](x[i,k]*x[j,k]) + 1": True,
    "sum[k](abs(x[i,k] - x[j,k]))": True,
    "sum[k](sin(x[i,k] - x[j,k]))": False,
    "sum[k]((x[i,k] - x[j,k])**3)": False,
    "sum[k](x[i,k]*x[j,k])*(i - j)": False,
    "sum[k](x[i,k]*x[j,k])*w[i,j]": False,
}


@each_row("kernel", KERNELS)
def test_a_value_is_symmetric_by_its_equation(kernel):
    spec = (
        f"op f(x[i,k], w[i,j]; size(j)=size(i)) -> y\nK[i,j] = {kernel}\n"
        "y = sum[i,j](w[i,j]**2 + K[i,j]**3*K[j,i])"
    )
    _, _, gradients = str(derive.derivation(derive.parse(spec))).partition("gradients")
    reads = set(re.findall(r"(?<!_)K\[[^]]*\]", gradients))
    assert len(reads) == (1 if KERNELS[kernel] else 2)
    assert_right(spec)


def test_two_summed_indices_keep_their_order():
    """Their names follow their order, so that exchanging them would never end."""
    assert_right(
        "op f(x[n], w[n]) -> L\nK[n,m] = exp(-(x[n] - x[m])**2)\n"
        "L = sum[n,m](K[n,m]*w[n])*sum[n,m](K[m,n]*w[n]*x[m])"
    )


def test_a_product_of_all_but_one_is_not_symmetric():
    assert_right("op f(x[n]) -> y\ny[n] = prod[k](sin(x[n]*x[k]))")
    assert_right("op f(x[n]) -> y\nK[n,k] = x[n]*x[k]\ny[n] = sum[k](K[k,n])*prod[k](K[k,n])")
