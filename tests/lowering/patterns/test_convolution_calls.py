"""Convolutions in the code: what is recognised, and that it equals what is not."""

import random
import warnings
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from kit.each import each_row, some_now
from kit.lowered import assert_code, code_table
from kit.recognised import functions, named, nothing_recognised, results, tensor
from kit.texts import module, source
from kit.unwritten import source_without_reuse
from torch.autograd import gradcheck, gradgradcheck

from derive import derivation, load, parse
from derive.check import oracle
from derive.check.checks import QUICK, VALUES, checks_of

# Random convolutions in index notation, the same ones for the same seed.


@dataclass(frozen=True)
class Convolution:
    """A text with arguments to run it on."""

    text: str
    tensors: dict[str, np.ndarray]
    parameters: dict[str, int]


@dataclass
class _Axis:
    """x[.., stride*t + dilation*k + shift, ..], the positions guarded or not."""

    position: str
    condition: str
    kernel: int
    places: int
    size: int
    declared: str = ""


@dataclass
class _Writer:
    random: random.Random
    parameters: dict[str, int] = field(default_factory=dict)

    def coefficient(self, name: str, most: int) -> tuple[str, int]:
        """A factor of an index as text, and its value."""
        value = self.random.randint(1, most)
        if self.random.random() < 0.3:
            self.parameters[name] = value
            return f"{name}*", value
        return (f"{value}*" if value > 1 else ""), value

    def axis(self, n: int, guarded: bool) -> _Axis:
        r = self.random
        t, k, u = f"t{n}", f"k{n}", f"u{n}"
        step, s = self.coefficient(f"s{n}", 3)
        every, d = self.coefficient(f"d{n}", 2)
        kernel, places = r.randint(1, 3), r.randint(1, 3)
        reach = d * (kernel - 1)
        kind = r.choice(("padded", "same", "causal")) if guarded else "valid"
        if kind == "causal":
            size = places
            if s > 1 or step:
                step, s = "", 1
                self.parameters.pop(f"s{n}", None)
            size = places = r.randint(2, 5)
            position = f"{t} - {every}{k}"
            return _Axis(position.replace(t, u), f"{u} >= {every}{k}", kernel, places, size, u)
        if kind == "same":
            size = places = r.randint(2, 5)
            p = r.randint(0, reach)
            position = f"{u} + {every}{k}" + (f" - {p}" if p else "")
            self.parameters.pop(f"s{n}", None)
            return _Axis(position, f"0 <= {position} < size({u})", kernel, places, size, u)
        remainder = r.randint(0, s - 1)
        if kind == "padded":
            p = r.randint(0, reach + 1)
            size = s * (places - 1) + reach + 1 + remainder - 2 * p
            if size < 1:
                p, size = 0, s * (places - 1) + reach + 1 + remainder
            pad, twice = str(p), str(2 * p)
            if r.random() < 0.4:
                self.parameters[f"p{n}"] = p
                pad, twice = f"p{n}", f"2*p{n}"
            room = f"size({u}) + {twice} - {every}(size({k}) - 1) - 1"
            length = f"size({t})=" + (f"floor(({room})/{step[:-1]})+1" if step else f"{room}+1")
            position = f"{step}{t} + {every}{k} - {pad}"
            return _Axis(position, f"0 <= {position} < size({u})", kernel, places, size, length)
        shift = r.choice((0, 0, 1, 2))
        size = s * (places - 1) + reach + 1 + remainder + shift
        position = f"{step}{t} + {every}{k}" + (f" + {shift}" if shift else "")
        return _Axis(position, "", kernel, places, size)


def random_convolution(seed: int, sample: int = 0) -> Convolution:
    """The program of a seed; ``sample`` gives other values."""
    r = random.Random(seed)
    w = _Writer(r)
    guarded = r.random() < 0.5
    axes = [w.axis(n, guarded) for n in range(r.choice((1, 1, 1, 1, 2, 2, 2, 3)))]
    sizes: dict[str, int] = {}

    def some(letters: str, counts: tuple[int, ...]) -> list[str]:
        chosen = list(letters)[: r.choice(counts)]
        for letter in chosen:
            sizes[letter] = r.choice((1, 2, 2, 3)) if len(axes) == 1 else r.randint(1, 2)
        return chosen

    batch, groups = some("nm", (0, 1, 1, 1, 2)), some("gh", (0, 0, 0, 1, 2))
    inputs, outputs = some("cd", (0, 1, 1, 2)), some("oq", (0, 1, 1, 2))
    letters = {}
    for n, a in enumerate(axes):
        sizes[f"u{n}"], sizes[f"k{n}"] = a.size, a.kernel
        letters[a.position] = f"u{n}"
    places = [f"u{n}" if a.declared == f"u{n}" else f"t{n}" for n, a in enumerate(axes)]

    def shuffled(*kinds: list[str]) -> list[str]:
        found = list(chain(*kinds))
        if r.random() < 0.5:
            r.shuffle(found)
        return found

    x = shuffled(batch, groups, inputs, [a.position for a in axes])
    kernel = [f"k{n}" for n in range(len(axes))]
    v = shuffled(groups, outputs, inputs, kernel)
    y = shuffled(batch, groups, outputs, places)
    read, weight = f"x[{','.join(x)}]", f"w[{','.join(v)}]"
    tensors = {"x": [letters.get(a, a) for a in x], "w": v}
    if r.random() < 0.25:
        read = r.choice(("exp({})", "sin({})", "{}**2", "tanh(2*{})")).format(read)
    if r.random() < 0.2:
        weight = r.choice(("sin({})", "{}**2", "(1 + {})")).format(weight)
    body = f"{read}*{weight}"
    extra = r.choice(("", "", "", "inputs", "kernel", "outputs", "number"))
    if extra == "inputs" and inputs:
        tensors["v"] = inputs[:1]
        body += f"*v[{inputs[0]}]"
    elif extra == "kernel":
        tensors["v"] = kernel[:1]
        body += f"*v[{kernel[0]}]"
    elif extra == "outputs" and outputs:
        tensors["v"] = [outputs[0], places[0]] if places[0][0] == "u" else outputs[:1]
        body += f"*v[{','.join(tensors['v'])}]"
    elif extra == "number":
        body = f"1/3*{body}" if r.random() < 0.5 else f"-2*{body}"
    conditions = [a.condition for a in axes if a.condition]
    if conditions:
        whole = " and ".join(conditions)
        if r.random() < 0.5:
            body = f"[{whole}]*{body}"
        else:
            body = f"where({whole}, {body}, 0)"
    declared = [a.declared for a in axes if a.declared.startswith("size")]
    given = [f"{name}[{','.join(tensors[name])}]" for name in tensors]
    settings = [f"{name}=1" for name in w.parameters] + declared
    head = f"op f({', '.join(given)}{'; ' if settings else ''}{', '.join(settings)}) -> y"
    summed = ",".join([*inputs, *kernel])
    text = f"{head}\ny[{','.join(y)}] = sum[{summed}]({body})"
    rng = np.random.default_rng([seed, sample])
    arrays = {n: rng.uniform(0.5, 1.5, [sizes[a] for a in t]) for n, t in tensors.items()}
    return Convolution(text, arrays, dict(w.parameters))


VALID = "y[n,o,t] = sum[c,k](x[n,c,t+k]*w[o,c,k])"
STRIDED = (
    "op f(x[n,c,u], w[o,c,k]; stride=1, dilation=1) -> y; "
    "y[n,o,t] = sum[c,k](x[n,c,stride*t+dilation*k]*w[o,c,k])"
)
PADDED = (
    "op f(x[n,c,u], w[o,c,k]; stride=1, padding=0, dilation=1, "
    "size(t)=floor((size(u)+2*padding-dilation*(size(k)-1)-1)/stride)+1) -> y; "
    "y[n,o,t] = sum[c,k]([0 <= stride*t+dilation*k-padding < size(u)]"
    "*x[n,c,stride*t+dilation*k-padding]*w[o,c,k])"
)
IMAGE = (
    "op f(x[n,c,h,w], W[o,c,i,j]; stride=1) -> y; "
    "y[n,o,p,q] = sum[c,i,j](x[n,c,stride*p+i,stride*q+j]*W[o,c,i,j])"
)
VOLUME = (
    "op f(x[n,c,d,h,w], W[o,c,i,j,k]) -> y; "
    "y[n,o,p,q,r] = sum[c,i,j,k](x[n,c,2*p+i,q+j,r+2*k]*W[o,c,i,j,k])"
)
DEPTHWISE = "op f(x[n,c,h,w], W[c,i,j]) -> y; y[n,c,p,q] = sum[i,j](x[n,c,p+i,q+j]*W[c,i,j])"
GROUPED = (
    "op f(x[n,(g c),u], W[(g o),c,k]; groups=size(g)) -> y; "
    "y[n,(g o),t] = sum[c,k](x[n,(g c),t+k]*W[(g o),c,k])"
)
CAUSAL = "op f(x[n,c,t], w[o,c,k]) -> y; y[n,o,t] = sum[c,k](where(t >= k, x[n,c,t-k]*w[o,c,k], 0))"
SAME = (
    "op f(x[n,c,t], w[o,c,k]) -> y; "
    "y[n,o,t] = sum[c,k]([0 <= t+k-1 < size(t)]*x[n,c,t+k-1]*w[o,c,k])"
)
SAME_OF_3 = SAME.replace("w[o,c,k])", "w[o,c,k]; size(k)=3)", 1)
TRANSPOSED = (
    "op f(x[n,o,t], w[o,c,k]; stride=1, size(u)=(size(t)-1)*stride+size(k)) -> y; "
    "y[n,c,u] = sum[o,t,k]([u == stride*t+k]*x[n,o,t]*w[o,c,k])"
)
CROPPED = (
    "op f(x[n,o,t], w[o,c,k], z[u]) -> y; "
    "y[n,c,u] = z[u]*sum[o,t,k]([u == 2*t+k-1]*x[n,o,t]*w[o,c,k])"
)
MANY = "op f(x[n,m,c,u], w[k,o,c]) -> y; y[t,n,m,o] = sum[c,k](x[n,m,c,2*t+k+1]*w[k,o,c])"
BARE = "op f(x[u], w[k]) -> y; y[t] = sum[k](x[t+k]*w[k])"
INSIDE = (
    "op f(x[n,c,u], m[n,c], w[o,c,k]) -> y; y[n,o,t] = sum[c,k](exp(x[n,c,t+k]-m[n,c])*w[o,c,k])"
)
MASKED = (
    "op f(x[c,u], w[c,k], m[u]: bool; size(t)=size(u)-size(k)+3) -> y; "
    "y[t] = sum[c,k]([0<=t+k-1 and t+k-1<size(u) and m[t+k-1]]*x[c,t+k-1]*w[c,k])"
)
RELU = "op f(x[n,c,u], w[o,c,k], b[o]) -> y; y[n,o,t] = relu(b[o] + sum[c,k](x[n,c,t+k]*w[o,c,k]))"
BLURRED = "op f(x[n,u], g[k]) -> y; y[n,t] = sum[k](g[k]*x[n,2*t+k])"
SIMILAR = (
    "op f(x[n,u], z[n,u], g[k]) -> y; m[n,t] = sum[k](g[k]*x[n,t+k]); "
    "c[n,t] = sum[k](g[k]*x[n,t+k]*z[n,t+k]); y[n,t] = m[n,t]*exp(c[n,t])"
)

CODE = code_table(
    f"""\
{VALID}
    y = torch.nn.functional.conv1d(x, w)
        grad_x = torch.nn.grad.conv1d_input(x_shape, w, G)
        grad_w = torch.nn.grad.conv1d_weight(x, w_shape, G)
{STRIDED}
    y = torch.nn.functional.conv1d(x, w, stride=stride, dilation=dilation)
        grad_x = torch.nn.grad.conv1d_input(x_shape, w, G, stride=stride, dilation=dilation)
        grad_w = torch.nn.grad.conv1d_weight(x, w_shape, G, stride=stride, dilation=dilation)
{PADDED}
    y = torch.nn.functional.conv1d(x, w, stride=stride, padding=padding, dilation=dilation)
        grad_x = torch.nn.grad.conv1d_input(x_shape, w, G, stride=stride, padding=padding, \
          dilation=dilation)
        grad_w = torch.nn.grad.conv1d_weight(x, w_shape, G, stride=stride, padding=padding, \
          dilation=dilation)
{IMAGE}
    y = torch.nn.functional.conv2d(x, W, stride=stride)
        grad_x = torch.nn.grad.conv2d_input(x_shape, W, G, stride=stride)
        grad_W = torch.nn.grad.conv2d_weight(x, W_shape, G, stride=stride)
{VOLUME}
    y = torch.nn.functional.conv3d(x, W, stride=(2, 1, 1), dilation=(1, 1, 2))
{DEPTHWISE}
    y = torch.nn.functional.conv2d(x, W.unsqueeze(1), groups=x.shape[1])
{GROUPED}
    y = torch.nn.functional.conv1d(x, W, groups=groups)
# Zeros on one side are put there first; a kernel that counts down is turned.
{CAUSAL}
    y = torch.nn.functional.conv1d(torch.nn.functional.pad(x, (w.shape[2] - 1, 0)), w.flip(2))
        grad_x = torch.nn.functional.conv1d(torch.nn.functional.pad(G, (0, w_shape[2] - 1)), \
          w.transpose(0, 1))
        grad_w = torch.nn.grad.conv1d_weight(torch.nn.functional.pad(x, (w_shape[2] - 1, 0)), \
          w_shape, G).flip(2)
{SAME}
    y = torch.nn.functional.conv1d(torch.nn.functional.pad(x, (1, w.shape[2] - 2)), w)
{SAME_OF_3}
    y = torch.nn.functional.conv1d(x, w, padding=1)
{TRANSPOSED}
    y = torch.nn.functional.conv_transpose1d(x, w, stride=stride)
        grad_x = torch.nn.functional.conv1d(G, w, stride=stride)
        grad_w = torch.nn.grad.conv1d_weight(G, w_shape, x, stride=stride)
{CROPPED}
{MANY}
{BARE}
# What windows read is computed once for each value, and so is its derivative.
{INSIDE}
    y = torch.nn.functional.conv1d((x - m.unsqueeze(2)).exp(), w)
{MASKED}
    y = torch.nn.functional.conv1d(rt.where(m, x, 0), w.unsqueeze(0), padding=1).squeeze(0)
{RELU}
    y = torch.nn.functional.conv1d(x, w, b).relu()
# Of one channel, each of the batch is one.
{BLURRED}
    y = rt.conv_single_channel(x.unsqueeze(1), g.unsqueeze(0).unsqueeze(1), stride=2).squeeze(1)
{SIMILAR}
"""
)


@each_row("text", CODE)
def test_the_code_that_an_expert_writes(text):
    assert_code(text, *CODE[text])
    assert "conv" in "".join(functions(source_without_reuse(parse(text)))[0])


@each_row("text", CODE)
def test_long_calls_have_their_arguments_on_lines_of_their_own(text):
    lines = source(parse(text)).splitlines()
    assert max(len(line) for line in lines if "torch.nn." in line) <= 88


@pytest.mark.parametrize("columns", some_now([VALUES, QUICK], 1), ids=len)
@each_row("text", [VALID, CAUSAL, BARE, INSIDE])
def test_the_family_of_checks(text, columns):
    """Values and gradients now; all checks, on sizes of every kind, in the long campaign."""
    op = parse(text)
    assert [c for c in checks_of(op, load(op), columns=columns) if not c.ok] == []


SMALL = {
    STRIDED: ([(2, 3, 6), (1, 3, 2)], {"stride": 2, "dilation": 3}),
    PADDED: ([(1, 2, 4), (3, 2, 2)], {"stride": 2, "padding": 1, "dilation": 2}),
    IMAGE: ([(1, 2, 5, 4), (3, 2, 2, 1)], {"stride": 2}),
    VOLUME: ([(1, 2, 4, 3, 5), (1, 2, 2, 1, 2)], {}),
    DEPTHWISE: ([(1, 3, 4, 5), (3, 2, 1)], {}),
    GROUPED: ([(1, 4, 5), (6, 2, 3)], {"groups": 2}),
    SAME: ([(1, 2, 5), (3, 2, 4)], {}),
    SAME_OF_3: ([(1, 2, 5), (1, 2, 3)], {}),
    TRANSPOSED: ([(1, 2, 4), (2, 1, 3)], {"stride": 2}),
    CROPPED: ([(1, 2, 3), (2, 1, 2), (4,)], {}),
    MANY: ([(1, 2, 3, 6), (2, 2, 3)], {}),
    RELU: ([(1, 2, 5), (3, 2, 2), (3,)], {}),
    BLURRED: ([(2, 5), (3,)], {}),
    SIMILAR: ([(2, 4), (2, 4), (3,)], {}),
}


@pytest.mark.parametrize("text", SMALL, ids=named)
def test_gradients_differentiate_again(text):
    """gradcheck, gradgradcheck, forward mode, and vmap over the whole function."""
    shapes, parameters = SMALL[text]
    f = load(parse(text))
    torch.manual_seed(0)
    inputs = [tensor(*shape).requires_grad_() for shape in shapes]

    def call(*given):
        return f(*given, **parameters)

    assert gradcheck(call, inputs, check_forward_ad=True)
    assert gradgradcheck(call, inputs)
    several = [torch.stack([x, 2 * x]).detach() for x in inputs]
    wanted = torch.stack([call(*one) for one in zip(*several, strict=True)])
    torch.testing.assert_close(torch.func.vmap(call)(*several), wanted)


def test_the_formula_stays_as_it_is():
    d = derivation(parse(VALID))
    assert [str(f) for f in d.gradients.values()] == [
        "grad_x[n,c,x2] = Σₒₖₜ δ[x2,k + t]·G[n,o,t]·w[o,c,k]",
        "grad_w[o,c,k] = Σₙₜ G[n,o,t]·x[n,c,t + k]",
    ]


def assert_as_torch(made, wanted, inputs, **tolerance):
    """Values and first gradients."""
    torch.testing.assert_close(made, wanted, **tolerance)
    G = torch.rand_like(wanted)
    found = torch.autograd.grad(made, inputs, G)
    expected = torch.autograd.grad(wanted, inputs, G)
    torch.testing.assert_close(found, expected, **tolerance)


@each_row("size", range(7, 14))
@each_row("stride", [1, 2, 3])
@each_row("dilation", [1, 2])
@each_row("padding", [0, 1, 2])
def test_conv1d_is_torchs(size, stride, dilation, padding):
    """Also where the stride does not divide: the last values are in no window."""
    x, w = tensor(2, 3, size).requires_grad_(), tensor(5, 3, 4).requires_grad_()
    how = {"stride": stride, "padding": padding, "dilation": dilation}
    assert_as_torch(load(parse(PADDED))(x, w, **how), F.conv1d(x, w, **how), [x, w])


def test_conv2d_conv3d_groups_and_transposed_are_torchs():
    x, W = tensor(2, 3, 9, 8).requires_grad_(), tensor(4, 3, 2, 5).requires_grad_()
    assert_as_torch(load(parse(IMAGE))(x, W, stride=2), F.conv2d(x, W, stride=2), [x, W])
    W = tensor(3, 2, 5).requires_grad_()
    wanted = F.conv2d(x, W.unsqueeze(1), groups=3)
    assert_as_torch(load(parse(DEPTHWISE))(x, W), wanted, [x, W])
    x, W = tensor(2, 3, 7, 5, 6).requires_grad_(), tensor(4, 3, 2, 4, 3).requires_grad_()
    wanted = F.conv3d(x, W, stride=(2, 1, 1), dilation=(1, 1, 2))
    assert_as_torch(load(parse(VOLUME))(x, W), wanted, [x, W])
    x, W = tensor(2, 6, 7).requires_grad_(), tensor(15, 2, 4).requires_grad_()
    assert_as_torch(load(parse(GROUPED))(x, W, groups=3), F.conv1d(x, W, groups=3), [x, W])
    x, w = tensor(2, 3, 5).requires_grad_(), tensor(3, 4, 6).requires_grad_()
    wanted = F.conv_transpose1d(x, w, stride=3)
    assert_as_torch(load(parse(TRANSPOSED))(x, w, stride=3), wanted, [x, w])


@pytest.mark.parametrize("size", range(5, 9))
def test_a_transposed_convolution_that_ends_beside_the_axis(size):
    """It may end before the axis does or behind it."""
    x, w, z = tensor(2, 3, 2), tensor(3, 4, 5), torch.ones(size, dtype=torch.float64)
    for leaf in (x, w):
        leaf.requires_grad_()
    wanted = F.pad(F.conv_transpose1d(x, w, stride=2), (-1, size - 6))
    assert_as_torch(load(parse(CROPPED))(x, w, z), wanted, [x, w])


def test_float32():
    x = tensor(2, 3, 9, 8, dtype=torch.float32).requires_grad_()
    W = tensor(4, 3, 2, 5, dtype=torch.float32).requires_grad_()
    assert_as_torch(load(parse(IMAGE))(x, W, stride=2), F.conv2d(x, W, stride=2), [x, W])


def test_double_backward():
    f = load(parse(PADDED))
    x, w = tensor(2, 3, 6).requires_grad_(), tensor(4, 3, 2).requires_grad_()

    def call(x, w):
        return f(x, w, stride=2, padding=1, dilation=3)

    assert gradcheck(call, (x, w)) and gradgradcheck(call, (x, w))


def test_vmap_and_other_layouts():
    f = load(parse(IMAGE))
    x, W = tensor(5, 2, 9, 8, 3).movedim(4, 2), tensor(4, 3, 5, 2).mT
    wanted = torch.stack([F.conv2d(a, W, stride=2) for a in x])
    torch.testing.assert_close(torch.func.vmap(lambda a: f(a, W, stride=2))(x), wanted)

    def gradient(a):
        return torch.func.grad(lambda v: f(v, W, stride=2).square().sum())(a)

    torch.testing.assert_close(torch.func.vmap(gradient)(x), torch.stack([gradient(a) for a in x]))


@pytest.mark.parametrize("batch", range(4))
def test_one_channel_of_a_batch_of_any_size(batch):
    x, g = tensor(batch, 9).requires_grad_(), tensor(3).requires_grad_()
    wanted = F.conv1d(x.unsqueeze(1), g.expand(1, 1, 3), stride=2).squeeze(1)
    assert_as_torch(load(parse(BLURRED))(x, g), wanted, [x, g])


def test_windows_of_two_tensors_are_no_copies_of_either():
    backward = "".join(functions(source_without_reuse(parse(SIMILAR)))[1])
    assert backward.count("conv1d_weight") == 2
    assert "unfold" not in backward


@pytest.mark.parametrize("batch", [0, 1])
def test_a_batch_of_none_or_one(batch):
    x, w = tensor(batch, 3, 7).requires_grad_(), tensor(4, 3, 2).requires_grad_()
    for text in (VALID, CAUSAL):
        y = load(parse(text))(x, w)
        assert y.shape == (batch, 4, 6 if text is VALID else 7)
        grad_x, grad_w = torch.autograd.grad(y.sum(), [x, w])
        assert grad_x.shape == x.shape and grad_w.shape == w.shape
        assert batch or not grad_w.any()


def test_a_mask_on_what_windows_read():
    """What it leaves out is in no product, and has no gradient."""
    mask = torch.tensor([True, False, True, True, False])
    x = torch.tensor([[1.0, torch.nan, 2.0, 3.0, torch.inf]], dtype=torch.float64)
    x.requires_grad_()
    w = torch.tensor([[5.0, 7.0]], dtype=torch.float64, requires_grad=True)
    y = load(parse(MASKED))(x, w, mask)
    assert y.tolist() == [7, 5, 14, 31, 15, 0]
    y.sum().backward()
    assert x.grad.tolist() == [[12, 0, 12, 12, 0]] and w.grad.tolist() == [[6, 6]]


def test_a_value_that_no_window_reads_has_no_gradient():
    """Not even where the derivative of what is done to it is infinite."""
    f = load(parse("op f(x[u], w[k]) -> y\ny[t] = sum[k](log(x[2*t+k])*w[k])"))
    x = torch.tensor([1.0, 2.0, 3.0, 0.0], dtype=torch.float64, requires_grad=True)
    f(x, torch.ones(3, dtype=torch.float64)).sum().backward()
    torch.testing.assert_close(x.grad, torch.tensor([1, 1 / 2, 1 / 3, 0], dtype=torch.float64))


def test_integers_are_no_convolution():
    """torch has none for them."""
    op = parse(
        "op f(x[n,u]: int, w[k]: int, z[n]) -> y, v\ny[n,t] = sum[k](x[n,t+k]*w[k])\nv[n] = z[n]"
    )
    y, _ = load(op)(torch.tensor([[1, 2, 3, 4]]), torch.tensor([5, 7]), torch.ones(1))
    assert y.dtype == torch.int64 and y.tolist() == [[19, 31, 43]]
    op = parse("op f(x[n,u]: int, w[k]) -> y\ny[n,t] = sum[k](x[n,t+k]*w[k])")
    y = load(op)(torch.tensor([[1, 2, 3, 4]]), torch.tensor([5.0, 7.0]))
    assert y.tolist() == [[19, 31, 43]]


@pytest.mark.parametrize("how", [{"stride": 0}, {"stride": -1}, {"dilation": -1}], ids=str)
def test_a_stride_or_dilation_that_is_not_positive_is_an_error(how):
    with pytest.raises((RuntimeError, ZeroDivisionError, ValueError)):
        load(parse(STRIDED))(tensor(2, 3, 7), tensor(4, 3, 2), **how)


def test_what_is_masked_stays_out():
    """A position that a mask leaves out is in no product, not even with 0."""
    op = parse(
        "op f(x[n,u], w[k], m[k]: bool; size(t)=size(u)-size(k)+1) -> y\n"
        "y[n,t] = sum[k | m[k]](x[n,t+k]*w[k])"
    )
    x = torch.tensor([[1.0, 2.0, torch.inf]], dtype=torch.float64)
    w = torch.tensor([3.0, 4.0, torch.nan], dtype=torch.float64)
    assert load(op)(x, w, torch.tensor([True, True, False])).tolist() == [[11.0]]


def test_a_read_beside_the_axis_is_an_error():
    """t has the size of b, which may be too long for x."""
    f = load(parse("op f(x[u], w[k], b[t]) -> y\ny[t] = b[t]*sum[k](x[t+k]*w[k])"))
    assert f(tensor(7), tensor(3), tensor(4)).shape == (4,)
    with pytest.raises(RuntimeError):
        f(tensor(7), tensor(3), tensor(6))


def assert_the_same(text, tensors, parameters):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        op = parse(text)
        recognised = source(op)
        with nothing_recognised():
            general = source(op)
        (expected,) = oracle.outputs(op, tensors, parameters).values()
    assert "conv" in recognised.partition("def forward(")[2] and "conv" not in general
    found = [
        results(getattr(module(f"derive_convolve_{n}", s), op.name), tensors, parameters)
        for n, s in enumerate((recognised, general))
    ]
    np.testing.assert_allclose(found[0][0].detach().numpy(), expected, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(*found, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "seeds", some_now([range(n, n + 15) for n in range(0, 300, 15)], 1), ids=str
)
def test_random_convolutions_equal_the_general_lowering(seeds):
    for seed in seeds:
        c = random_convolution(seed)
        assert_the_same(c.text, c.tensors, c.parameters)


@pytest.mark.parametrize("seed", some_now(range(1000, 1012), 2))
def test_random_convolutions_have_the_oracles_gradients(seed):
    c = random_convolution(seed)
    op = parse(c.text)
    leaves = [torch.tensor(v, requires_grad=True) for v in c.tensors.values()]
    y = load(op)(*leaves, **c.parameters)
    G = np.random.default_rng(seed).normal(size=tuple(y.shape))
    y.backward(torch.tensor(G))
    for name, leaf in zip(c.tensors, leaves, strict=True):
        wanted = oracle.gradient(op, c.tensors, {"y": G}, c.parameters, name)
        np.testing.assert_allclose(leaf.grad.numpy(), wanted, rtol=1e-6, atol=1e-8)


def test_windows_of_an_axis_that_is_always_empty_are_no_convolution():
    f = load(parse("op f(x[k], v[k]) -> y\ny[i] = sum[k](x[i+k+1]*v[k])"))
    x, v = (torch.ones(3, requires_grad=True) for _ in range(2))
    y = f(x, v)
    assert y.shape == (0,)
    assert [g.tolist() for g in torch.autograd.grad(y.sum(), (x, v))] == [[0.0] * 3] * 2


def test_what_is_spread_over_windows_is_multiplied_along_their_axis():
    f = load(
        parse(
            "op f(x[n,t,c], y[n,t,c]; size(m)=3) -> z\na[n,t,k] = mean[m](x[n,t,k+m])\n"
            "b[n,t,k] = mean[m](y[n,t,k+m])\nh[n,t,c] = x[n,t,c]*y[n,t,c]\n"
            "z[n,t,k] = mean[m](h[n,t,k+m]) - a[n,t,k]*b[n,t,k]"
        )
    )
    x, y = (torch.randn(2, 3, 7, dtype=torch.float64, requires_grad=True) for _ in range(2))

    def mean(v):
        return F.avg_pool1d(v, 3, 1)

    torch.testing.assert_close(f(x, y), mean(x * y) - mean(x) * mean(y))
    assert gradcheck(f, (x, y)) and gradgradcheck(f, (x, y))
