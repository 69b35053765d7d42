"""The same function with derived forward and backward, read at its first call."""

from __future__ import annotations

import copy
import functools
import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd import forward_ad
from torch.nn.utils import prune
from torch.nn.utils.parametrize import register_parametrization
from torch.utils.checkpoint import checkpoint

import derive


def rms(x, weight, eps=1e-6):
    variance = x.pow(2).mean(-1, keepdim=True)
    return weight * x * torch.rsqrt(variance + eps)


def leaf(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


def test_values_and_gradients_are_those_of_the_function_for_every_number():
    f = derive.differentiate(rms)
    x, w = leaf(2, 3, 5), leaf(5)
    for eps in (1e-6, 0.5):
        y, want = f(x, w, eps=eps), rms(x, w, eps)
        assert type(y.grad_fn).__name__ == "_RmsBackward"
        torch.testing.assert_close(y, want)
        G = torch.randn_like(y)
        torch.testing.assert_close(
            torch.autograd.grad(y, (x, w), G), torch.autograd.grad(want, (x, w), G)
        )
    assert len(f.known.made) == 1
    f(leaf(3, 5), w)
    assert len(f.known.made) == 2
    assert torch.autograd.gradgradcheck(f, (x, w))


class Average:
    """A method that counts its calls and keeps a tensor."""

    def __init__(self):
        self.calls, self.mean = 0, torch.ones(4, dtype=torch.float64)

    def __call__(self, x):
        return self.centred(x)

    def centred(self, x):
        self.calls += 1
        self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        return x - self.mean


def kept(x, cache):
    cache.append(x.detach() * 2)
    return x * 3


def counted(x, state):
    state["steps"]["n"] += 1
    return x * state["steps"]["n"]


@pytest.mark.parametrize(
    ("f", "state"), [(kept, []), (kept, [torch.ones(3)]), (counted, {"steps": {"n": 0}})]
)
def test_a_list_or_dict_changes_once(f, state):
    """What a function adds to an argument is no part of derived code, nor is the reading of it."""
    ours, theirs, x = copy.deepcopy(state), copy.deepcopy(state), leaf(3)
    for _ in range(2):
        with pytest.warns(derive.DeriveWarning, match="changes a list or dict that it is given"):
            y = derive.differentiate(f)(x, ours)
        torch.testing.assert_close(y, f(x, theirs))
    torch.testing.assert_close(ours, theirs)


def test_a_method_that_sets_attributes_runs_unchanged():
    ours, theirs, x = Average(), Average(), leaf(3, 4)
    with pytest.warns(derive.DeriveWarning, match="changes calls, mean as it runs"):
        f = derive.differentiate(ours.centred)
        f(x)
    theirs(x)
    torch.testing.assert_close(f(x), theirs(x))
    assert ours.calls == theirs.calls == 2


LOG = []


def logged(x):
    LOG.append(x.detach().mean())
    return x * 2


class Logged(nn.Module):
    def __init__(self):
        super().__init__()
        self.seen = {}

    def forward(self, x):
        self.seen[len(self.seen)] = x.detach().sum()
        return x * 2


def test_lists_and_dicts_outside_of_a_function_change_once():
    """Neither the tensors without data of a reading are in them, nor is an addition left out."""
    LOG.clear()
    x, module = leaf(3), Logged()
    f, g = derive.differentiate(logged), derive.replace(module)
    with pytest.warns(derive.DeriveWarning, match="changes LOG as it runs"):
        f(x)
    f(x), g(x), g(x)
    for found, want in ((LOG, x.mean()), ([*g.seen.values()], x.sum())):
        torch.testing.assert_close(found, [want.detach()] * 2)


class Tool:
    def __init__(self):
        self.library = torch


TOOLS = {}


def with_a_tool(x):
    return TOOLS.setdefault(type(x), Tool()).library.tanh(x)


def test_a_tool_that_is_kept_for_each_type_is_no_change():
    f = derive.differentiate(with_a_tool, time=9)
    x = leaf(3)
    torch.testing.assert_close(f(x), x.tanh())
    TOOLS[int] = Tool()
    f(leaf(5))
    assert len(f.known.made) == 1 and not f.known.changes


class Slotted:
    """An object without a dict of attributes."""

    __slots__ = ("w",)

    def __init__(self, w):
        self.w = w

    def scaled(self, x):
        return x * self.w.exp()


def test_a_method_of_an_object_with_slots_is_read():
    own, x = Slotted(torch.randn(3, dtype=torch.float64)), leaf(4, 3)
    torch.testing.assert_close(derive.differentiate(own.scaled)(x), own.scaled(x))


def test_numbers_inside_of_an_argument_are_those_of_the_call():
    def weighted(x, widths, *powers, **more):
        total = sum(torch.exp(-x * x / w) for w in widths["all"])
        return total + sum(x**p for p in powers) + more["offset"]

    f, x = derive.differentiate(weighted), leaf(3)
    for widths, powers, offset in (
        ((0.5, 2.0), (2.0, 3.0), 1.0),
        ((0.5, 3.0), (2.0, 3.0), 1.0),
        ((0.5, 3.0), (2.0, 4.0), 1.0),
        ((0.5, 3.0), (2.0, 4.0), 2.0),
    ):
        given = (x, {"all": widths}, *powers)
        for _ in range(2):
            y = f(*given, offset=offset)
            assert type(y.grad_fn).__name__ == "_WeightedBackward"
            torch.testing.assert_close(y, weighted(*given, offset=offset))


def test_an_argument_that_cannot_be_compared_is_left_to_the_function():
    f, x, how = derive.differentiate(lambda x, how: x * how.scale), leaf(3), SimpleNamespace()
    how.scale = 2.0
    with pytest.warns(derive.DeriveWarning, match="unhashable type: 'types.SimpleNamespace'"):
        torch.testing.assert_close(f(x, how), x * 2)
    how.scale = 3.0
    torch.testing.assert_close(f(x, how), x * 3)


def test_outputs_have_the_dtypes_of_the_function():
    def normed(x, w):
        return F.layer_norm(x.float(), x.shape[-1:], w).to(x.dtype), (x > 0).float().mean()

    f = derive.differentiate(normed)
    x, w = torch.randn(3, 4).bfloat16().requires_grad_(), torch.randn(4)
    for _ in range(2):
        (y, share), (want, other) = f(x, w), normed(x, w)
        assert (y.dtype, share.dtype) == (want.dtype, other.dtype)
        torch.testing.assert_close(y, want)
        torch.testing.assert_close(share, other)
        G = torch.randn_like(y)
        ours, theirs = (torch.autograd.grad(z, x, G)[0] for z in (y, want))
        torch.testing.assert_close(ours, theirs, rtol=0.05, atol=0.05)


def test_integers_of_other_dtypes():
    def masked(x, m):
        return (x * m).sum() / m.sum()

    f, x = derive.differentiate(masked), leaf(2, 3)
    m = torch.tensor([[1, 0, 1], [1, 1, 0]])
    for mask in (m, m.int(), m):
        y = f(x, mask)
        assert type(y.grad_fn).__name__ == "_MaskedBackward"
        torch.testing.assert_close(y, masked(x, mask))


@pytest.mark.parametrize(
    ("function", "dtype", "says"),
    [
        (lambda x, m: x * (2 - m), torch.uint8, "m is torch.uint8"),
        (lambda x, m: x * (m - 1), torch.uint8, "the spec differs"),
        (lambda x, m: (x * m, m + 1), torch.int32, "m is torch.int32"),
    ],
)
def test_integers_that_int64_does_not_stand_for(function, dtype, says):
    x, m = leaf(2, 3), torch.tensor([[1, 0, 1], [1, 1, 0]], dtype=dtype)
    with pytest.warns(derive.DeriveWarning, match=says):
        found = derive.differentiate(function)(x, m)
    torch.testing.assert_close(found, function(x, m))


def test_one_shape_after_another():
    f = derive.differentiate(lambda x, w: torch.tanh(x @ w))
    for n, k, m in ((2, 3, 5), (4, 4, 4), (7, 2, 3), (1, 3, 2)):
        x, w = leaf(n, k), leaf(k, m)
        torch.testing.assert_close(f(x, w), torch.tanh(x @ w))


def test_what_is_returned_has_the_same_structure():
    @derive.differentiate
    def f(x, dim=-1):
        return x.mean(dim, keepdim=True), {"total": x.sum(dim)}

    x = leaf(2, 3)
    mean, rest = f(x)
    assert mean.shape == (2, 1)
    torch.testing.assert_close(rest["total"], x.sum(-1))
    torch.testing.assert_close(f(x, dim=0)[0], x.mean(0, keepdim=True))


@dataclass(frozen=True)
class Scores:
    total: torch.Tensor
    positive: torch.Tensor
    state: object = None
    parts: tuple[torch.Tensor, ...] = ()


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_dataclass_and_bool_tensors_are_returned_as_by_the_function(dtype):
    def scores(x, w):
        z = torch.tanh(x @ w)
        return Scores((z * z).sum(), z > 0, parts=(z.exp(), torch.isnan(z).any()))

    f = derive.differentiate(scores, time=9)
    w = leaf(4, 3).to(dtype)
    for n in (5, 7):
        x = leaf(n, 4).to(dtype)
        have, want = f(x, w), scores(x, w)
        assert type(have) is Scores and have.state is None
        torch.testing.assert_close((*have.parts, have.total), (*want.parts, want.total))
        assert torch.equal(have.positive, want.positive)
    assert f.known.made.popitem()[1]


@dataclass(frozen=True)
class Cached(Scores):
    """Has attributes beside its fields."""

    def __post_init__(self):
        object.__setattr__(self, "doubled", 2 * self.total)


def test_a_dataclass_with_other_attributes_is_not_made_anew():
    f = derive.differentiate(lambda x: Cached(x.sum(), x > 0))
    with pytest.warns(derive.DeriveWarning, match="returns Cached, not a tensor"):
        assert f(leaf(3)).doubled is not None


def test_what_cannot_be_read_runs_as_it_is_after_one_warning():
    f = derive.differentiate(lambda x: x * torch.bernoulli(torch.full_like(x, 0.5)))
    x = leaf(2, 3)
    with pytest.warns(derive.DeriveWarning, match="runs unchanged, under torch's autograd") as said:
        f(x)
        f(x)
    assert len(said) == 1


def scaled(*xs, pair=(None, None), scale=0.5, shift=0.25):
    a, b = pair
    return sum(xs) * scale * a + b * shift


def test_a_call_as_before_takes_its_own_arguments():
    f = derive.differentiate(scaled)
    for n in range(3):
        a, b, x, y = (leaf(3, 5) for _ in range(4))
        torch.testing.assert_close(f(x, y, pair=(a, b)), scaled(x, y, pair=(a, b)))
        numbers = {"scale": 0.1 + n, "shift": 3.0}
        torch.testing.assert_close(
            f(x, y, pair=(a, b), **numbers), scaled(x, y, pair=(a, b), **numbers)
        )
        torch.testing.assert_close(f(x, pair=[b, a], shift=2.0), scaled(x, pair=(b, a), shift=2.0))


def test_a_call_as_before_reads_the_parameters_that_there_are():
    model = derive.replace(nn.Linear(4, 3).double())
    x = leaf(2, 4)
    for _ in range(3):
        model.weight = nn.Parameter(torch.randn(3, 4, dtype=torch.float64))
        torch.testing.assert_close(model(x), F.linear(x, model.weight, model.bias))


def test_transforms_and_compile():
    f = derive.differentiate(rms)
    x, w = torch.randn(2, 3, 5, dtype=torch.float64), torch.randn(5, dtype=torch.float64)

    def loss(f):
        return lambda x: f(x, w).sin().sum()

    want = torch.func.grad(loss(rms))(x)
    torch.testing.assert_close(torch.func.grad(loss(f))(x), want)
    f(x, w)
    torch.testing.assert_close(torch.func.grad(loss(f))(x), want)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_what_was_made_is_compiled():
    f = derive.differentiate(rms)
    x, w = leaf(2, 3, 5), leaf(5)
    want = torch.autograd.grad(f(x, w).sin().sum(), (x, w))
    compiled = torch.compile(f, backend="aot_eager", fullgraph=True)
    found = torch.autograd.grad(compiled(x, w).sin().sum(), (x, w))
    torch.testing.assert_close(found, want)
    nodes = torch._dynamo.export(f)(x, w).graph_module.graph.nodes
    assert any("autograd_function_apply" in node.name for node in nodes)


def test_before_a_plain_call_the_function_itself_is_compiled():
    f = derive.differentiate(rms)
    x, w = leaf(2, 3, 5), leaf(5)
    compiled = torch.compile(f, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x, w), rms(x, w))


def test_sizes_that_a_reading_does_not_take_are_left_to_the_function():
    def f(x):
        a, b = x.chunk(2, -1)
        return a.sum(-1) + b.sum(-1)

    g = derive.differentiate(f)
    with pytest.warns(derive.DeriveWarning, match="runs unchanged on arguments") as said:
        for n in (4, 6, 5, 5, 4):
            x = leaf(3, n)
            torch.testing.assert_close(g(x), f(x))
    assert len(said) == 1


def cleared(x, i):
    y = x.clone()
    y[i] = 0
    return y.exp()


FROM_THE_END = {
    "read": lambda x, i: x[i].exp(),
    "read as one axis": lambda x, i: torch.take(x, i) ** 2,
    "added": lambda x, i: x.index_put((i,), x[:2], accumulate=True).exp(),
    "filled": lambda x, i: x.index_fill(0, i, 2.0).exp(),
    "cleared": cleared,
}


@pytest.mark.parametrize("f", FROM_THE_END.values(), ids=FROM_THE_END)
def test_negative_positions_are_left_to_the_function(f):
    g = derive.differentiate(f)
    x = leaf(3, 4)
    dtype = torch.int32 if f is cleared else torch.int64
    first, second = (torch.tensor(i, dtype=dtype) for i in ([2, 0], [-1, 0]))
    torch.testing.assert_close(g(x, first), f(x, first))
    with pytest.warns(derive.DeriveWarning, match="runs unchanged on arguments"):
        made = g(x, second)
    torch.testing.assert_close(made, f(x, second))
    own, plain = (torch.autograd.grad(h(x, second).sum(), x)[0] for h in (g, f))
    torch.testing.assert_close(own, plain)


def checked(x):
    if torch.any(x < 0):
        raise ValueError("x is negative")
    return x.sqrt()


def test_what_validates_values_goes_on_to_do_so():
    g = derive.differentiate(checked)
    x = leaf(3, 5).detach().abs().requires_grad_()
    with pytest.warns(derive.DeriveWarning, match="would skip a check of values"):
        torch.testing.assert_close(g(x), checked(x))
    with pytest.raises(ValueError, match="x is negative"):
        g(-x - 1)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.drop = nn.LayerNorm(4), nn.Dropout(0.5)
        self.up, self.down = nn.Linear(4, 6), nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.drop(self.down(F.silu(self.up(self.norm(x)))))


def test_the_modules_of_a_model_are_replaced_and_its_state_is_not():
    model = Block()
    other = derive.replace(copy.deepcopy(model), time=9)
    assert list(other.state_dict()) == list(model.state_dict())
    x = torch.randn(3, 5, 4)
    for training in (False, True, False):
        model.train(training), other.train(training)
        for m in (model, other):
            m.zero_grad()
        torch.manual_seed(0)
        want = model(x)
        torch.manual_seed(0)
        have = other(x)
        torch.testing.assert_close(have, want)
        want.sum().backward(), have.sum().backward()
        for p, q in zip(model.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(q.grad, p.grad, rtol=1e-4, atol=1e-5)
    assert any(v is not None for v in other._derived.made.values())
    model.load_state_dict(pickle.loads(pickle.dumps(other.state_dict())))


def test_a_copy_of_a_replaced_model_has_its_own_parameters():
    model = derive.replace(Block().eval())
    x = torch.randn(3, 5, 4)
    model(x)
    other = copy.deepcopy(model)
    with torch.no_grad():
        for p in other.parameters():
            p.mul_(2)
    plain = Block().eval()
    plain.load_state_dict(other.state_dict())
    torch.testing.assert_close(other(x), plain(x))
    assert isinstance(other.up, nn.Linear) and derive.replace(other) is other


def test_a_module_is_told_of_replace():
    with pytest.raises(derive.DeriveError, match=r"Linear is a module.*derive\.replace"):
        derive.differentiate(torch.nn.Linear(4, 3))


def test_a_parameter_that_is_held_is_no_constant():
    f = derive.differentiate(torch.nn.Linear(4, 3).forward)
    x = torch.ones(2, 4)
    with pytest.warns(derive.DeriveWarning, match="requires a gradient"):
        assert f(x).shape == (2, 3)


def test_an_argument_that_is_not_read_is_an_input_without_a_gradient():
    def doubled(x, like):
        return 2 * x.view(like.shape)

    x, like = torch.randn(12, requires_grad=True), torch.randn(3, 4, requires_grad=True)
    op = derive.read_torch(doubled, x, like)
    assert [t.name for t in op.inputs] == ["x", "like"]
    torch.testing.assert_close(derive.load(op)(x, like), doubled(x, like))
    made = derive.differentiate(doubled)(x, like)
    assert torch.autograd.grad(made.sum(), (x, like), allow_unused=True)[1] is None


class Shares(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.zeros(3))

    def forward(self, x):
        return x * self.w.clamp(min=torch.finfo(self.w.dtype).tiny).log()


def test_a_number_of_the_dtype_is_read_anew_for_another_dtype():
    def logs(x):
        return x.clamp(min=torch.finfo(x.dtype).tiny).log()

    f, module = derive.differentiate(logs), derive.replace(Shares())
    for dtype in (torch.float32, torch.float64):
        x, ones = torch.zeros(3, dtype=dtype), torch.ones(2, 3, dtype=dtype)
        torch.testing.assert_close(f(x), logs(x))
        module = module.to(dtype)
        torch.testing.assert_close(module(ones), Shares().to(dtype)(ones))


class Running(nn.Module):
    """A state that is assigned, and none that is changed in place."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.tensor([2.0, 3.0]))
        self.register_buffer("state", torch.zeros(2))

    def forward(self, x):
        self.state = torch.tanh(self.state + x.mean(0)).detach()
        return x * self.w + self.state


def test_a_module_that_assigns_to_a_buffer_runs_unchanged():
    x, plain, derived = torch.randn(3, 2), Running(), derive.replace(Running())
    for _ in range(2):
        assert torch.equal(derived(x), plain(x)) and torch.equal(derived.state, plain.state)
    (row,) = derive.report(derived).rows
    assert "changes state as it runs" in row.reason


class Alike(nn.Module):
    """Parameters a_b and a.b, and an argument a_b, all of one name in an operation."""

    def __init__(self):
        super().__init__()
        self.a = nn.Module()
        self.a.b = nn.Parameter(torch.tensor([2.0, 3.0]))
        self.a_b = nn.Parameter(torch.tensor([5.0, 7.0]))

    def forward(self, a_b):
        return torch.tanh(a_b * self.a_b) * self.a.b


def test_names_that_are_alike_are_told_apart():
    x, plain, derived = torch.randn(3, 2), Alike(), derive.replace(Alike())
    for _ in range(2):
        assert torch.allclose(derived(x), plain(x))
    assert all(row.derived for row in derive.report(derived).rows)


def test_outputs_have_the_dtype_of_the_module_after_a_call_under_autocast():
    class Squares(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.randn(4, 4))

        def forward(self, x):
            return ((x @ self.w) ** 2).mean()

    module, x = Squares(), torch.randn(3, 4)
    derived = derive.replace(module, time=1e9, memory=1e9)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert derived(x).dtype == module(x).dtype
    assert derived(x).dtype == torch.float32


def test_an_object_whose_attributes_may_change_is_not_remembered():
    class Settings:
        power = 2.0

    g = derive.differentiate(lambda x, s: torch.sin(x) * s.power)
    settings, x = Settings(), torch.ones(1)
    with pytest.warns(derive.DeriveWarning, match="attributes that may change"):
        g(x, settings)
    settings.power = 5.0
    torch.testing.assert_close(g(x, settings), 5 * torch.sin(x))


SCALE, WIDTHS = 2.0, torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)


class Settings:
    scale = 2.0


def doubled(x):
    return x * 2


def outside():
    """Yield (function, change): a function that reads what the change sets."""
    scale, table = 2.0, {"f": torch.tanh}

    def set_closure():
        nonlocal scale
        scale = 5.0

    own, held = SimpleNamespace(w=torch.ones(3)), torch.ones(3)
    now = globals()
    yield lambda x: torch.tanh(x) * scale, set_closure
    yield lambda x: torch.tanh(x) * SCALE, lambda: now.update(SCALE=5.0)
    yield lambda x: torch.tanh(x) * WIDTHS, lambda: WIDTHS.mul_(5)
    yield lambda x: torch.tanh(x) * Settings.scale, lambda: setattr(Settings, "scale", 5.0)
    yield lambda x: torch.tanh(doubled(x)), lambda: now.update(doubled=torch.exp)
    yield lambda x: table["f"](x) * 2, lambda: table.update(f=torch.exp)
    yield lambda x: torch.tanh(x) * own.w, lambda: setattr(own, "w", 5 * own.w)
    yield functools.partial(lambda w, x: x.tanh() * w, held), lambda: held.mul_(5)


@pytest.mark.parametrize("at", range(8))
def test_a_value_outside_of_a_function_may_change(at):
    f, change = [*outside()][at]
    g, x = derive.differentiate(f), leaf(2, 3)
    for _ in range(2):
        y = g(x)
        assert "Backward" in type(y.grad_fn).__name__ and g.known.around is not None
        torch.testing.assert_close(y, f(x))
        change()


class Power:
    def __init__(self, exponent):
        self.exponent = exponent

    def __call__(self, x):
        return x**self.exponent


def test_what_an_argument_reads_may_change():
    scale, power = 2.0, Power(2)

    def half(x):
        return x / scale

    f, x = derive.differentiate(lambda x, f: torch.tanh(f(x))), leaf(2, 3)
    for _ in range(2):
        for given in (half, power):
            y = f(x, given)
            assert "Backward" in type(y.grad_fn).__name__ and f.known.around is not None
            torch.testing.assert_close(y, torch.tanh(given(x)))
        scale, power.exponent = 5.0, 3


def test_a_parameter_that_is_frozen_is_no_constant():
    teacher, x = nn.Linear(3, 2).requires_grad_(False).double(), leaf(4, 3)
    f = derive.differentiate(lambda x: teacher(x).tanh())
    with pytest.warns(derive.DeriveWarning, match=r"teacher.weight is a parameter, which may"):
        f(x)
    teacher.weight.data.mul_(2)
    torch.testing.assert_close(f(x), teacher(x).tanh())
    w = torch.ones(3, dtype=torch.float64)
    g = derive.differentiate(lambda x: torch.tanh(x * w))
    g(x), w.requires_grad_()
    with pytest.warns(derive.DeriveWarning, match="requires a gradient"):
        g(x)
    assert torch.autograd.grad(g(x).sum(), w)[0].shape == (3,)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_a_change_before_the_code_is_compiled():
    model, x = derive.replace(Scaled()), torch.randn(4, 3)
    model(x)
    model.scale = 7.0
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), model(x))


tanh = torch.nn.Linear(3, 3)


def test_an_attribute_with_the_name_of_a_global():
    f = derive.differentiate(lambda x: x.tanh() * x)
    assert f(leaf(4, 3)).grad_fn.name() == "_FBackward"


def test_a_constant_result_has_a_gradient_of_zeros():
    f = derive.differentiate(lambda x, w: (x @ w).softmax(-1))
    f(leaf(4, 3), leaf(3, 2))
    with pytest.warns(derive.DeriveWarning, match="a result is constant in w, and"):
        f(leaf(4, 3), leaf(3, 1))
    for n in (2, 1):
        x, w = leaf(4, 3), leaf(3, n)
        for made in torch.autograd.grad(f(x, w)[:, 0].sum(), (x, w)):
            assert made.any() == (n > 1)


class Weighed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scores = torch.nn.Linear(3, 1, bias=False)

    def forward(self, x):
        return self.scores(x).softmax(-1) * x


def test_attention_to_one_step_has_gradients_of_zeros():
    attend = derive.differentiate(lambda q, k, v: (q @ k.mT).softmax(-1) @ v)
    q, k, v = leaf(2, 1, 3), leaf(2, 1, 3), leaf(2, 1, 4)
    with pytest.warns(derive.DeriveWarning, match="a result is constant in k, and"):
        y = attend(q, k, v)
    for made in torch.autograd.grad(y.sum(), (q, k)):
        assert not made.any()


def test_a_parameter_in_which_a_result_is_constant_has_a_gradient_of_zeros():
    module = derive.replace(Weighed(), time=100, memory=100)
    module(torch.randn(4, 3)).sum().backward()
    assert not module.scores.weight.grad.any()


def test_a_function_is_not_read_anew_for_ever():
    own = SimpleNamespace(step=0)
    g, x = derive.differentiate(lambda x: torch.tanh(x) / (1 + own.step)), leaf(2, 3)
    for own.step in range(5):
        torch.testing.assert_close(g(x), torch.tanh(x) / (1 + own.step))
    own.step = 7
    with pytest.warns(derive.DeriveWarning, match="own.step changes between calls; pass it as an"):
        torch.testing.assert_close(g(x), torch.tanh(x) / 8)


def test_what_a_function_counts_outside_is_counted_once():
    calls, drawn = 0, torch.Generator().manual_seed(3)
    log = SimpleNamespace(values=[], last=None)

    def counted(x):
        nonlocal calls
        calls += 1
        log.values.append(x.detach().sum())
        log.first = log.first if hasattr(log, "first") else calls
        log.last = calls if log.last is None else log.last + 1
        return x * 2

    g, x = derive.differentiate(counted), leaf(3)
    with pytest.warns(derive.DeriveWarning, match=r"changes calls, .*log.values as it runs"):
        g(x)
    g(x)
    assert (calls, log.first, log.last) == (2, 1, 2)
    torch.testing.assert_close(log.values, [x.detach().sum()] * 2)
    h = derive.differentiate(lambda x, how: x * torch.rand(3, generator=how))
    with pytest.warns(derive.DeriveWarning, match="runs unchanged"):
        h(x, drawn)
    again = torch.Generator().manual_seed(3)
    torch.rand(3, generator=again)
    assert torch.equal(drawn.get_state(), again.get_state())


class Scaled(nn.Module):
    rate = 0.5

    def __init__(self):
        super().__init__()
        self.up, self.down, self.scale = nn.Linear(3, 5), nn.Linear(5, 2), 2.0
        self.rounded = nn.Parameter(torch.tensor([2.0, 3.0]))

    def forward(self, x):
        y = self.down(torch.tanh(self.up(x) * self.rate)) * self.scale
        return (y * self.rounded).to(self.rounded.dtype)


class Cubed(nn.Module):
    def forward(self, w):
        return w**3


def untie(module):
    module.down.weight = nn.Parameter(torch.ones(2, 5))


MODULE_CHANGES = {
    "attribute": lambda m: setattr(m, "scale", 5.0),
    "attribute of the class": lambda m: setattr(m, "rate", 0.25),
    "submodule": lambda m: setattr(m, "up", nn.Sequential(nn.Linear(3, 5), nn.Sigmoid())),
    "no bias": lambda m: setattr(m.up, "bias", None),
    "method": lambda m: setattr(m.up, "forward", lambda x: x.sum() + torch.ones(len(x), 5)),
    "hook": lambda m: m.up.register_forward_hook(lambda m, x, y: y * 2),
    "hook before": lambda m: m.up.register_forward_pre_hook(lambda m, x: (x[0] * 2,)),
    "own hook": lambda m: m.register_forward_pre_hook(lambda m, x: (x[0] * 2,)),
    "hook of the gradient": lambda m: m.up.register_full_backward_hook(lambda m, g, G: (g[0] * 2,)),
    "parametrization": lambda m: register_parametrization(m.up, "weight", Cubed()),
    "pruned": lambda m: prune.l1_unstructured(m.up, "weight", 0.5),
    "weight": untie,
    "dtype": lambda m: setattr(m, "rounded", nn.Parameter(m.rounded.data.double())),
}


@pytest.mark.parametrize("early", [False, True], ids=["between calls", "before"])
@pytest.mark.parametrize("change", MODULE_CHANGES.values(), ids=MODULE_CHANGES)
def test_a_module_may_change(change, early):
    plain = Scaled()
    derived = derive.replace(copy.deepcopy(plain), time=9, memory=9)
    x = torch.randn(4, 3, requires_grad=True)
    for n in range(3):
        if n == 1 - early:
            for m in (plain, derived):
                torch.manual_seed(0)
                change(m)
        for m in (plain, derived):
            x.grad = None
            m.zero_grad(), m(x).sin().sum().backward()
            m.found = [x.grad, *(p.grad for p in m.parameters())]
        torch.testing.assert_close(derived(x), plain(x))
        torch.testing.assert_close(derived.found, plain.found)
    assert any(row.derived for row in derive.report(derived).rows)


def test_hooks_run_once_for_each_call():
    seen, module = [], Scaled()
    for m in (module, module.up):
        m.register_forward_hook(lambda m, x, y: seen.append(type(y)))
    derived = derive.replace(module)
    for _ in range(3):
        derived(torch.randn(4, 3))
    assert seen == [torch.Tensor] * 6


class Shared(nn.Module):
    """One linear map in two submodules."""

    def __init__(self):
        super().__init__()
        linear = nn.Linear(3, 3)
        self.a, self.b = nn.Sequential(linear, nn.Tanh()), nn.Sequential(linear, nn.Sigmoid())

    def forward(self, x):
        return self.a(x) + self.b(x)


def test_a_module_with_two_names_keeps_its_parameters():
    plain, x = Shared(), torch.randn(4, 3)
    own = plain.a[0].weight
    derived = derive.replace(copy.deepcopy(plain), time=9, memory=9)
    for module in (plain, derived):
        for _ in range(2):
            module.zero_grad(), module(x).sin().sum().backward()
    torch.testing.assert_close(derived(x), plain(x))
    torch.testing.assert_close(derived.b[0].weight.grad, own.grad)
    assert all(row.derived for row in derive.report(derived).rows)


def test_a_replaced_model_is_saved_and_loaded():
    model, x = derive.replace(Block().eval(), time=9, memory=9), torch.randn(3, 5, 4)
    want = model(x)
    for copied in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        torch.testing.assert_close(copied(x), want)
        assert type(copied) is type(model) and any(copied._derived.made.values())


class Heads(nn.Module):
    """The second head, and what is detached, have no part in a loss of the first result."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(3, 2), nn.Linear(3, 5), nn.Linear(3, 2)

    def forward(self, x):
        with torch.no_grad():
            share = torch.sigmoid(self.c(x))
        return self.a(x).tanh() * share, self.b(x).sin(), (x * x).mean()


def test_gradients_are_none_where_a_loss_does_not_reach():
    plain, x = Heads(), torch.randn(7, 3)
    derived = derive.replace(copy.deepcopy(plain), time=9, memory=9)
    for used in ((0,), (1,), (0, 1)):
        for m in (plain, derived):
            m.zero_grad()
            found = m(x)
            sum(found[n].sum() for n in used).backward()
            m.needed = [y.requires_grad for y in found]
        pairs = [*zip(derived.parameters(), plain.parameters(), strict=True)]
        assert [p.grad is None for p, _ in pairs] == [q.grad is None for _, q in pairs]
        for p, q in pairs:
            torch.testing.assert_close(p.grad, q.grad)
    assert derived.needed == plain.needed == [True, True, False]
    assert all(row.derived for row in derive.report(derived).rows)
    x = x.requires_grad_()
    for f in (derived, plain):
        (g,) = torch.autograd.grad(f(x)[1].sum(), x, create_graph=True)
        f.second = torch.autograd.grad(g.pow(2).sum(), x)[0]
    torch.testing.assert_close(derived.second, plain.second)


def test_results_that_reach_different_inputs_may_start_at_a_position():
    """The derived code has a parameter of its own, start=0, that the caller does not pass."""

    def f(x, w):
        padded = torch.cat([torch.ones_like(x[:, :1]), x], 1)[:, :-1]
        return (padded * w).sum(1), padded * x

    derived, given = derive.differentiate(f, time=99, memory=99), (leaf(3, 5), leaf(5))
    for n in (0, 1):
        gradients = [
            torch.autograd.grad(g(*given)[n].sin().sum(), given, allow_unused=True)
            for g in (derived, f)
        ]
        torch.testing.assert_close(*gradients)
    assert all(derived.known.made.values())


def test_a_result_that_is_an_argument_is_the_argument():
    g = derive.differentiate(lambda x, w: {"x": x, "y": torch.tanh(x * w)})
    x, w = torch.arange(3.0), torch.ones(3, requires_grad=True)
    for _ in range(2):
        assert g(x, w)["x"] is x


def test_threads_may_read_at_the_same_time():
    f = derive.differentiate(lambda x, w: torch.tanh(x @ w).sum(-1))
    given = [(leaf(*(2,) * n, 3), leaf(3, 5)) for n in (1, 2, 3, 1)]
    with ThreadPoolExecutor(4) as pool:
        found = [*pool.map(lambda pair: f(*pair), given)]
    for (x, w), y in zip(given, found, strict=True):
        torch.testing.assert_close(y, torch.tanh(x @ w).sum(-1))
    assert all(f.known.made.values())


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:.*nested tensors.*:UserWarning")
def test_tracers_get_the_function():
    model, x = derive.replace(Scaled()), torch.randn(4, 3)
    want = model(x)
    for traced in (torch.jit.trace(model, (x,)), torch.fx.symbolic_trace(model)):
        torch.testing.assert_close(traced(x), want)
    f = derive.differentiate(lambda x: x * 2)
    nested = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)])
    for given in (torch.ones(2), nested):
        assert f(given).is_nested == given.is_nested


@pytest.mark.parametrize("reentrant", [False, True])
def test_the_first_call_may_be_in_a_checkpoint(reentrant):
    plain, x = Scaled(), torch.randn(4, 3, requires_grad=True)
    derived = derive.replace(copy.deepcopy(plain), time=9, memory=9)
    for m in (plain, derived):
        x.grad = None
        checkpoint(m, x, use_reentrant=reentrant).sum().backward()
        m.found = [x.grad, *(p.grad for p in m.parameters())]
    torch.testing.assert_close(derived.found, plain.found)
    assert all(row.derived for row in derive.report(derived).rows)


def test_what_a_refused_reading_writes_is_restored():
    state, x = torch.zeros(3, dtype=torch.float64), leaf(3)

    def summed(x):
        state.add_(x.detach())
        return x.tanh()

    f = derive.differentiate(summed)
    with pytest.warns(derive.DeriveWarning, match="runs unchanged"):
        f(x)
    f(x)
    torch.testing.assert_close(state, 2 * x.detach())


def test_the_first_call_may_be_in_inference_mode():
    f, x, w = derive.differentiate(rms), leaf(2, 3), leaf(3)
    with torch.inference_mode():
        f(x.detach().clone(), w)
    found, want = (torch.autograd.grad(g(x, w).sin().sum(), (x, w)) for g in (f, rms))
    torch.testing.assert_close(found, want)


def test_forward_mode_goes_through_what_is_under_no_grad():
    """As in torch: there such a function runs unchanged, also where it is read in that mode."""

    def scaled(x):
        with torch.no_grad():
            s = x.abs().amax(1, keepdim=True)
        return torch.tanh(x / s)

    x, d = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0))
    _, want = torch.func.jvp(scaled, (x,), (d,))
    f = derive.differentiate(scaled, time=99, memory=99)
    with forward_ad.dual_level():
        found = forward_ad.unpack_dual(f(forward_ad.make_dual(x, d))).tangent
    torch.testing.assert_close(found, want)
    torch.testing.assert_close(torch.func.jvp(f, (x,), (d,))[1], want)
    assert "Scaled" in str(f(x.requires_grad_()).grad_fn)
