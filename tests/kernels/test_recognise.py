"""Kernels in operations of any kind: where they stand, and that values and gradients are right."""

import warnings
from itertools import product

import pytest
import torch
from kit.each import each_row
from kit.unwritten import first_order, source_without_reuse

import derive
from derive.api import load
from derive.check.checks import ALL, checks_of
from derive.check.invoke import tensors_of
from derive.check.samples import cases, sample
from derive.kernels.table import BACKWARD, FORWARD, KERNELS
from derive.pipeline import program_of


def kernels(op, option=None):
    """The names of the kernels in the code of an operation."""
    return {r.pattern for r in program_of(op, option).recognised} & set(KERNELS)


GELU = {"gelu", "gelu backward"}
SILU = {"silu", "silu backward"}
GLU = {"glu", "glu backward"}
SOFTMAX = {"softmax backward"}

FOUND = {
    "y[i] = x[i]*(1 + erf(x[i]/sqrt(2)))/2": GELU,
    "y[i] = 0.5*x[i] + x[i]*erf(x[i]*sqrt(2)/2)/2": GELU,
    "c[i] = (1 + erf(x[i]*rsqrt(2)))/2\ny[i] = x[i]*c[i]": GELU,
    "y[i,j] = v[i,j]*x[j]*sigmoid(x[j])": SILU,
    "h[i,k] = sum[j](x[i,j]*w[j,k]) + b[k]\ny[i,k] = h[i,k]*sigmoid(h[i,k])": SILU,
    "y[i] = x[i]*sigmoid(2*x[i])": SILU,
    "y[i,k] = sum[j](x[i,j]*sigmoid(x[i,j])*w[j,k])": SILU,
    "y[i,j] = (a[i] + b[j])/(1 + exp(-(a[i] + b[j])))": {"silu backward"},
    "h[i] = 2*x[i] - 1\ny[i] = log(1 + (h[i]*sigmoid(h[i]))**2)": SILU,
    "y[i] = x[i]*sigmoid(x[i]) + z[i]*(1 + erf(z[i]/sqrt(2)))/2": GELU | SILU,
    "op f(x[i], m[i]: bool) -> y\ny[i] = where(m[i], x[i]*sigmoid(x[i]), x[i]**2)": SILU,
    "y[i] = 3*x[i]*tanh(softplus(x[i]))": {"mish", "mish backward"},
    "op f(x[i]; a=0.3) -> y\ny[i] = where(x[i] > 0, x[i], a*x[i])": {
        "leaky_relu",
        "leaky_relu backward",
    },
    "y[i] = where(x[i] > 0, x[i], 0.1*x[i])": {"leaky_relu", "leaky_relu backward"},
    "y[i] = where(x[i] > 0, 2*x[i], 3*expm1(x[i]))": {"elu", "elu backward"},
    "y[i,k] = softmax[k](x[i,k])": SOFTMAX,
    "e[i,k] = exp(x[i,k])\ny[i,k] = e[i,k]/sum[k](e[i,k])": SOFTMAX,
    "p[i,k] = softmax[k](2*x[i,k])\ny[i,c] = sum[k](p[i,k]*v[k,c])": SOFTMAX,
    "y[i,k] = log_softmax[k](x[i,k])": {"log_softmax backward"},
    "y[i] = tanh(x[i])": {"tanh backward"},
    "y[i] = sigmoid(x[i])*w[i]": {"sigmoid backward"},
    "op f(x[n,t,k]; size(t)=2) -> y\ny[n,k] = x[n,0,k]*sigmoid(x[n,1,k])": GLU,
    "op f(x[t]; size(t)=2) -> y\ny = 3*x[0]*sigmoid(x[1])": GLU,
    "op f(x[n,k,t], v[k]; size(t)=2) -> y\ny[n] = sum[k](v[k]*x[n,k,0]*sigmoid(x[n,k,1]))": GLU,
    "op f(x[*p,(t k)]; size(t)=2) -> y\n"
    "h[*p,t,k] = x[*p,(t k)]\ny[*p,k] = h[*p,0,k]*sigmoid(h[*p,1,k])": GLU,
    "op f(x[t,k]; size(t)=2) -> y\nh[t,k] = 2*x[t,k]\ny[k] = h[0,k]*sigmoid(h[1,k])": GLU,
    "op f(x[t,k]; size(t)=3) -> y\ny[k] = x[0,k]*sigmoid(x[1,k])": {"sigmoid backward"},
}
"""Texts and all kernels in their code."""

NONE = (
    "y[i] = x[i]*(1 + erf(x[i]))/2",
    "y[i] = x[i]*(1 + erf(x[i]/sqrt(2)))/3 + x[i]",
    "y[i] = x[i]*sigmoid(2*x[i] + 1)",
    "y[i] = z[i]*sigmoid(x[i])**3",
    "y[i] = where(x[i] > 1, x[i], 0.1*x[i])",
    "y[i] = where(x[i] > 0, x[i], x[i]**2)",
    "y[i,k] = exp(x[i,k])/(1 + sum[k](exp(x[i,k])))",
)
"""Texts that are nearly such equations."""


@each_row("text", FOUND)
def test_kernels_of_the_forward_stand_where_their_equations_do(text):
    op = derive.parse(text)
    smooth = {row.name for row in BACKWARD if row.smooth}  # any order may call these beside
    assert FOUND[text] <= kernels(op) <= FOUND[text] | smooth
    right(op)


@pytest.mark.parametrize("text", NONE)
def test_kernels_of_the_forward_stand_nowhere_else(text):
    op = derive.parse(text)
    assert not kernels(op) & {row.name for row in FORWARD}
    right(op)


def right(op):
    """Values and gradients of first order, of all orders, and of plain autograd are the same."""
    function = load(op)
    columns = [c for c in ALL if c.name in ("value", "gradient", "reference", "gradgradcheck")]
    for check in checks_of(op, function, columns=columns):
        assert check.ok, check
    case = next(c for c in cases(op) if c.label == "typical")
    made = sample(op, case)
    first, every = (_gradients(op, function, made, graph) for graph in (False, True))
    torch.testing.assert_close(first, every, rtol=1e-11, atol=1e-12)


def _gradients(op, function, made, graph):
    tensors = tensors_of(made)
    outputs = function(*tensors.values(), **made.parameters)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    total = sum((y * torch.linspace(1, 2, y.numel()).view(y.shape)).sum() for y in outputs)
    wanted = [x for x in tensors.values() if x is not None and x.requires_grad]
    return torch.autograd.grad(total, wanted, create_graph=graph, allow_unused=True)


PLACES = ("{}", "w[j]*{}", "3*{}/5 + x[i,j]", "exp(-{}**2)", "[m[i,j]]*{}", "sum[k](v[k]*{})")
OF = ("x[i,j]", "(x[i,j] + w[j])", "(2*x[i,j] - 1)", "sum[k](v[k]*x[i,j])")
SCALAR = {
    "gelu": "{0}*(1 + erf({0}/sqrt(2)))/2",
    "silu": "{0}*sigmoid({0})",
    "mish": "{0}*tanh(softplus({0}))",
    "elu": "where({0} > 0, {0}, 1.5*expm1({0}))",
    "leaky_relu": "where({0} > 0, {0}, 0.2*{0})",
}


def _slow(name, place, of):
    quick = (place, of) in zip(PLACES, (*OF, *OF), strict=False) and name in ("gelu", "elu")
    return pytest.param(name, place, of, marks=() if quick else pytest.mark.long)


@pytest.mark.parametrize(("name", "place", "of"), [_slow(*x) for x in product(SCALAR, PLACES, OF)])
def test_anything_around_and_inside(name, place, of):
    body = place.format(SCALAR[name].format(of))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        op = derive.parse(f"op f(x[i,j], w[j], v[k], m[i,j]: bool) -> y\ny[i,j] = {body}")
    right(op)


def test_a_kernel_is_called_beside_a_softmax():
    text = source_without_reuse(
        derive.parse(
            "op f(x[i,j], z[i,j]) -> y\n"
            "y[i,j] = z[i,j]*(1 + erf(z[i,j]/sqrt(2)))/2 + log_softmax[j](x[i,j])"
        )
    )
    assert "torch.nn.functional.gelu(z) + torch.log_softmax(x, 1)" in text


TEXTS = {
    "p[i] = sigmoid(x[i])\ny[] = sum[i](w[i]*p[i])/(1 + sum[i](p[i]))": "sigmoid_backward",
    "p[i] = tanh(x[i])\ny[i] = w[i]*p[i] + p[i]**2 - 3*p[i]": "tanh_backward",
    "y[i,k] = w[k]*tanh(v[i,k]*x[i,k])": "tanh_backward",
    "p[i,k] = softmax[k](x[i,k])\ny[i] = sum[k](w[k]*p[i,k]) + sum[k](v[i,k]*p[i,k])**2": (
        "_softmax_backward_data"
    ),
}


@pytest.mark.parametrize("text", TEXTS, ids=lambda t: t.replace("\n", "; "))
def test_one_kernel_is_called(text):
    op = derive.parse(text)
    assert first_order(derive.source(op)).count(TEXTS[text]) == 1
    f = derive.load(op)
    torch.manual_seed(0)
    sizes = {"i": 3, "k": 5}
    made = [
        torch.randn([sizes[a.name] for a in t.axes], dtype=torch.float64, requires_grad=True)
        for t in op.inputs
    ]
    assert torch.autograd.gradcheck(f, made) and torch.autograd.gradgradcheck(f, made)
