"""What half precision has of a body in its own dtype: by its calls, and by what torch computes."""

import pytest
import torch
from kit.cases.case import generated
from kit.each import each_row
from kit.torch_code import torch_code
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from derive import load, parse
from derive.program.cse import Line
from derive.program.roundings import Roundings, is_short, roundings
from derive.program.torch_ir import Attribute, Binary, MethodCall, Name, literal
from derive.program.torch_ops import EXACT_ALONE, MONOTONE, ONCE, TORCH_OPS

a, b, n, index, a_shape = map(Name, ("a", "b", "n", "index", "a_shape"))
NONE, BY_ONE, MORE = Roundings
POSITIVE = torch_code("a > 0")
EXP, SUM = torch_code("a.exp()"), torch_code("a.sum(0)")


def rounds(*codes):
    lines = [Line(f"y{k}", code) for k, code in enumerate(codes)]
    return roundings(lines, ("a", "b"), ("index",))


@each_row(
    "code, often",
    [
        (a, NONE),
        (torch_code("-a.relu()"), NONE),
        (torch_code("a.unfold(0, n // 2, 1)"), NONE),
        (torch_code("a.gather(1, index + 1)"), NONE),
        (torch_code("a.max(1).values"), NONE),
        (torch_code("a.gather(0, b.max(n).indices)"), NONE),
        (torch_code("torch.cat((a, b), 0)"), NONE),
        (torch_code("torch.where(a > 0, a, 0)"), NONE),
        # A number is rounded as the result would be.
        (torch_code("torch.where(a > 0, a, n)"), NONE),
        (torch_code("torch.where(a > 0, a, 0.3)"), NONE),
        (torch_code("torch.ops.aten.threshold_backward(b, a, 0)"), NONE),
        (torch_code("a.new_full((n,), -1)"), NONE),
        (torch_code("a.unsqueeze(0) if n else a"), NONE),
        # Arithmetic, and what torch computes in float32, rounds once.
        (torch_code("a * b.sign()"), BY_ONE),
        (torch_code("a + b"), BY_ONE),
        (torch_code("2 * a * b"), BY_ONE),
        (Binary("/", a, Binary("or", torch_code("math.prod(a_shape)"), literal(1))), BY_ONE),
        (EXP, BY_ONE),
        (torch_code("a.sum(0).relu()"), BY_ONE),
        (torch_code("a.abs().sum()"), BY_ONE),
        (torch_code("a.clamp(n)"), BY_ONE),
        (torch_code("torch.nn.functional.elu(a, n)"), BY_ONE),
        (torch_code("torch.where(a > 0, a.exp(), 0)"), BY_ONE),
        # What is made or compared of a rounded value is rounded again.
        (torch_code("a.exp() * b"), MORE),
        (torch_code("0.5 * a * b"), MORE),
        (torch_code("a.exp().sum()"), MORE),
        (torch_code("a.exp().floor()"), MORE),
        (torch_code("torch.where(a.exp() > 1, a, b)"), MORE),
        (torch_code("a.exp().max(1).indices"), MORE),
        # Half precision does not have the number, or the positions.
        (torch_code("torch.where(a > 0.3, a, b)"), MORE),
        (torch_code("torch.where(a > n, a, b)"), MORE),
        (torch_code("a + 0.3"), MORE),
        (torch_code("a + 257"), MORE),
        (torch_code("a * index"), MORE),
        (torch_code("torch.where(a > 0, a, index)"), MORE),
        (torch_code("0.3 / a"), MORE),
        # Sums of half precision, and what has no row.
        (torch_code("a.index_add(0, index, b)"), MORE),
        (torch_code("a @ b"), MORE),
        (torch_code("a**3"), MORE),
        (torch_code("a.logsumexp(0)"), MORE),
        (torch_code("_unheard_of(a)"), MORE),
        (torch_code("a.to(index.dtype)"), MORE),
        (torch_code("torch.nn.functional.pad(a, n, value=0.3)"), MORE),
    ],
)
def test_how_often_a_body_rounds(code, often):
    assert rounds(code) is often


def test_names_are_known_by_what_they_stand_for():
    y0 = Name("y0")
    assert rounds(EXP, Attribute(y0, "mT")) is BY_ONE
    assert rounds(EXP, Binary("*", y0, b)) is MORE
    assert rounds(POSITIVE, Binary("*", y0, a)) is NONE
    assert rounds(Binary("%", n, literal(3)), MethodCall(a, "select", (literal(0), y0))) is NONE


def test_short_numbers_are_those_of_every_half_precision():
    values = [0, 1, -3, 256, 0.5, 1.5, 0.0078125, float("inf"), 255, 257, 0.1, 1 / 3, 2**-9, 1e5]
    for value in values:
        exact = [torch.tensor(value, dtype=d).item() for d in (torch.bfloat16, torch.float16)]
        if is_short(literal(value)):
            assert exact == [value, value]
    assert [v for v in values if is_short(literal(v))] == [*values[:3], *values[4:9]]


aten, nn = torch.ops.aten, torch.nn.functional
MASK = torch.arange(37 * 131).reshape(37, 131) % 3 == 0


def named(name, *args):
    return lambda x, *more: getattr(torch, name)(x, *more, *args)


def slope(name, *args):
    return lambda g, x: getattr(aten, name)(g, x, *args)


CALLS = {
    name: named(name)
    for name in (
        "abs acos asin atan atan2 ceil cos cosh exp expm1 floor frac log log1p maximum mean "
        "minimum reciprocal relu round selu sigmoid sign sin sinh sqrt square sum tan tanh trunc"
    ).split()
}
CALLS |= {
    name: getattr(nn, name)
    for name in (
        "celu elu gelu hardsigmoid hardswish leaky_relu logsigmoid mish silu softplus"
    ).split()
}
CALLS |= {f"{x}_backward": slope(f"{x}_backward") for x in ("gelu", "silu", "mish", "hardswish")}
CALLS |= {
    "amax": named("amax", 1),
    "amin": named("amin", 1),
    "argmax": named("argmax", 1),
    "argmin": named("argmin", 1),
    "any": lambda x: (x > 0).any(1),
    "all": lambda x: (x > 0).all(1),
    "max": lambda x: x.max(1).values,
    "min": lambda x: x.min(1).values,
    "clamp": lambda x: x.clamp(-0.3, 0.7),
    "clamp_min": lambda x: x.clamp_min(-0.3),
    "clamp_max": lambda x: x.clamp_max(0.7),
    "hardtanh": lambda x: aten.hardtanh(x, -0.3, 0.7),
    "hardtanh_backward": slope("hardtanh_backward", -0.3, 0.7),
    "threshold_backward": slope("threshold_backward", 0),
    "leaky_relu_backward": slope("leaky_relu_backward", 0.3, False),
    "elu_backward": lambda g, x: aten.elu_backward(g, 0.3, 1, 1 / 0.3, False, x),
    "where": lambda x, y: torch.where(MASK, x, y),
    "rt.where": lambda x: torch.where(MASK, x, 0.3),
    "glu": lambda x: nn.glu(x[:, :-1], 1),
    "sum_to_size": lambda x: x.sum_to_size(1, x.shape[1]),
    "rt.sum_over": lambda x: x.sum((-1,)),
    "rt.mean_over": lambda x: x.mean((-1,)),
    "vector_norm": lambda x: torch.linalg.vector_norm(x, 3, 1),
    "avg_pool1d": lambda x: nn.avg_pool1d(x[None], 3, 2),
    "avg_pool2d": lambda x: nn.avg_pool2d(x[None], 3, 2),
    "max_pool1d": lambda x: nn.max_pool1d(x[None], 3, 2),
    "max_pool2d": lambda x: nn.max_pool2d(x[None], 3, 2),
    "max_pool3d": lambda x: nn.max_pool3d(x[None, None], (1, 3, 2)),
    "softmax": lambda x: torch.softmax(x, 1),
    "rt.softmax": lambda x: torch.softmax(x, 0),
    "_softmax_backward_data": lambda g, x: torch._softmax_backward_data(g, x.abs(), 1, g.dtype),
    "rt.softmax_backward": lambda g, x: torch._softmax_backward_data(g, x.abs(), 0, g.dtype),
    "_log_softmax_backward_data": lambda g, x: torch._log_softmax_backward_data(
        g, -x.abs(), 1, g.dtype
    ),
    "rt.log_softmax_backward": lambda g, x: torch._log_softmax_backward_data(
        g, -x.abs(), 0, g.dtype
    ),
}
OF_UNIT, OF_POSITIVE = {"acos", "asin"}, {"log", "log1p", "sqrt", "_softmax_backward_data"}
PAIRS = "atan2", "maximum", "minimum", "where"
SOFTMAX = "softmax", "rt.softmax"


def tensors(name, dtype):
    made = torch.Generator().manual_seed(len(name))
    x, y = (2 * torch.randn(37, 131, generator=made) for _ in range(2))
    if name in OF_UNIT:
        x = x.tanh()
    if name in OF_POSITIVE:
        x = x.abs() + 0.01
    two = name in PAIRS or "backward" in name
    return [x.to(dtype), y.to(dtype)][: 1 + two]


def of_kind(*kinds):
    return sorted(name for name, row in TORCH_OPS.items() if row.half in kinds)


def unlike(found, wanted, dtype):
    """The greatest error, of the last bit of what is wanted."""
    info = torch.finfo(dtype)
    power = wanted.abs().double().clamp_min(info.smallest_normal).log2().floor()
    return ((found.double() - wanted.double()).abs() / (info.eps * 2**power)).max().item()


@each_row("name", of_kind(ONCE))
def test_a_call_rounds_once_in_bfloat16(name):
    given = tensors(name, torch.bfloat16)
    found, single, exact = (
        CALLS[name](*(x.to(dtype) for x in given))
        for dtype in (torch.bfloat16, torch.float32, torch.float64)
    )
    assert found.dtype is torch.bfloat16
    today = unlike(single, exact, torch.bfloat16)
    # A softmax along another axis than the last has exponentials that are rounded too.
    assert unlike(found, exact, torch.bfloat16) <= today + (1.5 if name in SOFTMAX else 0.51)


@each_row("name", of_kind(MONOTONE, EXACT_ALONE))
@each_row("dtype", [torch.bfloat16, torch.float16])
def test_a_call_is_exact_in_half_precision(name, dtype):
    given = tensors(name, dtype)
    found, exact = CALLS[name](*given), CALLS[name](*(x.float() for x in given))
    assert torch.equal(found, exact.to(found.dtype))


class Widened(TorchDispatchMode):
    """The kernels that make a tensor of float32 with more than one element."""

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        made = (x for x in tree_leaves(result) if isinstance(x, torch.Tensor))
        if any(x.dtype is torch.float32 and x.numel() > 1 for x in made):
            self.found.append(str(func))
        return result


def run(f, dtype, count=1, **given):
    """The output, the gradients, whether it is a view of an input, and what was in float32."""
    torch.manual_seed(0)
    floats = [torch.randn(7, 12).bfloat16().to(dtype).requires_grad_() for _ in range(count)]
    with Widened() as mode:
        out = f(*floats, **given)
    G = torch.randn(out.shape).bfloat16().to(dtype)
    with mode:
        grads = torch.autograd.grad(out, floats, G)
    shared = any(out.untyped_storage().data_ptr() == x.untyped_storage().data_ptr() for x in floats)
    return out, grads, shared, mode.found


MOVING = {
    "transpose": {},
    "unfold": {"dimension": 0, "length": 3, "step": 2},
    "unflatten": {"inner": 4},
    "select": {"dim": 1, "index": 5},
    "flatten": {},
    "relu": {},
    "relu6": {},
    "concat": {"count": 2, "dim": 1},
    "tril": {"diagonal": 0},
    "pad": {"dim": 1, "left": 2, "right": 1, "value": 0.3},
    "shift": {"dim": 1, "shifts": 2},
    "roll": {"dim": 1, "shifts": 2},
}


@each_row("name", MOVING)
def test_what_only_moves_is_a_view_where_float32_is_and_needs_no_float32(name):
    f, given = generated(name), MOVING[name]
    out, grads, shared, widened = run(f, torch.bfloat16, **given)
    exact, slopes, expected, _ = run(f, torch.float32, **given)
    assert widened == []
    assert shared is expected
    assert torch.equal(out, exact.bfloat16())
    for grad, slope in zip(grads, slopes, strict=True):
        torch.testing.assert_close(grad, slope.bfloat16(), rtol=0.02, atol=0.02)


ONE_KERNEL = [
    "op f(x[i,j]) -> z\nz[i,j] = x[i,j]*sigmoid(x[i,j])",
    "op f(x[i,j]) -> z\nz[i,j] = softmax[j](x[i,j])",
    "op f(x[i,j]) -> z\nz[i,j] = exp(x[i,j])",
    "op f(x[i,j]) -> z\nz[i] = mean[j](x[i,j])",
    "op f(x[i,j]) -> z\nz[i,j] = abs(x[i,j])",
]


@pytest.mark.parametrize("spec", ONE_KERNEL)
def test_one_kernel_that_rounds_once_is_called_in_bfloat16(spec):
    f = load(parse(spec))
    out, (grad,), _, widened = run(f, torch.bfloat16)
    assert widened == []
    exact, (slopes,), *_ = run(f, torch.float64)
    assert out.dtype is grad.dtype is torch.bfloat16
    torch.testing.assert_close(out.double(), exact, rtol=0.02, atol=0.02)
    torch.testing.assert_close(grad.double(), slopes, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("spec", ONE_KERNEL)
def test_where_torch_differentiates_a_kernel_it_is_called_in_float32(spec):
    """What torch makes of rounded values, it rounds again."""
    f = load(parse(spec))
    torch.manual_seed(1)
    x, t = torch.randn(2, 7, 12).bfloat16()

    def tangent(x, t):
        with forward_ad.dual_level():
            return forward_ad.unpack_dual(f(forward_ad.make_dual(x, t))).tangent

    exact = tangent(x.double(), t.double())
    today = unlike(tangent(x.float(), t.float()), exact, torch.bfloat16)
    assert unlike(tangent(x, t), exact, torch.bfloat16) <= today + 0.51
    v = torch.randn(7, 12).bfloat16()

    def slope_of_slope(x, v):
        x = x.clone().requires_grad_()
        y = f(x)
        (grad,) = torch.autograd.grad(y, x, torch.ones_like(y), create_graph=True)
        if not grad.requires_grad:
            return torch.zeros_like(x)
        (found,) = torch.autograd.grad(grad, x, v, allow_unused=True)
        return torch.zeros_like(x) if found is None else found

    exact, found = slope_of_slope(x.double(), v.double()), slope_of_slope(x, v)
    torch.testing.assert_close(found.double(), exact, rtol=0.02, atol=0.02)


def test_autocast_has_the_result_of_a_kernel_in_float32():
    f = load(parse(ONE_KERNEL[2]))
    x = torch.randn(7, 12).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        y = f(x)
    assert y.dtype is torch.float32
    assert torch.equal(y, x.float().exp())


def test_dtypes_of_several_tensors_promote_where_nothing_is_rounded():
    f = load(parse("op f(x[i,j], y[i,j]) -> z\nz[i,j] = maximum(x[i,j], y[i,j])"))
    x, y = torch.randn(2, 7, 12)
    for one, other in (torch.bfloat16, torch.float16), (torch.float32, torch.bfloat16):
        found = f(x.to(one), y.to(other))
        assert found.dtype is torch.float32
        assert torch.equal(found, torch.maximum(x.to(one).float(), y.to(other).float()))
    scalar = load(parse("op f(x[i,j], y) -> z\nz[i,j] = maximum(x[i,j], y)"))
    found = scalar(x.bfloat16(), torch.tensor(0.3))
    assert torch.equal(found, x.bfloat16().float().clamp(0.3).bfloat16())


@pytest.mark.parametrize(("number", "kept"), [("1", True), ("0.3", False)])
def test_what_stands_for_a_number_is_that_number_in_half_precision(number, kept):
    """Added in bfloat16, 0.3 would be rounded before and the sum after."""
    f = load(parse(f"op f(x[i], b[i]={number}) -> y\ny[i] = x[i] + b[i]"))
    x = torch.linspace(-1, 1, 997).bfloat16()
    with Widened() as mode:
        y = f(x)
    assert (mode.found == []) is kept
    assert torch.equal(y, (x.float() + float(number)).bfloat16())
