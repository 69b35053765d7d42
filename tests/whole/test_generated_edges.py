"""Generated modules at their edges: nothing taken, all equal, out of range, what is not read."""

import re
from fractions import Fraction

import numpy as np
import pytest
import torch
from kit.cases.case import distinct, generated, positions, uniform
from kit.each import each_row
from torch.nn import functional as F

import derive

torch.set_num_threads(1)
CLOSE = {"rtol": 1e-10, "atol": 1e-12}
NAN = float("nan")


def gradients(result, *inputs):
    cotangent = uniform(tuple(result.shape), -1, 1, 9)
    return torch.autograd.grad(result, inputs, cotangent)


def twice(*tensors):
    """The tensors, and other ones with the same values."""
    return [
        [x.clone().requires_grad_() if x.is_floating_point() else x for x in tensors]
        for _ in range(2)
    ]


def assert_like(function, reference, *tensors):
    """The same values and gradients as the reference."""
    ours, theirs = twice(*tensors)
    result, expected = function(*ours), reference(*theirs)
    torch.testing.assert_close(result, expected, **CLOSE, equal_nan=True)
    for a, b in zip(
        gradients(result, *(x for x in ours if x.requires_grad)),
        gradients(expected, *(x for x in theirs if x.requires_grad)),
        strict=True,
    ):
        torch.testing.assert_close(a, b, **CLOSE, equal_nan=True)


def test_equal_rows_have_no_distance_and_no_gradient():
    x = torch.tensor([[0.5, 2.0]], dtype=torch.float64)
    y = torch.tensor([[0.5, 2.0], [3.5, 6.0]], dtype=torch.float64)
    assert_like(generated("cdist"), torch.cdist, x, y)
    assert generated("cdist")(x, y).tolist() == [[0, 5]]


@pytest.mark.parametrize("name", ("normalize", "cosine_similarity"))
def test_a_vector_of_zeros_is_divided_by_eps(name):
    tensors = [torch.zeros(2, 3).double(), uniform((2, 3), -1, 1)]
    tensors = tensors[:1] if name == "normalize" else tensors
    assert_like(generated(name), getattr(F, name), *tensors)


def test_equal_values_of_a_window_send_the_gradient_to_the_first():
    x = positions(2, 3, 9, below=3).double()
    assert_like(
        lambda x: generated("max_pool1d")(x, kernel_size=4, stride=2),
        lambda x: F.max_pool1d(x, 4, 2),
        x,
    )
    images = positions(1, 3, 6, 7, below=3).double()
    assert_like(
        lambda x: generated("max_pool2d")(x, kernel_size=3, stride=2),
        lambda x: F.max_pool2d(x, 3, 2),
        images,
    )


def test_a_segment_of_nothing():
    ids, data = torch.tensor([2, 0, 2]), distinct((3, 4)).requires_grad_()
    total = generated("segment_sum")(data, ids, num_segments=5)
    assert total[[1, 3, 4]].abs().max() == 0
    average = generated("segment_mean")(data, ids, num_segments=5)
    assert average[[1, 3, 4]].isnan().all()
    assert torch.equal(average[2], total[2] / 2)
    greatest = generated("segment_max")(data, ids, num_segments=5)
    assert torch.equal(greatest[[1, 3, 4]], torch.full((3, 4), -torch.inf).double())
    for result in (total, average, greatest):
        (grad,) = torch.autograd.grad(result[[0, 2]].sum(), data)
        assert grad.isfinite().all()


def test_what_belongs_to_no_segment_counts_for_nothing():
    ids, data = torch.tensor([2, -1, 0, 3, 2]), distinct((5, 4)).requires_grad_()
    total = generated("segment_sum")(data, ids, num_segments=3)
    assert torch.equal(total[0], data[2])
    assert total[1].abs().max() == 0
    torch.testing.assert_close(total[2], data[0] + data[4], **CLOSE)
    (grad,) = torch.autograd.grad(total.sum(), data)
    assert grad[:, 0].tolist() == [1, 0, 1, 0, 1]


@pytest.mark.parametrize("wrong", (6, -1, -7))
@pytest.mark.parametrize("name", ("gather", "take_along_dim", "index_select", "take"))
def test_a_position_out_of_range_is_an_error_and_never_wraps(name, wrong):
    """Where torch counts a negative position from the end, -1 is in range."""
    x = uniform((6,), -1, 1)
    if wrong == -1 and name.startswith("take"):
        wrong = -8
    given = {} if name == "take" else {"dim": 0}
    with pytest.raises((IndexError, RuntimeError)):
        generated(name)(x, torch.tensor([0, wrong, 2]), **given)


@pytest.mark.parametrize("mode", ("mean", "sum", "max"))
def test_a_row_of_a_bag_out_of_range_is_an_error(mode):
    with pytest.raises((IndexError, RuntimeError)):
        generated("embedding_bag")(
            torch.tensor([[0, 4], [1, 2]]), uniform((4, 3), -1, 1), mode=mode
        )


@pytest.mark.parametrize("name", ("causal_attention", "sliding_window_attention"))
def test_what_comes_later_is_not_read(name):
    given = {"window": 2} if name == "sliding_window_attention" else {}
    query, key, value = (uniform((4, size), -1, 1, size) for size in (3, 3, 2))
    clean = [x.clone().requires_grad_() for x in (query, key, value)]
    key[3], value[3] = 50, -70
    dirty = [x.clone().requires_grad_() for x in (query, key, value)]
    results = [generated(name)(*tensors, **given)[:3] for tensors in (clean, dirty)]
    assert torch.equal(*results)
    for a, b in zip(gradients(results[0], *clean), gradients(results[1], *dirty), strict=True):
        assert torch.equal(a[:3], b[:3])


def test_a_query_that_may_attend_to_nothing_gets_nothing():
    query, key, value = (uniform((3, size), -1, 1, size).requires_grad_() for size in (4, 4, 2))
    mask = torch.tensor([[1, 0, 1], [0, 0, 0], [0, 1, 1]], dtype=torch.bool)
    result = generated("masked_attention")(query, key, value, mask)
    assert result[1].tolist() == [0, 0]
    grads = gradients(result, query, key, value)
    assert all(grad.isfinite().all() for grad in grads)
    assert grads[0][1].abs().max() == 0


def test_large_scores_do_not_overflow():
    query, key, value = (100 * uniform((3, 4), -1, 1, seed).float() for seed in range(3))
    for name in ("scaled_dot_product_attention", "causal_attention"):
        result = generated(name)(query, key, value)
        causal = name == "causal_attention"
        expected = F.scaled_dot_product_attention(query, key, value, is_causal=causal)
        torch.testing.assert_close(result, expected)


def test_a_value_that_is_not_chosen_does_not_leak():
    mask = torch.tensor([True, False, True])
    x = torch.tensor([NAN, 1.0, torch.inf]).requires_grad_()
    result = generated("masked_fill")(x, mask, value=2.0)
    assert result.tolist() == [2, 1, 2]
    assert torch.autograd.grad((result**2).sum(), x)[0].tolist() == [0, 2, 0]
    other = torch.tensor([1.0, NAN, 3.0]).requires_grad_()
    result = generated("where")(~mask, x, other)
    assert result.tolist() == [1, 1, 3]
    for grad in torch.autograd.grad((result**2).sum(), (x, other)):
        assert grad.isfinite().all()


@pytest.mark.parametrize("stride", (1, 3))
def test_a_convolution_of_a_batch_of_nothing(stride):
    x, weight = uniform((0, 3, 7), -1, 1).requires_grad_(), uniform((5, 3, 2), -1, 1)
    weight.requires_grad_()
    result = generated("conv1d")(x, weight, stride=stride)
    assert result.shape == F.conv1d(x, weight, stride=stride).shape
    grads = torch.autograd.grad(result.sum(), (x, weight))
    assert grads[0].shape == x.shape
    assert grads[1].abs().max() == 0


f64 = torch.zeros(3, 4, dtype=torch.float64)
pair = torch.zeros(2, 1, 4, dtype=torch.float64)
WRONG = [
    ("softmax", (torch.zeros(()),), {"dim": 0}, ValueError, ["input", "axis", "0"]),
    ("softmax", (f64,), {"dim": -3}, (ValueError, IndexError), ["dim", "input", "-3"]),
    ("sum", (f64.long(),), {"dim": 0}, TypeError, ["input", "int64"]),
    ("exp", (f64.bool(),), {}, TypeError, ["input", "bool"]),
    ("matmul", (f64, f64), {}, ValueError, ["input", "other", "axis", "4", "3"]),
    ("matmul", (f64, f64.mT.long()), {}, TypeError, ["other", "int64"]),
    ("matmul", (f64, f64.mT.to("meta")), {}, ValueError, ["other", "meta", "cpu"]),
    ("matmul", (f64, f64[0]), {}, ValueError, ["other", "axes", "1"]),
    (
        "matmul",
        (f64[None].expand(2, 3, 4), f64.mT[None]),
        {},
        ValueError,
        ["input", "other", " ax", "2", "1"],
    ),
    ("transpose", (f64[0],), {}, ValueError, ["input", "axes", "1"]),
    ("maximum", (f64, f64[:, :1]), {}, ValueError, ["input", "other", " ax", "4", "1"]),
    ("maximum", (f64, f64[0]), {}, ValueError, ["other", "2 axes", "1"]),
    ("nll_loss", (f64, torch.zeros(4).long()), {}, ValueError, ["target", "input", "3", "4"]),
    ("nll_loss", (f64, torch.zeros(3)), {}, TypeError, ["target", "int64", "float32"]),
    ("nll_loss", (f64[0], torch.zeros(3).long()), {}, ValueError, ["input", "axes", "1"]),
    (
        *("nll_loss", (f64, torch.zeros(3).long(), torch.ones(3).double()), {}, ValueError),
        ["weight", "axis", "3", "4"],
    ),
    (
        *("nll_loss", (f64, torch.zeros(3).long()), {"reduction": "avg"}, ValueError),
        ["reduction", "avg", "mean", "sum", "none"],
    ),
    (
        *("linear_cross_entropy", (f64, f64.mT, torch.zeros(3).long()), {}, ValueError),
        ["input", "linear_weight", "axis", "4", "3"],
    ),
    (
        *("linear_cross_entropy", (f64, f64, torch.zeros(3).long(), torch.ones(4).double()), {}),
        *(ValueError, ["linear_bias", "axis", "3", "4"]),
    ),
    ("linear", (f64, f64.mT), {}, ValueError, ["input", "weight", "axis", "3", "4"]),
    ("linear", (f64, f64, f64[0]), {}, ValueError, ["bias", "axis", "3", "4"]),
    ("embedding", (f64, f64), {}, TypeError, ["input", "int64", "float64"]),
    ("embedding", (torch.zeros(2).long(), f64[0]), {}, ValueError, ["weight", "2 axes", "1"]),
    ("flatten", (f64[0],), {}, ValueError, ["input", "2 axes", "1"]),
    ("unflatten", (f64,), {"inner": 3}, ValueError, ["inner = 3", "4"]),
    ("unflatten", (f64,), {"inner": 0}, ValueError, ["inner", "positive", "0"]),
    ("concat", (f64, f64[:, :2]), {"dim": 0}, ValueError, ["A", "B", " ax", "4", "2"]),
    ("concat", (f64, f64[0]), {"dim": 0}, ValueError, ["B", "axes", "1"]),
    ("batch_norm", (f64[0],), {}, ValueError, ["input", "2 axes", "1"]),
    ("batch_norm", (f64, f64[:, 0]), {}, ValueError, ["weight", "axis", "3", "4"]),
    (
        *("batch_norm_inference", (f64, f64[0], f64[:, 0]), {}, ValueError),
        ["running_var", "axis", "3", "4"],
    ),
    ("layer_norm", (f64, f64[:, 0]), {}, ValueError, ["weight", " ax", "3", "4"]),
    ("rms_norm", (f64[0], f64), {}, ValueError, ["input", "ax", "1"]),
    ("cross_entropy", (f64, torch.zeros(4).long()), {}, ValueError, ["target", "3", "4"]),
    ("cross_entropy", (f64, f64), {}, TypeError, ["target", "int64", "float64"]),
    ("cross_entropy_probabilities", (f64, f64.mT), {}, ValueError, ["target", "3", "4"]),
    (
        *("softmax_regression", (f64, f64, f64[:, 0], torch.zeros(2).long()), {}, ValueError),
        ["targets", "features", "2", "3"],
    ),
    ("gather", (f64, f64), {"dim": 0}, TypeError, ["index", "int64", "float64"]),
    ("gather", (f64, f64.long()[:, :2]), {"dim": 0}, ValueError, ["index", "input", "4", "2"]),
    ("index_select", (f64, f64.long()), {"dim": 0}, ValueError, ["index", "1 axis", "2"]),
    ("group_norm", (f64,), {"num_groups": 3}, ValueError, ["num_groups = 3", "4"]),
    ("pixel_shuffle", (f64.expand(2, 6, 3, 4),), {"upscale_factor": 2}, ValueError, ["6"]),
    ("conv1d", (f64[None], f64.mT[None]), {}, ValueError, ["weight", "input", "3", "4"]),
    ("conv1d", (f64[None], f64), {}, ValueError, ["weight", "3 axes", "2"]),
    ("cdist", (f64, f64.mT), {}, ValueError, ["x1", "x2", "4", "3"]),
    ("causal_attention", (f64, f64.mT, f64), {}, ValueError, ["query", "key", "4", "3"]),
    ("masked_attention", (f64, f64, f64, f64), {}, TypeError, ["attn_mask", "bool", "float64"]),
    ("grouped_query_attention", (f64[:, None], pair, pair), {}, ValueError, ["query", "2", "3"]),
    ("embedding_bag", (f64.long(), f64), {"mode": "all"}, ValueError, ["mode", "mean", "all"]),
    ("repeat_interleave", (f64,), {"repeats": 0, "dim": 0}, ValueError, ["repeats", "0"]),
    ("softmax", (None,), {"dim": 0}, TypeError, ["input must be a tensor", "NoneType"]),
    ("softmax", ([[1.0, 2.0]],), {"dim": 0}, TypeError, ["input must be a tensor", "list"]),
    ("softmax", (f64.numpy(),), {"dim": 0}, TypeError, ["input must be a tensor", "ndarray"]),
    ("softmax", (f64,), {"dim": None}, TypeError, ["dim must be an integer", "None"]),
    ("softmax", (f64,), {"dim": 1.0}, TypeError, ["dim must be an integer", "1.0"]),
    ("softmax", (f64,), {"dim": 2}, ValueError, ["dim must be in [-2, 2)", "2"]),
    ("conv1d", (f64[None], f64[None], [0.5]), {}, TypeError, ["bias must be a tensor", "list"]),
    ("pad", (f64,), {"left": -2, "right": -3}, ValueError, ["index t"]),
    ("conv1d", (f64[None], f64[None]), {"stride": 0}, ValueError, ["stride must be positive", "0"]),
    ("conv1d", (f64[None], f64[None]), {"dilation": -1}, ValueError, ["dilation", "-1"]),
    ("conv1d", (f64[None], f64[None, :, :1]), {"padding": -1}, ValueError, ["padding must not"]),
    ("conv_transpose1d", (pair, pair[:1]), {"stride": 0}, ValueError, ["stride must be positive"]),
    ("unfold", (f64[0],), {"dimension": 0, "length": 2, "step": 0}, ValueError, ["step", "0"]),
    ("grouped_conv1d", (pair, pair), {"groups": 2.0}, TypeError, ["groups must be an integer"]),
    ("group_norm", (pair,), {"num_groups": True}, TypeError, ["num_groups", "integer", "True"]),
    ("group_norm", (pair,), {"num_groups": 1, "eps": "0"}, TypeError, ["eps must be a number"]),
    ("group_norm", (pair,), {"num_groups": 1, "eps": 10**400}, ValueError, ["eps is too large"]),
    ("layer_norm", (f64, f64[0]), {"eps": f64[0, 0]}, TypeError, ["eps", "a number", "tensor"]),
    ("sum", (f64,), {"dim": 0, "keepdim": 1}, TypeError, ["keepdim must be True or False", "1"]),
    ("mse_loss", (f64, f64), {"reduction": ["mean"]}, ValueError, ["reduction", "mean", "sum"]),
]


@each_row("name, tensors, parameters, error, words", WRONG)
def test_a_wrong_call_is_told_what_is_wrong(name, tensors, parameters, error, words):
    with pytest.raises(error) as caught:
        generated(name)(*tensors, **parameters)
    message = str(caught.value)
    assert message.startswith(f"{name}: ")
    for word in words:
        assert word in message, f"{word!r} is not in {message!r}"


@pytest.mark.parametrize("wrong", (4, -1))
@pytest.mark.parametrize("reduction", "mean sum none".split())
def test_a_class_out_of_range_is_an_error_and_never_wraps(wrong, reduction):
    T = torch.tensor([0, wrong, 2])
    with pytest.raises((IndexError, RuntimeError)):
        generated("nll_loss")(f64, T, reduction=reduction)
    with pytest.raises((IndexError, RuntimeError)):
        generated("cross_entropy")(f64, T, reduction=reduction)
    with pytest.raises((IndexError, RuntimeError)):
        generated("linear_cross_entropy")(f64, f64.repeat(2, 1)[:4], T, reduction=reduction)


@pytest.mark.parametrize("wrong", (3, -1))
def test_a_row_out_of_range_is_an_error_and_never_wraps(wrong):
    with pytest.raises((IndexError, RuntimeError)):
        generated("embedding")(torch.tensor([0, wrong]), f64)


def test_numbers_of_other_types_are_taken():
    """What is an integer or a number to Python: of numpy, fractions, names of integers."""
    x = uniform((2, 4, 5), -1, 1)
    one = generated("group_norm")(x, num_groups=2, eps=0.25)
    assert torch.equal(
        generated("group_norm")(x, num_groups=np.int64(2), eps=np.float32(0.25)), one
    )
    assert torch.equal(generated("group_norm")(x, num_groups=2, eps=Fraction(1, 4)), one)
    assert torch.equal(generated("softmax")(x, dim=np.int32(1)), generated("softmax")(x, dim=1))


def test_a_joint_function_is_told_what_is_wrong_too():
    step = derive.value_and_grad(derive.parse("op f(x[n], w[n]; c=2.0) -> y; y[n] = c*x[n]*w[n]"))
    x, w = uniform((3,), -1, 1), uniform((3,), -1, 1)
    for given, keywords, message in (
        ((x, None), {"G": x}, "f: w must be a tensor, not NoneType"),
        ((x, w), {"G": 1.0}, "f: G must be a tensor, not float"),
        ((x, w), {"G": x, "c": "2"}, "f: c must be a number, not '2'"),
    ):
        with pytest.raises(TypeError, match=re.escape(message)):
            step(*given, **keywords)


@each_row("shifts", (-(10**12), -13, -5, -1, 0, 4, 5, 6, 17))
@each_row("shape", ((3, 5, 4), (3, 0, 4)))
def test_a_roll_by_any_shift(shape, shifts):
    roll = generated("roll")
    x = uniform(shape, -1, 1)
    for dim in (0, 1, -1):
        assert_like(
            lambda x, d=dim: roll(x, shifts=shifts, dim=d),
            lambda x, d=dim: torch.roll(x, shifts, d),
            x,
        )


@pytest.mark.parametrize("left", (0, 1, 4, -2))
@pytest.mark.parametrize("right", (0, 7, -1))
def test_padding_of_nothing_and_less(left, right):
    assert_like(
        lambda x: generated("pad")(x, left=left, right=right, value=1.5, dim=1),
        lambda x: F.pad(x, (0, 0, left, right), value=1.5),
        uniform((3, 5, 4), -1, 1),
    )


@pytest.mark.parametrize("reduction", ("mean", "sum", "none"))
def test_a_smooth_l1_loss_of_beta_0_is_an_l1_loss(reduction):
    x, y = uniform((3, 4), -1, 1, 2), uniform((3, 4), -1, 1, 5)
    x[0, 0] = y[0, 0]
    assert_like(
        lambda x, y: generated("smooth_l1_loss")(x, y, beta=0, reduction=reduction),
        lambda x, y: F.smooth_l1_loss(x, y, beta=0, reduction=reduction),
        *(x, y),
    )


def test_a_number_that_torch_refuses_is_refused():
    x, y = uniform((3, 4), -1, 1, 2), uniform((3, 4), -1, 1, 5)
    target = torch.tensor([0, 3, 1])
    for name, given, others in (
        ("huber_loss", {"delta": 0.0}, (y,)),
        ("smooth_l1_loss", {"beta": -0.5}, (y,)),
        ("softshrink", {"lambd": -0.5}, ()),
        ("celu", {"alpha": 0.0}, ()),
        ("cross_entropy", {"label_smoothing": 1.5}, (target,)),
        ("triplet_margin_loss", {"margin": 0.0}, (y, y + 1)),
        ("cosine_similarity", {"eps": -0.5}, (y,)),
    ):
        ours, theirs = generated(name), getattr(F, name)
        (number,) = given
        with pytest.raises(ValueError, match=f"{name}: {number} must be "):
            ours(x, *others, **given)
        with pytest.raises((RuntimeError, ValueError)):
            theirs(x, *others, **given)


def test_negative_positions_count_from_the_end_where_they_do_in_torch():
    x = uniform((3, 5, 4), -1, 1)
    at = torch.tensor([[-1, 0, 4], [-5, 2, -3]])
    assert_like(lambda x: generated("take")(x.flatten(), at), lambda x: torch.take(x, at), x)
    index = positions(3, 2, 4, below=10) - 5
    assert_like(
        lambda x: generated("take_along_dim")(x, index, dim=1),
        lambda x: torch.take_along_dim(x, index, 1),
        x,
    )
    for position in (-5, -1, 4):
        assert_like(
            lambda x, n=position: generated("select")(x, index=n, dim=1),
            lambda x, n=position: x.select(1, n),
            x,
        )


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # dynamo's
def test_a_whole_number_is_given_to_compiled_code():
    from derive.generated.layer_norm import layer_norm

    compiled = torch.compile(layer_norm, fullgraph=True, backend="eager", dynamic=True)
    weight, x = torch.ones(2), torch.tensor([[1.0, 2.0], [3.0, 5.0]])
    for eps in (1, 2, 3, 0.5):
        torch.testing.assert_close(compiled(x, weight, eps=eps), layer_norm(x, weight, eps=eps))


@each_row("correction", (0, 1, 3, 4))
@each_row("shape", ((3, 2), (1, 2), (1, 2, 3)))
@each_row("equal", (False, True))
def test_a_variance_that_divides_by_no_positive_number(shape, correction, equal):
    """The first order, the graph for a second one, and forward mode are all the formula."""
    x = torch.full(shape, 2.0).double() if equal else uniform(shape, -1, 1)
    G = uniform(shape, -1, 1, 9)
    along = (0, *range(2, len(shape)))

    def formula(x):
        centered = x - x.mean(along, keepdim=True)
        count = x.numel() // x.shape[1]
        variance = centered.square().sum(along, keepdim=True) / (count - correction)
        return centered * (variance + 1e-5).rsqrt()

    def batch_norm(x):
        return generated("batch_norm")(x, correction=correction)

    assert_like(batch_norm, formula, x)
    _, expected = torch.func.vjp(formula, x)
    ours = x.clone().requires_grad_()
    (found,) = torch.autograd.grad(batch_norm(ours), ours, G, create_graph=True)
    torch.testing.assert_close(found, expected(G)[0], **CLOSE, equal_nan=True)
    found, expected = (torch.func.jvp(f, (x,), (G,)) for f in (batch_norm, formula))
    torch.testing.assert_close(found, expected, **CLOSE, equal_nan=True)


def test_positions_of_a_trace_have_no_values():
    from torch.fx.experimental.proxy_tensor import make_fx

    x, y, index = uniform((4, 3), -1, 1), uniform((2, 3), -1, 1), torch.tensor([3, 1])
    traced = make_fx(lambda x, i, y: generated("index_add")(x, i, y, dim=0))(x, index, y)
    for at in (index, torch.tensor([0, 0])):
        torch.testing.assert_close(traced(x, at, y), x.index_add(0, at, y))


def test_a_distance_from_nan_is_nan():
    x = torch.tensor([[NAN, 1.0], [1.0, 2.0], [4.0, 6.0]], dtype=torch.float64)
    y = torch.tensor([[1.0, 2.0], [5.0, 3.0]], dtype=torch.float64)
    torch.testing.assert_close(generated("cdist")(x, y), torch.cdist(x, y), equal_nan=True)
    assert gradients(generated("cdist")(x.requires_grad_(), y), x)[0][0].isnan().all()


@each_row("reduction", ("mean", "sum", "none"))
def test_a_pair_that_is_neither_alike_nor_apart_has_no_loss(reduction):
    x, y, target = uniform((3, 4), 0, 1), uniform((3, 4), 0, 1, 2), torch.tensor([1.0, -1.0, 0.0])
    given = {"margin": 0.1, "reduction": reduction}
    assert_like(
        lambda x, y: generated("cosine_embedding_loss")(x, y, target.double(), **given),
        lambda x, y: F.cosine_embedding_loss(x, y, target.double(), **given),
        *(x, y),
    )


@each_row("order", (0, -1, float("inf"), NAN))
def test_a_norm_of_another_than_a_finite_positive_order_is_refused(order):
    x = torch.ones(2, 3)
    with pytest.raises(ValueError, match="ord must be"):
        generated("vector_norm")(x, ord=order, dim=1)
    with pytest.raises(ValueError, match="norm_type must be"):
        generated("lp_pool1d")(x[None], norm_type=order, kernel_size=2, stride=1)
