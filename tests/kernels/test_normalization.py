"""Normalisations are found however they are written, and their derivatives are right."""

import re

import pytest
import torch
from kit.each import some_now, told
from kit.unwritten import first_order

from derive import catalog, derivation, load, parse, read_torch, source
from derive.check.checks import verify_source

WAYS = {}
"""Ways to write a normalisation, alone or as a part of something."""
FOUND = {}
"""The kernel, and how often a result of its backward is read."""
for said, text in told(
    """\
four: layer_norm 3
    op f(x[n,i], w[i], b[i]; eps=1e-5) -> y; mu[n]=mean[i](x[n,i]); \
      v[n]=mean[i]((x[n,i]-mu[n])**2); h[n,i]=(x[n,i]-mu[n])/sqrt(v[n]+eps); y[n,i]=h[n,i]*w[i]+b[i]
two: layer_norm 3
    op f(x[n,i], w[i], b[i]) -> y; u[n,i]=x[n,i]-mean[i](x[n,i]); \
      y[n,i]=u[n,i]*rsqrt(mean[j](u[n,j]**2)+1e-5)*w[i]+b[i]
one: layer_norm 1
    op f(x[n,i]) -> y; \
      y[n,i]=(x[n,i]-mean[i](x[n,i]))/sqrt(mean[j]((x[n,j]-mean[i](x[n,i]))**2)+1e-5)
std eq: layer_norm 2
    op f(x[n,i], w[i]; eps=1e-6) -> y; m[n]=sum[i](x[n,i])/size(i); \
      s[n]=sqrt(sum[i]((x[n,i]-m[n])**2)/size(i)+eps); y[n,i]=w[i]*(x[n,i]-m[n])/s[n]
rstd eq: layer_norm 2
    op f(x[n,i], w[i]; eps=1e-6) -> y; m[n]=mean[i](x[n,i]); \
      r[n]=(mean[i]((x[n,i]-m[n])**2)+eps)**(-1/2); y[n,i]=w[i]*(x[n,i]-m[n])*r[n]
unbiased: layer_norm 3
    op f(x[n,i], w[i], b[i]) -> y; m[n]=mean[i](x[n,i]); \
      v[n]=sum[i]((x[n,i]-m[n])**2)/(size(i)-1); y[n,i]=w[i]*(x[n,i]-m[n])*(v[n]+1e-5)**(-1/2)+b[i]
unbiased bn: batch_norm 3
    op f(x[i,j], gain[j], bias[j]; eps=1e-5) -> y; mu[j]=mean[i](x[i,j]); \
      var[j]=sum[i]((x[i,j]-mu[j])**2)/(size(i)-1); \
      xhat[i,j]=(x[i,j]-mu[j])*(var[j]+eps)**(-1/2); y[i,j]=gain[j]*xhat[i,j]+bias[j]
gemma: layer_norm 2
    op f(x[n,i], w[i]; eps=1e-6) -> y; m[n]=mean[i](x[n,i]); v[n]=mean[i]((x[n,i]-m[n])**2); \
      y[n,i]=(1+w[i])*(x[n,i]-m[n])/sqrt(v[n]+eps)
prenorm: layer_norm 3
    op f(x[n,i], w[i], b[i], W[j,i]; eps=1e-6) -> z; m[n]=mean[i](x[n,i]); \
      v[n]=mean[i]((x[n,i]-m[n])**2); y[n,i]=w[i]*(x[n,i]-m[n])/sqrt(v[n]+eps)+b[i]; \
      z[n,j]=sum[i](y[n,i]*W[j,i])
mlp: layer_norm 3
    op f(x[n,i], A[j,i], c[j], w[j], b[j], B[k,j]; eps=1e-6) -> z; \
      h[n,j]=sum[i](x[n,i]*A[j,i])+c[j]; m[n]=mean[j](h[n,j]); v[n]=mean[j]((h[n,j]-m[n])**2); \
      y[n,j]=w[j]*(h[n,j]-m[n])/sqrt(v[n]+eps)+b[j]; a[n,j]=relu(y[n,j]); \
      z[n,k]=sum[j](a[n,j]*B[k,j])
block: layer_norm 3
    op f(x[n,i], w[i], b[i], W[j,i], V[i,j]; eps=1e-6) -> z; m[n]=mean[i](x[n,i]); \
      v[n]=mean[i]((x[n,i]-m[n])**2); y[n,i]=w[i]*(x[n,i]-m[n])/sqrt(v[n]+eps)+b[i]; \
      h[n,j]=tanh(sum[i](y[n,i]*W[j,i])); z[n,i]=x[n,i]+sum[j](h[n,j]*V[i,j])
not last: batch_norm 1
    op f(x[i,n], w[i]) -> y; m[n]=mean[i](x[i,n]); v[n]=mean[i]((x[i,n]-m[n])**2); \
      y[i,n]=w[i]*(x[i,n]-m[n])/sqrt(v[n]+1e-5)
two axes: layer_norm 3
    op f(x[n,i,j], w[i,j], b[i,j]) -> y; m[n]=mean[i,j](x[n,i,j]); \
      v[n]=mean[i,j]((x[n,i,j]-m[n])**2); y[n,i,j]=w[i,j]*(x[n,i,j]-m[n])/sqrt(v[n]+1e-5)+b[i,j]
scalar gain: layer_norm 1
    op f(x[n,i], g, b[i]) -> y; m[n]=mean[i](x[n,i]); v[n]=mean[i]((x[n,i]-m[n])**2); \
      y[n,i]=g*(x[n,i]-m[n])/sqrt(v[n]+1e-5)+b[i]
modulated: layer_norm 1
    op f(x[n,i], s[n,i], t[n,i]) -> y; m[n]=mean[i](x[n,i]); v[n]=mean[i]((x[n,i]-m[n])**2); \
      y[n,i]=(1+s[n,i])*(x[n,i]-m[n])/sqrt(v[n]+1e-5)+t[n,i]
gelu of norm: layer_norm 3
    op f(x[n,i], w[i], b[i]) -> z; m[n]=mean[i](x[n,i]); v[n]=mean[i]((x[n,i]-m[n])**2); \
      y[n,i]=w[i]*(x[n,i]-m[n])/sqrt(v[n]+1e-5)+b[i]; z[n,i]=y[n,i]*(1+erf(y[n,i]/sqrt(2)))/2
no eps: layer_norm 1
    op f(x[n,i]) -> y; m[n]=mean[i](x[n,i]); y[n,i]=(x[n,i]-m[n])/sqrt(mean[i]((x[n,i]-m[n])**2))
square: layer_norm 3
    op f(x[i,j], w[j]) -> y; m[i]=mean[j](x[i,j]); v[i]=mean[j]((x[i,j]-m[i])**2); \
      y[i,j]=w[j]*(x[i,j]-m[i])/sqrt(v[i]+1e-5)+w[j]
group: layer_norm 1
    op f(x[n,(g c),t], w[c]; groups=size(g)) -> y; m[n,g]=mean[c,t](x[n,(g c),t]); \
      v[n,g]=mean[c,t]((x[n,(g c),t]-m[n,g])**2); \
      y[n,(g c),t]=w[c]*(x[n,(g c),t]-m[n,g])/sqrt(v[n,g]+1e-5)
loss: layer_norm 2
    op f(x[n,i], w[i], t[n,i]) -> l; m[n]=mean[i](x[n,i]); v[n]=mean[i]((x[n,i]-m[n])**2); \
      y[n,i]=w[i]*(x[n,i]-m[n])/sqrt(v[n]+1e-5); l=mean[n,i]((y[n,i]-t[n,i])**2)
twice: layer_norm 4
    op f(x[n,i], w[i], b[i]) -> z; m[n]=mean[i](x[n,i]); v[n]=mean[i]((x[n,i]-m[n])**2); \
      y[n,i]=w[i]*(x[n,i]-m[n])/sqrt(v[n]+1e-5)+b[i]; m2[n]=mean[i](y[n,i]); \
      v2[n]=mean[i]((y[n,i]-m2[n])**2); z[n,i]=(y[n,i]-m2[n])/sqrt(v2[n]+1e-5)
"""
):
    name, kernel, reads = re.split(r": | (?=\d)", said)
    WAYS[name], FOUND[name] = text, (kernel, int(reads))

QUICK = ("rstd eq", "unbiased bn", "gemma", "not last", "group", "mlp")
OTHERS = dict(
    told(
        """\
eps outside the root
    op f(x[n,i]) -> y; m[n] = mean[i](x[n,i]); \
      y[n,i] = (x[n,i] - m[n])/(sqrt(mean[i]((x[n,i] - m[n])**2)) + 1e-5)
the mean of more than the deviation
    op f(x[n,i,j]) -> y; m[n] = mean[i,j](x[n,i,j]); v[n,i] = mean[j]((x[n,i,j] - m[n])**2); \
      y[n,i,j] = (x[n,i,j] - m[n])/sqrt(v[n,i] + 1e-5)
a deviation of something else
    op f(x[n,i], z[n,i]) -> y; m[n] = mean[i](x[n,i]); q[n] = mean[i](z[n,i]); \
      y[n,i] = (x[n,i] - m[n])/sqrt(mean[i]((z[n,i] - q[n])**2) + 1e-5)
"""
    )
)


def reads_of_gradients(text):
    """How many results of a backward kernel have a name, or are read by their position."""
    by_position = re.findall(r"grads\[|_backward\((?:[^()]|\([^()]*\))*\)\[", text)
    named = re.findall(r"(\w+(?:, \w+)+) = \w*_norm_backward\(", text)
    return len(by_position) + sum(n != "_" for names in named for n in names.split(", "))


def is_found(name):
    op = parse(WAYS[name])
    text = source(op)
    kernel, reads = FOUND[name]
    patterns = [pattern for _, pattern, _ in derivation(op).recognised]
    assert kernel in patterns and f"{kernel} backward" in patterns
    assert reads_of_gradients(first_order(text)) == reads
    verify_source(op, text)


@pytest.mark.parametrize("name", QUICK)
def test_a_normalisation_is_found(name):
    is_found(name)


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in WAYS if name not in QUICK])
def test_a_normalisation_is_found_in_any_form(name):
    is_found(name)


GATES = {
    "sigmoid": "sigmoid(maximum(w[n,j], v[j]))",
    "tanh": "tanh(minimum(w[n,j], v[j]))",
    "of a row": "sigmoid(maximum(u[n], v[j]))",
    "two": "sigmoid(maximum(w[n,j], v[j]))*tanh(minimum(w[n,j], b[j]))",
    "chosen": "where(w[n,j] > v[j], sigmoid(w[n,j]), tanh(v[j]))",
    "gelu": "maximum(w[n,j], v[j])*(1 + erf(maximum(w[n,j], v[j])/sqrt(2)))/2",
    "of itself": "tanh(maximum(x[n,j], v[j]))",
}


@pytest.mark.parametrize("over", ["n", "j"])
@pytest.mark.parametrize("gate", some_now([*GATES.values()], len(GATES), 3), ids=GATES)
def test_a_gate_beside_a_normalisation_is_a_kernel_of_its_own(gate, over):
    """The kernel of the gate has that of the normalisation in its cotangent."""
    row = "n" if over == "j" else "j"
    op = parse(f"""m[{row}] = mean[{over}](x[n,j])
s[{row}] = rsqrt(mean[{over}]((x[n,j] - m[{row}])**2) + 1e-5)
y[n,j] = {gate}*(x[n,j] - m[{row}])*s[{row}]""")
    text = source(op)
    assert "_norm_backward(" in text
    verify_source(op, text)


@pytest.mark.parametrize("text", OTHERS.values(), ids=OTHERS)
def test_what_is_something_else_is_not_found(text):
    assert "native_" not in source(parse(text))


def thrice(f, inputs, directions):
    """The third derivative, reverse over reverse over reverse, along these directions."""
    y = f(*inputs)
    value = (y * torch.linspace(0.5, 1.5, y.numel(), dtype=y.dtype).reshape(y.shape)).sum()
    for d in directions:
        grads = torch.autograd.grad(value, inputs, create_graph=True, materialize_grads=True)
        value = sum((g * e).sum() for g, e in zip(grads, d, strict=True))
        value = value.square()
    return torch.autograd.grad(value, inputs, materialize_grads=True)


def composite(axes, shape):
    """The plain forward."""

    def f(x, w, b):
        u = x - x.mean(axes, keepdim=True)
        h = u / (u.square().mean(axes, keepdim=True) + 1e-5).sqrt()
        return h * w.reshape(shape) + b.reshape(shape)

    return f


@pytest.mark.parametrize("name", ["layer_norm", "batch_norm"])
def test_the_third_derivative_is_right_where_that_of_torch_is_not(name):
    generator = torch.Generator().manual_seed(3)

    def tensor(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    rows, plain, own = {
        "layer_norm": (
            (6,),
            composite((1,), (6,)),
            lambda x, w, b: torch.nn.functional.layer_norm(x, (6,), w, b),
        ),
        "batch_norm": (
            (6,),
            composite((0,), (1, 6)),
            lambda x, w, b: torch.nn.functional.batch_norm(x, None, None, w, b, training=True),
        ),
    }[name]
    inputs = [tensor(5, 6), tensor(*rows), tensor(*rows)]
    directions = [[tensor(*t.shape) for t in inputs] for _ in range(2)]
    for t in inputs:
        t.requires_grad_()
    ours = load(catalog.find(name))
    wanted = thrice(plain, inputs, directions)
    found = thrice(lambda x, w, b: ours(x, w, b), inputs, directions)
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-9)
    theirs = thrice(own, inputs, directions)
    assert max((a - b).abs().max() for a, b in zip(theirs, wanted, strict=True)) > 1e-3


def test_tangents_of_any_order_are_those_of_the_plain_forward():
    ours, plain = load(catalog.find("layer_norm")), composite((1,), (6,))
    generator = torch.Generator().manual_seed(4)
    x, w, b, v = (
        torch.randn(shape, generator=generator, dtype=torch.float64)
        for shape in ((5, 6), (6,), (6,), (5, 6))
    )

    def third(f):
        def once(g):
            return lambda x: torch.func.jvp(g, (x,), (v,))[1]

        return once(once(once(lambda x: f(x, w, b))))(x)

    def mixed(f):
        along = lambda x: torch.func.jvp(lambda x: f(x, w, b), (x,), (v,))[1].square().sum()  # noqa: E731
        return torch.func.grad(lambda x: (torch.func.grad(along)(x) * v).sum())(x)

    for order in (third, mixed):
        torch.testing.assert_close(order(ours), order(plain), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("shape", [(7,), (3, 4)])
def test_the_normalisation_of_a_whole_tensor_has_a_weight(shape):
    """The gradient of a bias over no rows is its cotangent, in which no kernel is looked for."""
    ours = load(read_torch(lambda x, w: torch.layer_norm(x, shape, w), *(
        torch.randn(shape) for _ in "xw")))  # fmt: skip
    x, w, cotangent = (torch.randn(shape, dtype=torch.float64, requires_grad=True) for _ in "xwG")
    for f in (ours, lambda x, w: torch.layer_norm(x, shape, w)):
        f_x, f_w = torch.autograd.grad(f(x, w), (x, w), cotangent, create_graph=True)
        second = torch.autograd.grad(f_x.square().sum() + f_w.square().sum(), (x, w))
        if f is ours:
            found = f_x, f_w, *second
    torch.testing.assert_close(found, (f_x, f_w, *second))
