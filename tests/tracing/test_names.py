"""Names of functions, arguments and variables, and letters that names of sizes give."""

import math
import runpy

import pytest
import torch
from kit.each import each_row
from torch import nn

import derive
from derive.tracing.names import notation_name, spelled
from derive.tracing.read import reading


def _private(_x, pi, mean):
    return _x * pi + mean.mean()


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("_mask", torch.ones(4, 4).tril().bool())
        self._weight = nn.Parameter(torch.ones(4))

    def forward(self, op):
        return (op * self._weight).masked_fill(~self._mask, 0)


def both(q, k):
    q, k = torch.sin(q) + 1, torch.cos(k) + 1
    a, b = q * k, q - k; s = a * b  # fmt: skip  # noqa: E702
    return a + b * s


def test_names_that_begin_with_an_underscore_are_read_without_it():
    op = derive.read_torch(_private, torch.ones(3), torch.ones(3), torch.ones(3))
    assert (op.name, [t.name for t in op.inputs]) == ("private", ["x", "pi_", "mean"])
    module = derive.read_torch(Masked(), torch.randn(4, 4))
    assert [t.name for t in module.inputs] == ["op", "weight", "mask"]
    assert [notation_name(n) for n in ("_", "__x", "0_weight", "lambda")] == [
        *("x", "x", "m0_weight", "lambda_")
    ]


def test_a_function_with_the_name_of_an_argument_is_read_under_another():
    def gain(x, gain):
        return x * gain

    assert str(derive.read_torch(gain, torch.ones(3), torch.ones(3))).startswith(
        "op gain_(x[c], gain[c])"
    )


def test_what_is_read_is_called_by_the_names_of_the_code():
    f = derive.differentiate(_private)
    x, pi, mean = (torch.randn(3, requires_grad=True) for _ in range(3))
    assert torch.allclose(f(x, pi, mean), _private(x, pi, mean))
    assert torch.allclose(f(x, pi, mean=mean), _private(x, pi, mean))
    model = derive.replace(Masked())
    assert torch.equal(model(torch.eye(4)), Masked()(torch.eye(4)))
    assert set(model.state_dict()) == {"_mask", "_weight"}


def test_an_assignment_of_several_names_names_each():
    made = reading(both, torch.ones(3), torch.ones(3), comments=False).text
    assert made.split("\n")[1:-1] == [
        "q2[c] = sin(q[c]) + 1",
        "k2[c] = cos(k[c]) + 1",
        "a[c] = q2[c]*k2[c]",
        "b[c] = q2[c] - k2[c]",
        "s[c] = a[c]*b[c]",
        "y[c] = a[c] + b[c]*s[c]",
    ]


def unpacked(x, w):
    B, T, C = x.shape
    return (x.reshape(B * T, C) @ w).reshape(B, T, -1)


def by_size(x, w):
    _, _, h = x.size()
    n = x.size(0)
    return x @ w / h + n


def last(x, w):
    *_, s, z = x.shape
    return x @ w * s * z


def sliced(x, w):
    a, e = x.shape[-2:]
    return x @ w * a * e


def changed(x, w):
    x = x.transpose(0, 1)
    b, _, _ = x.shape
    return x @ w * b


def long_names(x, w):
    batch, length, width = x.shape
    return x @ w * batch * length * width


def in_steps(x, w):
    """Of each turn of a loop, and of each call, the variables are equations."""
    for _ in range(3):
        p = (x @ w).softmax(-1)
        x = p @ w.t()
    return x


def in_one(x, w):
    total = x[..., 0]
    for k in range(1, 4):
        total = total + x[..., k] * k
    return total * w.sum()


def of_elements(x, w):
    """Elements of a stack are what was put there."""
    q = torch.stack([x[..., 0] * x[..., 1], x[..., 2], -x[..., 3]], -1)
    return q[..., 2] + w[0, 0] * q[..., 0]


def of_heads(x, w):
    """An axis of two parts that is read by its parts alone is two axes."""
    h = (x @ w).flatten(0, 1).tanh()
    return (h * h.sum(-1, keepdim=True)).view(*x.shape[:2], -1)


SAID = {
    in_steps: "p3[n,t,k] = softmax[k](h3[n,t,k])\nx4[n,t,c] = sum[k](p3",
    in_one: "total[n,t] = x[n,t,0] + x[n,t,1] + x[n,t,2]*2 + x[n,t,3]*3",
    of_elements: "y[n,t] = -x[n,t,3] + w[0,0]*x[n,t,0]*x[n,t,1]",
    of_heads: "h[n,t,k] = tanh(sum[c](x[n,t,c]*w[c,k]))",
    unpacked: "x[b,t,c]",
    by_size: "x[n,t,h]",
    last: "x[n,s,z]",
    sliced: "x[n,a,e]",
    changed: "x[n,t,c]",
    long_names: "x[n,t,c]",
}


@pytest.mark.parametrize("function", SAID)
def test_letters_are_those_of_the_code(function):
    made = reading(function, torch.randn(2, 3, 4), torch.randn(4, 5), comments=False)
    assert SAID[function] in made.text


def test_a_lambda_whose_line_begins_within_a_string_is_read(tmp_path):
    path = tmp_path / "decays.py"
    path.write_text('made = """exponential\ndecay""", lambda x: (-x).exp()\n')
    _, decay = runpy.run_path(str(path))["made"]
    assert "y[c] = exp(-x[c])" in reading(decay, torch.ones(3), comments=False).text


def test_an_index_and_an_equation_have_two_names():
    def product(x, Q):
        c2 = x @ Q
        return c2 * c2 - x

    text = reading(product, torch.ones(4, 3), torch.ones(3, 3)).text
    assert "op product(x[n,c], Q[c,c3])" in text and "c2[n,c] = sum[c3](" in text


def test_letters_that_are_given_come_first():
    made = reading(unpacked, torch.randn(2, 3, 4), torch.randn(4, 5), letters={"x": "ijk"})
    assert "x[i,j,k]" in made.text


@each_row(
    "value, text",
    [
        (math.sqrt(2), "sqrt(2)"),
        (1 / math.sqrt(math.pi), "1/sqrt(pi)"),
        (math.sqrt(2 / math.pi), "sqrt(2/pi)"),
        (math.log(2), "log(2)"),
        (math.log(2 * math.pi) / 2, "log(2*pi)/2"),
        (math.pi**2, "pi**2"),
        (2 / 3, "2/3"),
        (float(torch.tensor(math.pi)), "pi"),
        (float(torch.tensor(1e-6)), "1e-06"),
        (float(torch.tensor(0.044715)), "0.044715"),
    ],
)
def test_what_a_float_is(value, text):
    assert spelled(value)[0] == text


@each_row("value", [0.5, 1e-12, 2.0315, 1.7015043497085573, 1e300, math.inf])
def test_what_stays_as_it_is(value):
    assert spelled(value) is None


def test_numbers_of_a_function_that_is_read():
    def density(x, width):
        z = x / (width * math.sqrt(2))
        return torch.erf(-z) / 3 - z * math.pi / 2 + 0.1 * math.log(10) ** 2

    text = str(derive.read_torch(density, torch.randn(5), torch.rand(5) + 0.5))
    assert "sqrt(2)" in text and "pi" in text
    rms = derive.read_torch(torch.nn.RMSNorm(5, eps=1e-6), torch.randn(3, 5))
    assert "+ 0.000001" in str(rms) or "+ 1e-6" in str(rms)


def grey(image):
    weights = torch.tensor([0.299, 0.587, 0.114], dtype=image.dtype)
    return (image * weights[:, None, None]).sum(-3)


def laplace(x):
    kernel = torch.tensor([[0, 1, 0], [1, -4, 1], [0, 1, 0]], dtype=x.dtype)
    return torch.nn.functional.conv2d(x, kernel[None, None])


def bent(x):
    return x.where(x > 0, torch.as_tensor(0.7) * x) * torch.tensor([1.0, 2, 3, 4])


def wrapped(x):
    return x % 1.0 + torch.fmod(x, 2.5) - torch.remainder(x, x.abs() + 1)


def line(function, *shape):
    return str(derive.read_torch(function, torch.randn(shape)))


def test_a_few_numbers_are_chosen_by_position():
    made = line(grey, 2, 3, 4, 5)
    assert "where(c == 0, 0.299, where(c == 1, 0.587, 0.114))" in made
    assert "-4" in line(laplace, 2, 1, 6, 5)


def test_numbers_that_grow_evenly_are_a_position_and_those_of_no_axes_are_numbers():
    made = line(bent, 3, 4)
    assert "(c + 1)" in made
    assert "0.7*x" in made


def test_remainders():
    made = line(wrapped, 3, 4)
    assert "remainder(x[n, c], 1)" in made and "fmod(x[n, c], 2.5)" in made


def test_many_numbers_are_refused():
    table = list(range(70))
    with pytest.raises(derive.DeriveError, match="70 numbers that is not an argument"):
        derive.read_torch(lambda x: x * torch.tensor(table), torch.randn(3, 70))
