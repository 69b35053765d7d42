"""Steps and remainders, in the notation and as torch functions that are read."""

import pytest
import torch

import derive

X = torch.tensor([-2.5, -1.2, -0.0, 0.5, 1.5, 2.5, 3.7], dtype=torch.float64)
Y = torch.tensor([0.7, 1.3, -0.6, 0.4, -1.1, 2.0, -2.0], dtype=torch.float64)


def agree(ours, theirs, *given):
    sides = []
    for f in (ours, theirs):
        leaves = [t.clone().requires_grad_() for t in given]
        y = f(*leaves)
        sides.append((y, *torch.autograd.grad((y * y.detach().cos()).sum(), leaves)))
    torch.testing.assert_close(*sides)


@pytest.mark.parametrize("name", ["round", "trunc", "ceil", "floor", "frac"])
def test_steps(name):
    own = getattr(torch, name)
    agree(derive.load(derive.parse(f"y[i] = {name}(x[i])*x[i]")), lambda x: own(x) * x, X)
    read = derive.load(derive.read_torch(lambda x: own(x) * x, torch.randn(5)))
    agree(read, lambda x: own(x) * x, X)


@pytest.mark.parametrize("name", ["remainder", "fmod"])
def test_remainders(name):
    own = getattr(torch, name)
    agree(derive.load(derive.parse(f"z[i] = {name}(x[i], y[i])")), own, X, Y)
    agree(derive.load(derive.read_torch(own, torch.randn(5), torch.rand(5) + 0.5)), own, X, Y)


def test_of_parameters():
    text = "op f(x[i]; p=2.5) -> y\ny[i] = x[i] + round(p) + 10*ceil(p) + 100*trunc(p) + frac(p)"
    f = derive.load(derive.parse(text))
    for p in (2.5, -2.5, 3.5):
        t = torch.tensor(p, dtype=torch.float64)
        want = X + t.round() + 10 * t.ceil() + 100 * t.trunc() + t.frac()
        torch.testing.assert_close(f(X, p=p), want)


def test_a_rounded_float_is_a_position():
    f = derive.load(
        derive.parse("op f(x[n], T[k]) -> y\nat[n] = int(round(x[n]))\ny[n] = T[at[n]]")
    )
    assert f(torch.tensor([0.2, 1.6, 2.5]), torch.arange(5.0)).tolist() == [0, 2, 2]


def test_a_quantiser_with_a_learned_step():
    def quantised(w, step, low=-4, high=3):
        v = torch.clamp(w / step, low, high)
        return ((v.round() - v).detach() + v) * step

    torch.manual_seed(0)
    read = derive.load(derive.read_torch(quantised, torch.randn(4, 3), torch.tensor(0.3)))
    w, step = torch.randn(5, 2, dtype=torch.float64) * 2, torch.tensor(0.4, dtype=torch.float64)
    agree(read, quantised, w, step)


def test_in_sympy():
    from sympy import Eq, IndexedBase, ceiling, symbols

    i = symbols("i", integer=True)
    x, y = IndexedBase("x"), IndexedBase("y")
    pairs = [("round", derive.round_half_even), ("trunc", derive.trunc), ("ceil", ceiling)]
    for name, function in [*pairs, ("frac", derive.frac)]:
        op = derive.Operation("op", Eq(y[i], function(x[i])))
        assert op == derive.parse(f"y[i] = {name}(x[i])")
    op = derive.Operation("op", Eq(y[i], derive.fmod(x[i], 2) + derive.remainder(x[i], 3)))
    assert op == derive.parse("y[i] = fmod(x[i], 2) + remainder(x[i], 3)")


def test_the_data_of_a_tensor_has_no_gradient():
    def scaled(x, w):
        return x / x.data.norm() * (w * (w.data.abs() > 0.5))

    torch.manual_seed(0)
    agree(derive.load(derive.read_torch(scaled, X[1:], Y[1:])), scaled, X, Y)


def test_writes_to_the_data_of_a_tensor_are_refused():
    def clipped(x):
        y = x * 2
        y.data.clamp_(-1, 1)
        return y * y

    with pytest.raises(derive.DeriveError, match="in place"):
        derive.read_torch(clipped, X)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_a_cast_to_8_bits_is_no_identity(dtype):
    """Fake quantization with a straight-through gradient."""

    def quantized(x):
        scale = x.abs().amax(-1, keepdim=True) / 448
        rounded = (x / scale).to(dtype).to(x.dtype) * scale
        return x + (rounded - x).detach()

    with pytest.raises(derive.DeriveError, match=f"a cast to {dtype} rounds; pass the rounded"):
        derive.read_torch(quantized, torch.randn(3, 4))
