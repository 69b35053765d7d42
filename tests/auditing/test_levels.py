"""What is judged, at which inputs, and how wrong it is: wrong, fragile or a remark."""

import os
import signal
import subprocess
import sys

import pytest
import torch
from kit.audited import audited
from kit.right import RIGHT
from torch.autograd import Function

import derive


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def kept(ctx, *tensors):
    ctx.save_for_backward(*tensors)


def area(ctx, u, v):
    kept(ctx, u, v)
    return u[:, 0] * v[:, 1] - u[:, 1] * v[:, 0]


def area_back(ctx, G):
    u, v = ctx.saved_tensors
    du = torch.stack([G * v[:, 1], -G * v[:, 0]], 1)
    return du, torch.stack([-G * u[:, 1], G * u[:, 0]], 1)


def test_an_axis_that_is_read_by_constants_stays_short():
    assert audited(area, area_back, torch.randn(6, 2), torch.randn(6, 2)).verdict == "right"


def test_the_halves_of_an_axis_stay_halves():
    def gated(ctx, x):
        kept(ctx, x)
        a, b = x.chunk(2, -1)
        return a.tanh() * b

    def back(ctx, G):
        a, b = ctx.saved_tensors[0].chunk(2, -1)
        t = a.tanh()
        return torch.cat([G * b * (1 - t * t), G * t], -1)

    assert audited(gated, back, torch.randn(5, 10)).verdict == "right"


def test_a_size_that_is_one_less_stays_so():
    def filtered(ctx, x, taps, past):
        kept(ctx, x, taps, past)
        return (torch.cat([past, x]).unfold(0, len(taps), 1) * taps).sum(-1)

    def back(ctx, G):
        x, taps, past = ctx.saved_tensors
        both = torch.cat([past, x])
        d = torch.zeros_like(both)
        for k, tap in enumerate(taps):
            d[k : k + len(x)] += G * tap
        dtaps = (both.unfold(0, len(taps), 1) * G[:, None]).sum(0)
        return d[len(past) :], dtaps, d[: len(past)]

    assert audited(filtered, back, torch.randn(9), torch.randn(6), torch.randn(5)).right


def test_a_target_stays_below_the_number_of_classes():
    def back(ctx, G):
        x, here, t = ctx.saved_tensors
        d = 2 * x.gather(-1, t[..., None]) * (G * here)[..., None]
        return torch.zeros_like(x).scatter(-1, t[..., None], d), None

    def forward(ctx, x, t):
        here = t < x.shape[-1]
        place = torch.where(here, t, 0)
        kept(ctx, x, here, place)
        return torch.where(here, x.gather(-1, place[..., None])[..., 0] ** 2, 0.0)

    report = audited(forward, back, torch.randn(4, 3, 7), torch.randint(0, 7, (4, 3)))
    assert report.verdict == "right", str(report)


def test_ascending_integers_ascend_at_other_sizes():
    def sums(ctx, x, segment):
        ctx.save_for_backward(segment)
        last = torch.cat([segment[1:] != segment[:-1], torch.tensor([True])])
        total = x.cumsum(0)[last]
        return torch.cat([total[:1], total.diff()])

    def back(ctx, G):
        (segment,) = ctx.saved_tensors
        return G[segment], None

    segment = torch.tensor([0, 0, 0, 1, 1, 1, 2])
    assert audited(sums, back, torch.randn(7), segment).verdict == "right"


def mean_back(ctx, G):
    keep, count = ctx.saved_tensors
    return keep * (G / count)[:, None], None


def mean_of_rows(ctx, x, keep):
    kept(ctx, keep, keep.sum(-1))
    return (x * keep).sum(-1) / keep.sum(-1).clamp(min=1)


def loss_back(ctx, G):
    (target,) = ctx.saved_tensors
    return (target >= 0) * (G / (target >= 0).sum()), None


def mean_of_targets(ctx, x, target):
    kept(ctx, target)
    return (x * (target >= 0)).sum() / (target >= 0).sum().clamp(min=1)


@pytest.mark.parametrize(
    ("forward", "back", "given", "said"),
    [
        (mean_of_rows, mean_back, torch.ones(3, 2) > 0, "where a row of keep holds nowhere"),
        (
            mean_of_targets,
            loss_back,
            torch.tensor([[1, -9], [0, 2], [-9, 1]]),
            "where target is -9",
        ),
    ],
)
def test_a_mask_also_holds_nowhere_in_a_row_and_markers_are_everywhere(forward, back, given, said):
    report = audited(forward, back, torch.randn(3, 2), given)
    assert report.verdict == "fragile"
    assert said in report.rows[0].fragile


def read_rows(ctx, x, v, rows):
    kept(ctx, rows, x)
    return x[rows] + v


def read_back(ctx, G):
    rows, x = ctx.saved_tensors
    grad = torch.zeros_like(x)
    grad[rows] = G
    return grad, G, None


def write_rows(ctx, x, v, rows):
    kept(ctx, rows)
    return x.index_copy(0, rows, v)


def write_back(ctx, G):
    (rows,) = ctx.saved_tensors
    return G.index_fill(0, rows, 0), G[rows], None


@pytest.mark.parametrize(
    ("forward", "back", "verdict"),
    [(read_rows, read_back, "fragile"), (write_rows, write_back, "right")],
)
def test_distinct_integers_repeat_where_autograd_is_right(forward, back, verdict):
    """Of two writes to one row, one is hidden, and there autograd is not."""
    given = torch.randn(6, 2), torch.randn(3, 2), torch.tensor([1, 3, 4])
    report = audited(forward, back, *given)
    assert report.verdict == verdict
    assert verdict == "right" or "where rows repeats a number" in report.rows[0].fragile


def test_numbers_other_than_the_first_repeat_too():
    def forward(ctx, x, rows):
        kept(ctx, rows, x)
        return x[rows[1:]]

    def back(ctx, G):
        rows, x = ctx.saved_tensors
        return torch.zeros_like(x).index_copy(0, rows[1:], G), None

    report = audited(forward, back, torch.randn(6, 2), torch.tensor([1, 3, 4, 5]))
    assert report.verdict == "fragile" and "rows repeats a number" in report.rows[0].fragile


def test_equal_elements_are_no_whole_numbers():
    def square(ctx, x):
        return x * x

    def back(ctx, G):
        return 2 * G

    assert audited(square, back, torch.ones(3, 4)).verdict == "wrong"


def test_a_symmetric_gradient_of_a_symmetric_matrix_is_right():
    def quadratic(ctx, A, b):
        kept(ctx, A, b)
        return b @ A.tril() @ b

    def back(ctx, G):
        A, b = ctx.saved_tensors
        d = torch.outer(b, b).tril()
        return G * (d + d.mT) / 2, G * (A.tril() + A.tril().mT) @ b

    A = torch.randn(5, 5)
    assert audited(quadratic, back, A + A.mT, torch.randn(5)).right


@pytest.mark.parametrize("name", ["RotaryEqualHalves", "RotaryEqualPairs"])
def test_columns_of_a_table_that_are_equal_stay_equal(name):
    (entry,) = (e for e in RIGHT if e.name == name)
    report = derive.audit(entry.function, *entry.example())
    assert report.verdict == "right", str(report)


@pytest.mark.parametrize("given", ["module", "list", "method"])
def test_parameters_of_a_module_are_those_of_the_module(given):
    class Again(Function):
        @staticmethod
        def forward(ctx, x, module, *weights):
            ctx.module = module[0] if given == "list" else module
            kept(ctx, x)
            return ctx.module(x)

        @staticmethod
        def backward(ctx, G):
            with torch.enable_grad():
                x = ctx.saved_tensors[0].detach().requires_grad_()
                y = ctx.module(x)
            own = getattr(ctx.module, "__self__", ctx.module)
            dx, *rest = torch.autograd.grad(y, (x, *own.parameters()), G)
            return dx, None, *rest

    layer = torch.nn.Linear(4, 3).double()
    module = {"module": layer, "list": [layer], "method": layer.forward}[given]
    x = torch.randn(5, 4, dtype=torch.float64)
    report = derive.audit(Again, x, module, *layer.parameters())
    assert report.verdict == "right" and len(report.rows) == 3
    assert not any("does not read" in text for text in report.remarks)


def diagonal_sum(ctx, x):
    ctx.shape = x.shape
    return torch.diagonal(x).sum()


def diagonal_back(ctx, G):
    n, m = ctx.shape
    d = torch.zeros(n * m, dtype=G.dtype)
    d[:: m + 1] = G
    return d.view(n, m)


@pytest.mark.parametrize("shape", [(3, 3), (3, 4), (2, 4)])
def test_other_proportions_than_the_examples_are_fragile(shape):
    report = audited(diagonal_sum, diagonal_back, torch.randn(*shape))
    assert report.verdict == "fragile" and report.right
    assert "at other proportions" in report.rows[0].fragile


def test_a_word_that_the_code_does_not_name_is_fragile():
    def huber(ctx, x, y, reduction):
        kept(ctx, x - y)
        loss = torch.where((x - y).abs() < 1, (x - y) ** 2 / 2, (x - y).abs() - 1 / 2)
        return loss.mean() if reduction == "mean" else loss.sum()

    def back(ctx, G):
        (e,) = ctx.saved_tensors
        d = G * e.clamp(-1, 1) / e.numel()
        return d, -d, None

    report = audited(huber, back, torch.randn(3, 4), torch.randn(3, 4), "mean")
    assert report.verdict == "fragile" and "reduction='other'" in report.rows[0].fragile


def test_the_proportions_of_the_example_are_wrong():
    assert audited(diagonal_sum, diagonal_back, torch.randn(5, 2)).verdict == "wrong"


def test_a_mask_that_is_missed_by_large_values_of_one_input_is_wrong():
    def clamped(ctx, x, scale):
        kept(ctx, x, scale)
        return torch.clamp(x / scale, -50, 50)

    def back(ctx, G):
        x, scale = ctx.saved_tensors
        return G / scale, -(G * x / scale**2).sum()

    report = audited(clamped, back, torch.randn(4, 3), torch.tensor(2.0))
    assert report.verdict == "wrong"
    assert "where x is 100 times as large" in report.rows[0].wrong


def test_a_sum_that_approximates_an_integral_is_fragile_where_it_oscillates():
    def midpoints(ctx, a, b):
        kept(ctx, a, b)
        places = (torch.arange(200, dtype=a.dtype) + 0.5) / 200
        return (b - a) * (a + (b - a) * places[:, None]).sin().mean(0)

    def back(ctx, G):
        a, b = ctx.saved_tensors
        return -G * a.sin(), G * b.sin()

    report = audited(midpoints, back, *0.1 * torch.randn(2, 3))
    assert report.verdict == "fragile" and report.right
    assert "times as large" in report.rows[1].fragile


def test_an_error_of_a_layout_is_fragile_and_says_the_shapes():
    def flat(ctx, x):
        kept(ctx, x)
        return x * x

    def back(ctx, G):
        (x,) = ctx.saved_tensors
        return 2 * x * G.view(-1).view(x.shape)

    report = audited(flat, back, torch.randn(4, 3))
    assert report.verdict == "fragile"
    assert "the cotangent is not contiguous (x: [4, 3])" in report.fragile[0]


def square(ctx, x):
    kept(ctx, x)
    return x * x


def test_a_process_that_dies_is_a_finding():
    def back(ctx, G):
        (x,) = ctx.saved_tensors
        if not x.is_contiguous():
            os.kill(os.getpid(), signal.SIGSEGV)
        return 2 * x * G

    report = audited(square, back, torch.randn(4, 3))
    assert report.verdict == "fragile"
    assert "dies (SIGSEGV) where inputs are not contiguous" in report.fragile[0]


def test_a_process_that_hangs_is_a_finding():
    def back(ctx, G):
        (x,) = ctx.saved_tensors
        while not x.is_contiguous():
            pass
        return 2 * x * G

    report = audited(square, back, torch.randn(4, 3), seconds=3)
    assert "does not end within 3 s where inputs are not contiguous" in report.fragile[0]


def test_a_second_call_that_differs_is_named_so():
    def forward(ctx, x):
        ctx.slope = 3 * x**2
        return x**3

    def back(ctx, G):
        ctx.slope *= G
        return ctx.slope

    report = audited(forward, back, torch.randn(4, 3))
    assert report.rows[0].wrong.startswith("a second call of backward gives another gradient")
    assert audited(forward, back, torch.randn(4, 3), once=True).right


def moved_rows(ctx, x, places, rows):
    ctx.rows = rows
    kept(ctx, x, places)
    return x @ rows.T


def move_rows(ctx, G):
    x, places = ctx.saved_tensors
    dx = G @ ctx.rows
    ctx.rows[places] = 0.9 * ctx.rows[places] + 0.1 * x
    return dx, None, None


def test_a_state_may_change_in_place_and_judged_once_in_backward_too():
    calls = torch.randn(3, 4, requires_grad=True), torch.tensor([0, 4, 2]), torch.randn(5, 4)
    twice = audited(moved_rows, move_rows, *calls)
    assert twice.verdict == "wrong" and "--once judges the first call alone" in str(twice)
    once = audited(moved_rows, move_rows, *calls, once=True)
    assert once.verdict == "right"
    assert "changed in place, without a gradient: rows" in once.remarks


def test_an_input_on_ctx_and_autocast_are_remarks():
    def forward(ctx, x, w):
        ctx.x = x
        kept(ctx, w)
        return x @ w

    def back(ctx, G):
        (w,) = ctx.saved_tensors
        return G @ w.mT, ctx.x.mT @ G

    report = audited(forward, back, torch.randn(4, 3), torch.randn(3, 5))
    assert report.verdict == "right"
    assert any("x is kept as ctx.x" in text for text in report.remarks)
    assert any("under autocast" in text for text in report.remarks)


def entropy(ctx, x, t):
    kept(ctx, x, t)
    return torch.nn.functional.softplus(x) - x * t


def entropy_back(ctx, G):
    x, t = ctx.saved_tensors
    return G * (torch.sigmoid(x) - t), None


def test_none_says_a_constant_unless_a_gradient_is_wanted():
    x, t = torch.randn(3, 4), torch.rand(3, 4)
    report = audited(entropy, entropy_back, x, t)
    assert report.verdict == "right" and "backward returns None" in report.rows[1].constant
    wanted = audited(entropy, entropy_back, x.requires_grad_(), t.requires_grad_())
    assert [row.verdict for row in wanted.rows] == ["right", "wrong"]
    told = audited(entropy, entropy_back, x, t.detach())
    assert told.rows[1].constant == "as given"


def test_a_constant_is_named():
    def back(ctx, G):
        return entropy_back(ctx, G)[0], torch.zeros_like(G)

    x, t = torch.randn(3, 4), torch.rand(3, 4)
    assert audited(entropy, back, x, t).verdict == "wrong"
    assert audited(entropy, back, x, t, constants=["t"]).verdict == "right"
    with pytest.raises(derive.DeriveError, match="forward has no argument target; it has x, t"):
        audited(entropy, back, x, t, constants=["target"])


def test_an_input_that_may_need_no_gradient_is_a_constant():
    def forward(ctx, x, scale):
        if ctx.needs_input_grad[0]:
            raise RuntimeError("no gradient in x")
        kept(ctx, x * (-x * scale).exp())
        return (-x * scale).exp()

    def back(ctx, G):
        return None, -(G * ctx.saved_tensors[0]).sum()

    report = audited(forward, back, torch.rand(3, 4), torch.tensor(0.7))
    assert [row.verdict for row in report.rows] == ["constant", "right"]


def test_float32_inside_is_judged_as_float32():
    def forward(ctx, x):
        y = (9 * x).float()
        y -= y.amax(1, keepdim=True)
        p = y.exp_().div_(y.sum(1, keepdim=True))
        kept(ctx, p)
        return p.to(x.dtype)

    def back(ctx, G):
        p = ctx.saved_tensors[0].to(G.dtype)
        return 9 * p * (G - (G * p).sum(1, keepdim=True))

    assert audited(forward, back, torch.randn(4, 6)).right


def test_a_root_by_bisection_is_judged_by_differences():
    def forward(ctx, x, newton):
        low, high = torch.zeros_like(x), x + 1
        for _ in range(60):
            middle = (low + high) / 2
            less = middle**3 < x
            low, high = torch.where(less, middle, low), torch.where(less, high, middle)
        y = (low + high) / 2
        y = y - (y**3 - x) / (3 * y**2) if newton else y
        kept(ctx, y)
        return y

    def back(ctx, G):
        return G / (3 * ctx.saved_tensors[0] ** 2), None

    for newton in (True, False):
        assert audited(forward, back, torch.rand(3, 4) + 0.5, newton).verdict == "right"


@pytest.mark.parametrize(("factor", "verdict"), [(1, "right"), (2, "wrong")])
def test_a_part_of_a_row_keeps_its_length(factor, verdict):
    # A place and a rotation, whose inverse is its conjugate.
    def forward(ctx, pose, x):
        place, turn = pose[:, :2], pose[:, 2:]
        kept(ctx, turn, x)
        c, s = turn.unbind(-1)
        turned = torch.stack([c * x[:, 0] - s * x[:, 1], s * x[:, 0] + c * x[:, 1]], -1)
        return place + turned / turn.norm(dim=-1, keepdim=True)

    def back(ctx, G):
        turn, x = ctx.saved_tensors
        c, s = turn.unbind(-1)
        turned = torch.stack([c * x[:, 0] - s * x[:, 1], s * x[:, 0] + c * x[:, 1]], -1)
        angle = factor * (G[:, 1] * turned[:, 0] - G[:, 0] * turned[:, 1])
        by_turn = torch.stack([-angle * s, angle * c], -1)
        by_x = torch.stack([c * G[:, 0] + s * G[:, 1], c * G[:, 1] - s * G[:, 0]], -1)
        return torch.cat([G, by_turn], -1), by_x

    turn = torch.nn.functional.normalize(torch.randn(5, 2, dtype=torch.float64), dim=-1)
    pose = torch.cat([torch.randn(5, 2, dtype=torch.float64), turn], -1)
    assert audited(forward, back, pose, torch.randn(5, 2)).verdict == verdict


@pytest.mark.parametrize(("power", "verdict"), [(1, "wrong"), (-1, "fragile")])
def test_a_root_beyond_the_bounds_of_its_bisection_is_fragile(power, verdict):
    def forward(ctx, y):
        low, high = torch.full_like(y, -2.0), torch.full_like(y, 2.0)
        for _ in range(50):
            middle = (low + high) / 2
            less = middle**3 + middle < y
            low, high = torch.where(less, middle, low), torch.where(less, high, middle)
        kept(ctx, low)
        return low

    def back(ctx, G):
        return G * (3 * ctx.saved_tensors[0] ** 2 + 1) ** power

    report = audited(forward, back, torch.tensor([0.01, 1.0, -2.0]))
    assert report.verdict == verdict


def test_a_buffer_that_requires_a_gradient_is_judged():
    def forward(ctx, x):
        kept(ctx, x)
        y = x.new_zeros(x.shape, requires_grad=x.requires_grad)
        for n in range(len(x)):
            y[n : n + 1] = x[n : n + 1].sin()
        return y

    def back(ctx, G):
        return G * ctx.saved_tensors[0].cos()

    assert audited(forward, back, torch.randn(3, 4)).verdict == "right"


def test_a_jump_has_no_gradient():
    def forward(ctx, x, t):
        kept(ctx, t)
        return (x > t).to(x.dtype)

    def back(ctx, G):
        return torch.zeros_like(G), torch.zeros_like(ctx.saved_tensors[0])

    assert audited(forward, back, torch.randn(3, 5), torch.rand(5)).verdict == "right"


def test_a_second_backward_that_is_nan_is_called_nan():
    class Rooted(Function):
        @staticmethod
        def forward(ctx, x):
            y = x.clamp(min=0) ** 2
            kept(ctx, y)
            return y

        @staticmethod
        def backward(ctx, G):
            return G * 2 * ctx.saved_tensors[0].sqrt()

    report = derive.audit(Rooted, torch.randn(3, 4))
    assert report.second_order == "nan"
    assert any("the second backward has nan" in text for text in report.remarks)


DROPPED = {  # the reading of the forward: what is said of the cotangent of its second output
    "not read": (torch.linalg.inv, "the cotangent grad_square (of output 1) is not read: that "),
    "read": (lambda x: x.sort(-1)[0].cumsum(-1), "the term 2·grad_square[n,c]·x[n,c] is missing"),
}


@pytest.mark.parametrize(("first", "told"), DROPPED.values(), ids=DROPPED)
def test_the_cotangent_that_is_dropped_is_named(first, told):
    def forward(ctx, x):
        kept(ctx, x)
        return first(x), x * x

    def back(ctx, grad_first, grad_square):
        return torch.func.vjp(first, ctx.saved_tensors[0])[1](grad_first)[0]

    assert audited(forward, back, torch.randn(4, 4)).rows[0].wrong.startswith(told)


def test_a_cotangent_and_an_adjoint_have_two_names():
    def forward(ctx, x):
        h = x * x + 1
        kept(ctx, x, h)
        return torch.sin(h) * h, h

    def back(ctx, grad_y, grad_h):
        x, h = ctx.saved_tensors
        return 2 * x * (grad_y * (torch.cos(h) * h + torch.sin(h)) + 3 * grad_h)

    for line in audited(forward, back, torch.randn(3, 5)).formulas:
        left, _, right = line.partition(" = ")
        assert left not in right


def test_a_counterexample_stands_at_no_tie():
    def forward(ctx, x, low):
        kept(ctx, x)
        ctx.low = low
        return torch.max(x, torch.full_like(x, low))

    def back(ctx, G):
        return ((ctx.saved_tensors[0] >= ctx.low) | (G < 0)) * G, None

    report = audited(forward, back, torch.randn(3, 5), 1.0)
    assert report.verdict == "wrong"
    assert "# gives" in report.counterexample and "0.5" not in report.counterexample


def test_a_term_is_named_beside_an_axis_of_size_one():
    def forward(ctx, w, s):
        kept(ctx, w, s)
        return torch.floor((w / s).clamp(-4, 3) + 0.5) * s

    def back(ctx, G):
        w, s = ctx.saved_tensors
        q = w / s
        low, high = (q < -4).to(q.dtype), (q > 3).to(q.dtype)
        d = low * -4 + high * 3 + (1 - low - high) * (torch.floor(q + 0.5) - q)
        return G, (d * G).sum().reshape(s.shape)

    def meant(w, s):
        v = (w / s).clamp(-4, 3)
        return ((torch.floor(v + 0.5) - v).detach() + v) * s

    for s in (torch.tensor(0.5), torch.tensor([0.5])):
        row = audited(forward, back, torch.randn(4, 3) * 3, s, reference=meant).rows[0]
        assert "is missing" in row.wrong


def test_a_statistic_of_rows_that_is_laid_over_columns():
    """Of a square matrix it runs and is wrong; of another one it raises, and the shape is said."""

    def centred(ctx, x, gain):
        spread = x.square().sum(1).sqrt()
        kept(ctx, x, gain, spread)
        return x / spread[:, None] * gain

    def back(ctx, G):
        x, gain, spread = ctx.saved_tensors
        along = (G * gain * x).sum(1) / spread**3
        return G * gain / spread[:, None] - x * along, (G * x / spread[:, None]).sum(0)

    report = audited(centred, back, torch.randn(5, 5), torch.randn(5))
    x, gain = report.rows
    assert report.verdict == "wrong" and x.verdict == "wrong"
    assert gain.verdict == "right" or "x: [" in gain.fragile
    assert any("x: [" in text for text in report.fragile), str(report)


@pytest.mark.parametrize("seen", ["kept", "attribute"])
def test_a_cotangent_that_no_line_reads_is_named(seen):
    def forward(ctx, x):
        slope = 1 / (1 + x**4).sqrt().cumsum(-1)
        if seen == "kept":
            kept(ctx, slope)
        ctx.slope = slope
        return slope.log().sum(-1)

    def back(ctx, grad_total):
        slope = ctx.saved_tensors[0] if seen == "kept" else ctx.slope
        return slope * 1.5

    wrong = audited(forward, back, torch.rand(3, 4) + 0.5).rows[0].wrong
    assert "grad_total" in wrong and "not read" in wrong


def test_a_gradient_that_is_lost_in_a_copy_says_the_layout():
    """A view of a leaf wants a gradient; what reshape copies in forward does not."""

    def forward(ctx, x, w):
        rows = x.reshape(-1, x.shape[-1])
        kept(ctx, rows, w)
        ctx.shape = x.shape
        return rows.square() @ w

    def back(ctx, G):
        rows, w = ctx.saved_tensors
        d = (2 * G[:, None] * rows * w).reshape(ctx.shape) if rows.requires_grad else None
        return d, rows.square().mT @ G

    report = audited(forward, back, torch.randn(2, 3, 4), torch.randn(4))
    assert report.verdict == "wrong"
    assert "not contiguous" in report.rows[0].wrong


_PRINTS = """
import torch, derive

class Added(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, past):
        y = torch.cat([past, x], 1)
        y[:, : x.shape[1]] += x
        return y

    @staticmethod
    def backward(ctx, G):
        cut = G.shape[1] // 2
        return G[:, cut:] + G[:, :cut], G[:, :cut]

print(derive.audit(Added, torch.randn(3, 4), torch.randn(3, 4)).verdict)
"""


def test_nothing_is_printed_beside_the_report(tmp_path):
    """Torch logs each operation that fails while it is traced at other sizes."""
    path = tmp_path / "added.py"
    path.write_text(_PRINTS)
    run = subprocess.run([sys.executable, path], capture_output=True, text=True, check=True)
    assert run.stderr == "" and run.stdout.strip() in ("right", "fragile")


def test_an_error_of_backward_is_told_once():
    def forward(ctx, x, gain):
        kept(ctx, x, gain)
        return x * gain

    def back(ctx, G):
        x, gain = ctx.saved_tensors
        return (G * x).sum(1) * gain, (G * x).sum(0)

    x, gain = audited(forward, back, torch.randn(4, 3), torch.randn(3)).rows
    assert "x: [4, 3]" in x.wrong
    assert gain.wrong == "backward fails as for x"


def test_an_expanded_cotangent_stays_expanded():
    """One that reads the memory of its cotangent, as a collective does, is wrong after sum()."""

    def back(ctx, G):
        (x,) = ctx.saved_tensors
        G = torch.zeros_like(G) if G.stride(0) == 0 else G
        return 2 * x * G

    report = audited(square, back, torch.randn(4, 3))
    assert "where the cotangent is expanded" in report.rows[0].wrong
    assert "second call" not in report.rows[0].wrong


def test_an_argument_that_forward_does_not_read_is_a_remark():
    """Such as a loss whose gradient is put in beside what a layer gives."""

    def forward(ctx, x, loss):
        kept(ctx, loss)
        return x * 1

    def back(ctx, G):
        return G, torch.ones_like(ctx.saved_tensors[0])

    report = audited(forward, back, torch.randn(4, 3), torch.randn(()))
    assert report.verdict == "right"
    assert any("forward does not read it" in text for text in report.remarks)


def test_a_sparse_tensor_is_a_constant():
    def forward(ctx, graph, x):
        ctx.graph = graph
        return graph @ x

    def back(ctx, G):
        return None, ctx.graph.t() @ G

    graph = torch.tensor([[0.0, 2.0, 0.0], [1.5, 0.0, 0.5]]).to_sparse()
    report = audited(forward, back, graph, torch.randn(3, 4))
    assert [row.input for row in report.rows] == ["x"] and report.right


def test_a_reference_whose_values_jump_is_no_slope_at_ties():
    def step(ctx, x):
        kept(ctx, x)
        return (x >= 0).to(x.dtype)

    def back(ctx, G):
        (x,) = ctx.saved_tensors
        return G * torch.where(x.abs() < 1, 1.0, 0.1)

    def meant(x):
        smooth = torch.where(x.abs() < 1, x, 0.1 * x)
        return (x >= 0).to(x.dtype).detach() + smooth - smooth.detach()

    report = audited(step, back, torch.randn(3, 6), reference=meant)
    assert report.verdict == "right" and "grows alike" not in str(report)


def hardened(ctx, x):
    kept(ctx, x)
    return torch.nn.functional.hardswish(x)


def hardened_back(ctx, G):
    (x,) = ctx.saved_tensors
    return G * torch.where(x < -3, 0, torch.where(x > 2, 1.0, x / 3 + 0.5))


def bounded(ctx, x):
    kept(ctx, x)
    return x.exp()


def bounded_back(ctx, G):
    return G * ctx.saved_tensors[0].clamp(max=5).exp()


def ranked(ctx, x, w):
    y, places = x.sort()
    kept(ctx, places, w, y)
    return (y * w).sum()


def ranked_back(ctx, G):
    places, w, y = ctx.saved_tensors
    return (G * w)[places], G * y


def smoothed(ctx, x, amount=0.0):
    kept(ctx, x)
    return x * x * (1 - amount)


def smoothed_back(ctx, G):
    return 2 * ctx.saved_tensors[0] * G, None


def labelled(ctx, x, target, ignored=-100):
    kept(ctx, x, target)
    return torch.nn.functional.cross_entropy(x, target, ignore_index=ignored, reduction="sum")


def labelled_back(ctx, G):
    x, target = ctx.saved_tensors
    return G * (x.softmax(1) - torch.nn.functional.one_hot(target.clamp(min=0), 5)), None, None


UNLIKE_THE_EXAMPLE = {
    "another bound": (hardened, hardened_back, ["x"], "fragile"),
    "a bound that the forward lacks": (bounded, bounded_back, ["x"], "wrong"),
    "an order": (ranked, ranked_back, ["row", "weights"], "wrong"),
    "a flag of 0": (smoothed, smoothed_back, ["x"], "fragile"),
    "labels that are ignored": (labelled, labelled_back, ["x", "labels"], "fragile"),
}


@pytest.mark.parametrize("name", UNLIKE_THE_EXAMPLE)
def test_a_mistake_that_the_example_hides_is_found(name):
    forward, back, given, verdict = UNLIKE_THE_EXAMPLE[name]
    examples = {
        "x": torch.randn(3, 5),
        "row": torch.tensor([0.5, -0.5, 1.0, 2.0]),  # its order is its own inverse
        "weights": torch.randn(4),
        "labels": torch.tensor([4, 0, 2]),
    }
    assert audited(forward, back, *(examples[n] for n in given)).verdict == verdict
