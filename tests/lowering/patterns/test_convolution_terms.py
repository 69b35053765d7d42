"""Sums of a convolution and what stands beside it: no tensor of all windows is made for them."""

import numpy as np
import pytest
from kit.lines import made, named, run
from kit.unwritten import first_order

from derive.api import source

DEMODULATED = """op f(x[b,i,h,w], W[o,i,u,v]; eps=1e-3, size(p)=size(h)-size(u)+1,
     size(q)=size(w)-size(v)+1) -> y
d[o] = rsqrt(sum[i,u,v](W[o,i,u,v]**2) + eps)
y[b,o,p,q] = sum[i,u,v](W[o,i,u,v]*d[o]*x[b,i,p+u,q+v])"""

WEIGHED = """op f(x[b,i,t], W[o,i,k], g[b,o,n]; size(n)=size(t)-size(k)+1) -> y
y[b] = sum[o,n,i,k](g[b,o,n]*W[o,i,k]*x[b,i,n+k])"""


@pytest.mark.parametrize("text", (DEMODULATED, WEIGHED), ids=named)
def test_the_code_is_the_equation(text):
    op = made(text)
    code = source(op)
    assert "conv" in code and "einsum" not in code and "unfold" not in code
    sizes = {"b": 2, "i": 3, "o": 4, "h": 6, "w": 7, "u": 3, "v": 2, "t": 7, "k": 3, "n": 5}
    random = np.random.default_rng(0)
    run(text, {t.name: random.normal(size=[sizes[i.name] for i in t.axes]) for t in op.inputs})


def test_a_gradient_shares_its_convolution_with_another():
    first = first_order(source(made(DEMODULATED)))
    assert first.count("conv2d_weight(") == first.count("conv2d_input(") == 1
