"""A forward gives the results of its kernels that the backward reads."""

import torch
from kit.unwritten import first_order

import derive

NORM = """
op f(x[*p,*s], w[*s]=1, b[*s]=0; eps=1e-5) -> y
m[*p] = mean[*s](x[*p,*s])
v[*p] = mean[*s]((x[*p,*s] - m[*p])**2)
y[*p,*s] = w[*s]*(x[*p,*s] - m[*p])/sqrt(v[*p] + eps) + b[*s]
"""


def test_the_forward_of_a_kernel_takes_groups_as_they_are():
    text = derive.source(
        derive.parse("""
op f(x[*p,*s], w[*s]; eps=1e-5) -> y
m[*p] = mean[*s](x[*p,*s])
v[*p] = mean[*s]((x[*p,*s] - m[*p])**2)
y[*p,*s] = w[*s]*(x[*p,*s] - m[*p])/sqrt(v[*p] + eps)
""")
    )
    forward = text.split("def forward(")[1].split("def setup_context")[0]
    first = first_order(text)
    assert "reshape" not in forward + first and "math.prod" not in forward + first


def test_torch_differentiates_a_forward_without_kernels():
    text = derive.source(derive.parse(NORM.replace("*p", "n").replace("*s", "i")))
    composed = text.split("def _f_composed")[1].split("class _F")[0]
    assert "native_" not in composed


def test_nothing_is_computed_for_the_backward_without_a_graph():
    f = derive.load(derive.parse(NORM.replace("*p", "n").replace("*s", "i")))
    x, w = torch.randn(3, 4), torch.randn(4, requires_grad=True)
    with torch.no_grad():
        y = f(x, w)
    torch.testing.assert_close(y, torch.nn.functional.layer_norm(x, (4,), w))
    assert not y.requires_grad and f(x, w).requires_grad
