"""The facts of values: what the table says of memory is what torch does."""

import itertools
import math
from types import SimpleNamespace

import torch
from kit.each import each_row
from kit.texts import rt
from kit.torch_code import torch_code

from derive.algebra.poly import constant
from derive.memory import imported
from derive.module.runtime import plain_runtime
from derive.program.cse import Line
from derive.program.dataflow import Aliases, Backward, live, live_in
from derive.program.shape_rules import TensorType
from derive.program.torch_ir import subexpressions
from derive.program.torch_ops import MATMUL, TORCH_OPS, Alias, torch_op
from derive.program.types import Types

EACH = "abs acos acosh asin asinh atan atanh ceil cos cosh digamma erf erfc expm1 floor frac exp"
EACH_TOO = (
    "lgamma log log1p reciprocal relu round sigmoid sign sin sinh sqrt tan tanh trunc rsqrt square"
)
SMOOTH = "celu elu gelu hardtanh leaky_relu logsigmoid mish selu silu softplus"
BACKWARD = "gelu sigmoid silu tanh hardswish mish"
SIZES = {1: "(2, 3, 6)", 2: "(2, 3, 6, 6)", 3: "(2, 3, 6, 6, 6)"}
PLAIN = """
x.unsqueeze(0); one.squeeze(1); one.expand((3, 4)); x.select(0, 1); x.transpose(0, 1);
x.permute((1, 0)); x.movedim(0, 1); x.diagonal(0, 0, 1); x.reshape((4, 3)); x.mT.reshape((12,));
x.reshape(x.shape); x.flatten(0, 1); x.mT.flatten(0, 1); v.flatten(0, 0); x.unflatten(1, (2, 2));
rt.flatten(x, 0, 1); rt.unflatten(x, 1, (2, 2)); x.narrow(1, 0, 2); x.narrow(1, 0, 4);
rt.narrow(x, 1, 0, 2); rt.window(x, 1, 0, 4); rt.window(x, 1, 1, 2); x.unfold(1, 2, 1); x.detach();
mask.any(1); mask.all(1); rt.no_view(x);
rt.no_view(x.mT.unsqueeze(0)); rt.add_cotangent(x, None); rt.add_cotangent(x, y);
rt.copied(x); rt.copied(one.expand((3, 4))); x.sum_to_size((3, 1)); x.sum_to_size((3, 4));
torch.linalg.vector_norm(x, 2, 1); x.max(1).values; x.max(1).indices; x.max(); alone.max(1).values;
x.min(1).values; x.min(1).indices; x.min(); alone.min(1).values; x.argmax(1); x.argmin(1);
x.logsumexp(1); alone.logsumexp(1); x.gather(1, at); x.index_select(0, places);
rt.gather_if_any(x, 1, at); rt.index_select(x, 0, at); rt.index_select_if_any(x, 0, places);
rt.gather_inside(x, 1, at); rt.gather_inside(long, 1, far); rt.gather(x, 1, at);
rt.index_select_inside(x, 0, places); rt.gather(long, 1, far); rt.read_at(x, (0,), places);
rt.read_at(x, (0, 1), places, places);
rt.read_at_if_any(x, (0,), places); x.flip(1); alone.flip(1); x.roll(1, 0); x.roll(0, 0);
alone.roll(1, 1); x.tril(); x.tril(9); x.triu(); x.triu(-9); x.clone(); x.to(low); x.to(half);
x.to(x.dtype); x.mT.to(low); torch.diag_embed(v, 0, 0, 1); v.diag_embed();
torch.nn.functional.pad(x, (0, 0)); torch.nn.functional.pad(x, (1, 0)); torch.cat((x, y), 1);
torch.cat((x, none), 1); torch.cat((x,), 1); torch.stack((x, y), 1); torch.stack((x,), 0);
rt.stack((x, y), -1); rt.stack((x,), -1); torch.where(mask, x, y); torch.where(mask, x, 0);
rt.where(mask, x, y); rt.where(mask, x, 0); rt.where(wide_mask, large, 0);
torch.select_scatter(x, v, 0, 1); x.select_scatter(v, 0, 1); x.slice_scatter(one, 1, 0, 1);
x.slice_scatter(y, 1); x.scatter_add(1, at, y); rt.scatter_add(x, 1, at, y);
rt.scatter_add(long, 1, far, long); rt.index_add_if_any(x, 0, places, y);
rt.index_add(x, 0, places, y); rt.scatter_add_if_any(x, 1, at, y);
x.scatter_reduce(1, at, y, "amax"); x.index_add(0, places, y);
rt.index_add_inside(x, 0, beyond, y); rt.scatter_add_inside(x, 1, outer, y);
x.index_put((places,), y); x.new_zeros((3, 4)); x.new_full((), 1); torch.arange(3);
rt.positions(3, x); torch.full((), 2); torch.einsum("ij->ji", x); torch.einsum("ij,ij->ji", x, y);
torch.einsum("ij,kj->ki", x, y); torch.einsum("ij,j->ij", x, v); torch.tensordot(x, v, 1);
torch.tensordot(v, x, ((0,), (1,)));
rt.unsqueeze(x, (-1,)); rt.unsqueeze(x, ());
torch.nn.functional.linear(x, y, None); torch.nn.functional.linear(b, x, u);
torch.addmm(square, x, x.mT);
torch.baddbmm(b, b, squares); rt.native_layer_norm(x, (4,), v, v, 1e-05);
rt.native_batch_norm(b, u, u, 1e-05);
rt.native_group_norm(groups, rows, rows, 1e-05); rt.native_instance_norm(b, u, u, 1e-05);
rt.native_layer_norm_backward(x, y, (4,), one, one, v, all3);
rt.native_batch_norm_backward(b, b, u, u, u, all3);
rt.native_group_norm_backward(groups, groups, twos, twos, rows, all3);
rt.native_instance_norm_backward(b, b, rows, rows, u, all3); rt.attention(b, b, b, None, 1);
rt.attention_backward(b, b, b, b, b, rows, None, 1);
x.logcumsumexp(1); alone.logcumsumexp(1);
x.cumprod(1); alone.cumprod(1); torch.atan2(x, y); x.clamp(min=0); x.clamp(-9, 9); x.clamp_max(9);
x.clamp_min(-9); torch.maximum(x, y); torch.maximum(x, x); torch.minimum(x, y);
torch.nn.functional.hardswish(x); torch.nn.functional.glu(x, 1);
torch.ops.aten.glu_backward(half_of_x, x, 1); torch.softmax(x, 1); torch.softmax(alone, 1);
torch.log_softmax(x, 1); torch.log_softmax(alone, 1); rt.softmax(x, 0); rt.softmax(long, 1);
rt.log_softmax(x, 0); rt.log_softmax(long, 1); rt.softmax_backward(x, y, 0);
rt.softmax_backward(long, long, 1);
rt.log_softmax_backward(x, y, 0); rt.log_softmax_backward(long, long, 1);
torch._softmax_backward_data(x, y, 1, x.dtype); torch._log_softmax_backward_data(x, y, 1, x.dtype);
torch.nn.functional.softshrink(x); torch.nn.functional.smooth_l1_loss(x, y, reduction="none");
torch.nn.functional.huber_loss(x, y, reduction="none"); torch.nn.functional.hardsigmoid(x);
rt.exclusive_prod(x - x, 0); rt.exclusive_prod(alone, 1); rt.exclusive_cumprod(x, 0);
rt.exclusive_cumprod(alone, 1); rt.running_max(x, 1); rt.running_amax(x, 0, True);
rt.running_argmax(x, 0);
rt.running_argmax(alone, 1, True); rt.linear_recurrence(x, y, 0);
rt.linear_recurrence(alone, alone, 1, reverse=True); rt.adjoint_recurrence(x, y, 0, reverse=True);
rt.adjoint_recurrence(alone, alone, 1); rt.circular_convolution(x, y, 0);
rt.circular_correlation(x, y, 1); rt.sum_while_equal(x, y, 0);
rt.sum_while_equal(alone, alone, 1); rt.sort_ranks(x, 0); rt.sort_ranks(alone, 1, descending=True);
rt.joined_positions((3, 4), at, at);
rt.joined_positions((9,), far);
rt.windows(x, 1, -1, 5, 3, 1); rt.windows(x, 1, 0, 2, 3, 1); rt.any_where(x, "<", y);
rt.any_where(alone, "<", alone); rt.count_where(x, "<", y); rt.sum_where(x, x, ">=", y);
rt.sum_where(alone, alone, ">=", alone);
rt.logsumexp_where(x, x, "<", y); rt.logsumexp_where(alone, alone, ">", alone);
rt.mean_where(x, y, x, "<=", y); rt.mean_where(alone, alone, alone, ">", alone);
rt.mean_where_adjoint(x, y, x, "<=", y, y);
rt.mean_where_adjoint(alone, alone, alone, ">=", alone, alone);
rt.first_ranks(x, 1, 1); rt.first_ranks(long, 1, 1, descending=True);
rt.decayed_sum(x, y, 0); rt.decayed_sum(alone, alone, 1);
rt.conv_single_channel(b.narrow(1, 0, 1), kernel);
rt.conv_single_channel_input((2, 1, 5), kernel, b.narrow(1, 0, 1));
torch.ops.aten.elu_backward(x, 1, 1, 1, False, y); torch.ops.aten.hardshrink_backward(x, y, 0.5);
torch.ops.aten.hardtanh_backward(x, y, -1, 1);
torch.ops.aten.leaky_relu_backward(x, y, 0.1, False); torch.ops.aten.threshold_backward(x, y, 0);
x @ y.mT; b @ squares; -x; x - y; x + 0; x * 1; x / 1; x ** 2; x ** 1; ~mask; mask & mask; x == y;
x > 0; x.mul_(2); x.mT.add_(1); torch.softmax(x, 1, out=x); rt.keep_where_(x, mask);
rt.guarded(x, mask, 1); x.contiguous();
x.long(); places.long(); torch.real(x); x if True else y; x if True else None; mask.sum(1);
mask.prod(1); x.isfinite();
(x.mT if True else y).unsqueeze(0); x.cumsum(0); alone.cumsum(1); torch.addcmul(x, y, y);
x.masked_fill(mask, 0); torch.pow(x, 1); torch.pow(x, y); torch.nn.functional.hardshrink(x, 0);
torch.nn.functional.threshold(x, -9, 0); rt.addmm(square, x, x.mT, 1, 1);
rt.sum_over(x, ()); rt.mean_over(x, ()); rt.sum_over(alone, (1,)); rt.mean_over(alone, (1,));
_indexed(x, classes)
"""
"""Calls with the arguments for which sharing is most likely."""
CALLS = [
    *(call.strip() for call in PLAIN.split(";")),
    *(f"x.{name}()" for name in f"{EACH} {EACH_TOO}".split()),
    *(f"torch.nn.functional.{name}(x)" for name in SMOOTH.split()),
    *(f"{x}.{name}(1)" for name in "sum mean prod amax amin".split() for x in ("x", "alone")),
    *(f"torch.ops.aten.{name}_backward(x, y)" for name in BACKWARD.split()),
]
for n, size in SIZES.items():
    image, weight, slope = (f"{name}{n}" for name in ("image", "weight", "slope"))
    CALLS += [
        f"torch.nn.functional.conv{n}d({image}, {weight})",
        f"torch.nn.functional.conv_transpose{n}d({slope}, {weight})",
        f"torch.nn.grad.conv{n}d_input({size}, {weight}, {slope})",
        f"torch.nn.grad.conv{n}d_weight({image}, (4, 3{', 1' * n}), {slope})",
        f"torch.nn.functional.avg_pool{n}d({image}, 1)",
        f"torch.nn.functional.max_pool{n}d({image}, 1)",
    ]
    if n > 1:
        ones, zeros = (f"({', '.join(digit * n)})" for digit in "10")
        call = f"torch.ops.aten.avg_pool{n}d_backward"
        CALLS.append(f"{call}({image}, {image}, {ones}, {ones}, {zeros}, False, True, None)")
CODES = {call: torch_code(call) for call in CALLS}
NUMBERS = {"dim", "math.prod"}
ON_CUDA = {"max_pool1d"}
"""A view there alone."""


SHAPES = """
x 3 4; y 3 4; v 4; u 3; one 3 1; alone 3 1; long 3 4 1; large 80 80; square 3 3; b 2 3 4; none 3 0;
squares 2 4 4; rows 2 3; twos 2 2; groups 2 2 3 4; kernel 1 1 2; half_of_x 3 2
"""
MASKS = {"mask": (3, 4), "wide_mask": (80, 80)}
PLACES = {"at": (3, 4), "far": (3, 4, 1), "places": (3,), "classes": (3,)}


def tensors():
    torch.manual_seed(0)
    found = {}
    for name, *sizes in (words.split() for words in SHAPES.split(";")):
        found[name] = torch.rand(*map(int, sizes))
    for n in SIZES:
        found |= {f"image{n}": torch.ones(2, 3, *[6] * n), f"slope{n}": torch.ones(2, 4, *[6] * n)}
        found[f"weight{n}"] = torch.ones(4, 3, *[1] * n)
    found |= {name: torch.rand(shape) > 0.5 for name, shape in MASKS.items()}
    found |= {name: torch.zeros(shape, dtype=torch.int64) for name, shape in PLACES.items()}
    return found | {"outer": torch.full((3, 4), 9), "beyond": torch.tensor([0, 1, 9])}


PLAIN_RUNTIME = imported("_plain_runtime", plain_runtime())
SHARED = SimpleNamespace(**{**vars(PLAIN_RUNTIME), **vars(rt)})
"""The functions of both styles."""
OTHERS = {
    "_indexed": lambda x, at: x[at],
    "low": torch.float32,
    "half": torch.float16,
    "all3": [True] * 3,
    "math": math,
}


def storage(x: torch.Tensor) -> int:
    """Where the elements of x are; 0 without elements."""
    return x.untyped_storage().data_ptr() if x.numel() else 0


def made(call, given):
    with torch.no_grad():
        return eval(call, {"rt": SHARED, **OTHERS, **given, "torch": torch})


@each_row("call", CALLS)
def test_a_value_shares_the_memory_that_the_table_says_and_no_other(call):
    given = tensors()
    fact = Aliases(given).of(CODES[call])
    value = made(call, given)
    values = value if isinstance(value, tuple | list) else [value]
    assert fact.several == (len(values) > 1)
    for x in values:
        shared = {name for name, t in given.items() if storage(x) and storage(x) == storage(t)}
        assert shared <= fact.owners
        itself = any(x is t for t in given.values())
        # What may be an input is copied; an item may be a view, and an output a view of that.
        known = not (itself or fact.several or fact.owners & set(given))
        assert not known or fact.view or not x._is_view()
        overlapping = 0 in [s for s, n in zip(x.stride(), x.shape, strict=True) if n > 1]
        assert fact.overlaps or not overlapping
        assert not (fact.writable and (shared or overlapping))
    for x, other in itertools.combinations(values, 2):
        assert storage(x) != storage(other) or not storage(x)


OPAQUE = {"rt.native_layer_norm", "rt.attention"}
"""Calls with statistics that only the call for the gradients reads, whatever their axes are."""


def type_of(x: object) -> object:
    """The type of a tensor, and of each of several."""
    if isinstance(x, tuple | list):
        return tuple(map(type_of, x))
    assert isinstance(x, torch.Tensor)
    kinds = {torch.int64: "int", torch.bool: "bool"}
    return TensorType(tuple(map(constant, x.shape)), kinds.get(x.dtype, "float"))


@each_row("call", CALLS)
def test_a_value_has_the_type_that_the_rules_say(call):
    given = tensors()
    known = {name: type_of(x) for name, x in given.items()}
    value = Types({}, known | {"all3": (True,) * 3}).of(CODES[call])
    want = type_of(made(call, given))
    if torch_op(CODES[call]).name in OPAQUE:
        value, want = value[0], want[0]
    assert value == want


def test_each_row_has_a_call():
    called = {torch_op(part).name for c in CODES.values() for part in subexpressions(c)}
    assert {*TORCH_OPS, MATMUL.name} - NUMBERS <= called


@each_row("row", [n for n, op in TORCH_OPS.items() if op.alias is not Alias.FRESH])
def test_a_row_that_may_share_memory_does_in_a_call(row):
    """Or is a view: what it costs to be careful must have a reason."""
    alias = TORCH_OPS[row].alias
    if alias in (Alias.ANY, Alias.SEVERAL) or row in NUMBERS | ON_CUDA:
        return
    found = []
    for call in (call for call in CALLS if torch_op(CODES[call]).name == row):
        given = tensors()
        x = made(call, given)
        found.append(x._is_view() or storage(x) in map(storage, given.values()))
    assert any(found)


def owners(*lines, given=("x", "y")):
    aliases = Aliases(given)
    aliases.run([Line(name, torch_code(text)) for name, text in lines])
    return aliases


def test_a_name_has_the_memory_of_its_last_line():
    found = owners(("a", "x.exp()"), ("b", "a.mT"), ("a", "x.mT"), ("c", "a.mul_(2)"))
    assert found.known["a"].owners == {"x"} < found.known["c"].owners
    assert found.known["b"].owners.isdisjoint({"x", "y"})
    assert found.known["b"].writable and not found.known["c"].writable


def test_an_item_has_memory_of_its_own_and_is_the_same_each_time():
    found = owners(("a", "x.max(1)"), ("b", "a.values"), ("c", "a.values"), ("d", "a.indices"))
    assert found.known["b"].owners == found.known["c"].owners != found.known["d"].owners


def test_one_tensor_under_two_names_is_one():
    found = owners(("a", "x.to(low)"), ("b", "a if x is None else x"), ("c", "x.mT"))
    assert found.known["a"].tensor == found.known["b"].tensor == "x" != found.known["c"].tensor


LINES = [
    Line("a", torch_code("x.exp()")),
    Line("b", torch_code("a * y")),
    Line("c", torch_code("a * z")),
    Line("a", torch_code("b + c")),
    Line("d", torch_code("c + c")),
]


def test_a_line_is_live_if_a_result_depends_on_it():
    assert live(LINES, ["a"]) == [True, True, True, True, False]
    assert live(LINES, ["d"]) == [True, False, True, False, True]
    assert live_in(LINES) == {"x", "y", "z"}


def test_uses_join_where_several_lines_read_a_name():
    uses = Backward({"a": {"a"}, "d": {"d"}}, set.union).run(LINES)
    assert uses == [{"a", "d"}, {"a"}, {"a", "d"}, {"a"}, {"d"}]
