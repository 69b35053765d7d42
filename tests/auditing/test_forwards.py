"""Right Functions whose forwards are not plain torch code of any inputs."""

import re

import pytest
import torch
from kit.audited import audited
from kit.seeded import seeded

import derive

PLACES = torch.tensor([[3, 0, 1, 2], [1, 3, 2, 0]])


class MaskedSoftmax(torch.autograd.Function):
    """Writes over what autograd would need."""

    @staticmethod
    def forward(ctx, x, mask):
        y = torch.softmax(x, -1)
        y.masked_fill_(mask, 0)
        ctx.save_for_backward(x, mask)
        return y

    @staticmethod
    def backward(ctx, g):
        x, mask = ctx.saved_tensors
        y, g = torch.softmax(x, -1), g.masked_fill(mask, 0)
        return y * (g - (g * y).sum(-1, keepdim=True)), None


class Reciprocal(torch.autograd.Function):
    """Writes into a tensor by out=."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.reciprocal(x, out=torch.empty_like(x))

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return -g / x**2


class Single(torch.autograd.Function):
    """Takes float32 alone."""

    @staticmethod
    def forward(ctx, x):
        if x.dtype is not torch.float32:
            raise TypeError("float32")
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * x.cos()


class Reorder(torch.autograd.Function):
    """Is given the inverse of an order beside it."""

    @staticmethod
    def forward(ctx, x, order, undone):
        ctx.save_for_backward(undone)
        return x.gather(-1, order)

    @staticmethod
    def backward(ctx, g):
        (undone,) = ctx.saved_tensors
        return g.gather(-1, undone), None, None


class ReorderBeside(torch.autograd.Function):
    """Is given the inverse of an order, beside an axis of another size."""

    @staticmethod
    def forward(ctx, x, w, order, undone):
        ctx.save_for_backward(x, w, order, undone)
        return x[..., order, None] * w

    @staticmethod
    def backward(ctx, g):
        x, w, order, undone = ctx.saved_tensors
        return (g @ w)[..., undone], (g * x[..., order, None]).sum((0, 1, 2)), None, None


class OwnGraph(torch.autograd.Function):
    """Holds a graph, which runs once."""

    @staticmethod
    def forward(ctx, x):
        with torch.enable_grad():
            held = x.detach().requires_grad_()
            y = held.sin() * held
        ctx.save_for_backward(held, y)
        return y.detach()

    @staticmethod
    def backward(ctx, g):
        held, y = ctx.saved_tensors
        return torch.autograd.grad(y, held, g)[0]


class ByBackward(torch.autograd.Function):
    """Refuses torch.autograd.grad, as reentrant checkpoints do."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, g):
        if not torch.autograd._is_checkpoint_valid():
            raise RuntimeError("incompatible with .grad()")
        (x,) = ctx.saved_tensors
        return g * x.cos()


class Wide(torch.autograd.Function):
    """Computes in float32 whatever it is given."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.float() / 3

    @staticmethod
    def backward(ctx, g):
        return g / 3


class Words(torch.autograd.Function):
    """Looks up rows, of which torch defines that one has no gradient."""

    @staticmethod
    def forward(ctx, words, w, row):
        ctx.save_for_backward(words, w)
        ctx.row = row
        return torch.nn.functional.embedding(words, w, padding_idx=row).square()

    @staticmethod
    def backward(ctx, g):
        words, w = ctx.saved_tensors
        out = torch.zeros_like(w).index_add(0, words.flatten(), (2 * g * w[words]).flatten(0, 1))
        out[ctx.row] = 0
        return None, out, None


@pytest.mark.parametrize(
    ("function", "example"),
    [
        (MaskedSoftmax, (torch.randn(3, 4), torch.rand(3, 4) < 0.3)),
        (Reciprocal, (torch.rand(3, 4) + 0.5,)),
        (Single, (torch.randn(3, 4),)),
        (Reorder, (torch.randn(2, 4), PLACES, PLACES.argsort(-1))),
        (ReorderBeside, (torch.randn(2, 3, 4), torch.randn(5), PLACES[0], PLACES[0].argsort())),
        (OwnGraph, (torch.randn(3, 4),)),
        (ByBackward, (torch.randn(3, 4),)),
        (Wide, (torch.randn(3, 4),)),
        (Words, (PLACES, torch.randn(4, 5), 1)),
    ],
    ids=lambda x: x.__name__ if isinstance(x, type) else "",
)
def test_it_is_right(function, example):
    report = derive.audit(function, *example)
    assert report.verdict == "right", str(report)


class InPlace(torch.autograd.Function):
    """Changes its input where autograd does not see it."""

    @staticmethod
    def forward(ctx, x):
        x.numpy()[...] = x.exp().numpy()
        ctx.mark_dirty(x)
        ctx.save_for_backward(x)
        return x

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * y


def test_a_reference_is_held_against_the_inputs_as_they_were():
    assert derive.audit(InPlace, torch.randn(3, 4), reference=torch.exp).right


def test_a_mistake_in_such_a_function_is_found():
    class Wrong(MaskedSoftmax):
        @staticmethod
        def backward(ctx, g):
            x, _ = ctx.saved_tensors
            y = torch.softmax(x, -1)
            return y * (g - (g * y).sum(-1, keepdim=True)), None

    assert not derive.audit(Wrong, torch.randn(3, 4), torch.eye(3, 4) > 0).right
    example = torch.randn(2, 4), PLACES, PLACES
    assert not derive.audit(Reorder, *example).right


def test_a_gradient_of_the_row_of_a_padding_is_wrong():
    wrong = seeded(Words, "out[ctx.row] = 0", "pass")
    (row,) = derive.audit(wrong, PLACES, torch.randn(4, 5), 1).rows
    assert "it should be 0 there, so a mask is missing" in row.wrong


@torch.compile(backend="eager")
def squared_error(x, t):
    return (x - t).square().mean()


class Logged(torch.autograd.Function):
    """Returns numbers around the loss, by a compiled helper."""

    @staticmethod
    def forward(ctx, x, t):
        loss = squared_error(x, t)
        ctx.save_for_backward(x - t)
        return len(x), loss, {"loss": loss.item()}

    @staticmethod
    def backward(ctx, _, g, __):
        (d,) = ctx.saved_tensors
        return 2 * g * d / d.numel(), -2 * g * d / d.numel()


def test_numbers_beside_the_loss_are_none_of_its_outputs():
    given = torch.randn(3, 4), torch.randn(3, 4)
    assert derive.audit(Logged, *given).verdict == "right"
    report = derive.audit(seeded(Logged, "-2 * g", "2 * g"), *given)
    assert [row.wrong for row in report.rows] == ["", "the sign is wrong"]
    assert report.formulas[0] == "grad_x[n,c] = 2·g·(x[n,c] − t[n,c])/(size(n)·size(c))"


class Centered(torch.autograd.Function):
    """Moves a running mean, and changes in place what it saved."""

    @staticmethod
    def forward(ctx, x, running):
        mean = x.mean(0)
        running.mul_(0.9).add_(0.1 * mean)
        ctx.save_for_backward((x - mean).square())
        return (x - mean) ** 3

    @staticmethod
    def backward(ctx, g):
        (square,) = ctx.saved_tensors
        dx = square.mul_(3 * g)
        return dx - dx.mean(0), None


def test_running_statistics_are_read_and_a_second_call_that_raises_is_fragile():
    given = torch.randn(4, 3), torch.zeros(3)
    report = derive.audit(Centered, *given)
    assert report.verdict == "fragile" and "a second call of backward on what was" in str(report)
    report = derive.audit(seeded(Centered, "dx - dx.mean(0)", "dx"), *given)
    assert "Σₙ" in report.rows[0].wrong and "is missing" in report.rows[0].wrong
    assert report.written == ("grad_x[n,c] = 3·(x[n,c] − mean_[c])²·g[n,c]",)


class Preference(torch.autograd.Function):
    """Returns a reward beside the loss, which it detaches."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return -(x - y).sigmoid().log().mean(), x.detach() - 1

    @staticmethod
    def backward(ctx, g, reward):
        x, y = ctx.saved_tensors
        d = -g * torch.sigmoid(y - x) / len(x)
        return d, -d


def test_an_output_that_forward_detaches_needs_no_gradient():
    given = torch.randn(4), torch.randn(4)
    report = derive.audit(Preference, *given)
    assert report.verdict == "right" and "output 1 is detached by forward" in report.remarks[0]
    report = derive.audit(seeded(Preference, "return d, -d", "return d, d"), *given)
    assert [row.wrong for row in report.rows] == ["", "the sign is wrong"]


def test_a_straight_through_estimator_is_told_from_other_mistakes():
    def forward(ctx, x):
        return x.round()

    def backward(ctx, g):
        return g.clone()

    (row,) = audited(forward, backward, torch.randn(3, 4)).rows
    assert not row.right and "straight-through" in row.wrong


class Edges(torch.Tensor):
    """Positions that know how many there may be."""


class Gathered(torch.autograd.Function):
    @staticmethod
    def forward(ctx, edges, x):
        assert isinstance(edges, Edges)
        ctx.edges, ctx.count = edges, x.shape[0]
        return x[edges.as_subclass(torch.Tensor)]

    @staticmethod
    def backward(ctx, g):
        out = g.new_zeros(ctx.count, g.shape[-1])
        return None, out.index_add(0, ctx.edges.as_subclass(torch.Tensor), g)


def test_a_tensor_of_a_class_of_its_own_stays_what_it_is():
    edges = torch.tensor([0, 2, 1, 2]).as_subclass(Edges)
    assert derive.audit(Gathered, edges, torch.randn(3, 5)).right


class Placeholder(torch.autograd.Function):
    """Sets a tensor to another, through which autograd has no derivative."""

    @staticmethod
    def forward(ctx, x, place):
        return place.set_(x.detach())

    @staticmethod
    def backward(ctx, g):
        return None, g


def test_a_forward_without_a_derivative_is_no_crash():
    try:
        derive.audit(Placeholder, torch.randn(3), torch.randn(3))
    except derive.DeriveError as error:
        assert "cannot be judged" in str(error)


def spectrum(weight, real):
    class Spectrum(torch.autograd.Function):
        """The output is complex, and its cotangent too."""

        @staticmethod
        def forward(ctx, x, w, table):
            z = torch.fft.rfft(x) * table
            ctx.save_for_backward(z, w, table)
            ctx.n = x.shape[-1]
            return z * w

        @staticmethod
        def backward(ctx, G):
            z, w, table = ctx.saved_tensors
            full = torch.nn.functional.pad(G * w * table.conj(), (0, ctx.n - z.shape[-1]))
            grad_w = weight(G, z).sum(0)
            return torch.fft.ifft(full).real * ctx.n, grad_w, G * w * z.conj() if real else None

    return Spectrum


GIVEN = torch.randn(3, 6), torch.randn(4), torch.randn(4, dtype=torch.cfloat)


def test_the_cotangent_of_a_complex_output_is_complex():
    report = derive.audit(spectrum(lambda G, z: (G * z.conj()).real, False), *GIVEN)
    assert report.right, report
    report = derive.audit(spectrum(lambda G, z: G.real * z.real, False), *GIVEN)
    assert [(row.input, row.right) for row in report.rows] == [("x", True), ("w", False)]
    code = str(report).partition("smallest counterexample\n")[2]
    assert re.search(r"G = torch.tensor\(\[\[\(.*j\).*\]\], dtype=torch.complex", code), report


def test_a_complex_input_with_a_gradient_is_refused():
    function = spectrum(lambda G, z: (G * z.conj()).real, True)
    with pytest.raises(derive.DeriveError, match="table is complex, and only gradients of real"):
        derive.audit(function, *GIVEN)
    assert derive.audit(function, *GIVEN, constants=["table"]).right


def log_ratio(x, y):
    ratio = x - y
    return torch.sigmoid(ratio - ratio.mean().detach()).sum()


class LogRatio(torch.autograd.Function):
    """The mean is a constant on purpose, as for the KL of a preference loss."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return log_ratio(x, y)

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        s = torch.sigmoid((x - y) - (x - y).mean())
        return g * s * (1 - s), -g * s * (1 - s)


def test_a_gradient_of_a_forward_with_a_detached_part_is_explained():
    given = torch.randn(5), torch.randn(5)
    report = derive.audit(LogRatio, *given)
    assert not report.right
    assert all("gradient of forward, which detaches a part" in row.wrong for row in report.rows)
    assert derive.audit(LogRatio, *given, reference=log_ratio).right


class ClampedInPlace(torch.autograd.Function):
    """The forward of what it returns changes nothing more."""

    @staticmethod
    def forward(ctx, x):
        x.clamp_(-1, 1)
        return x

    @staticmethod
    def backward(ctx, g):
        return g


def test_what_a_forward_writes_into_an_example_is_undone():
    x = torch.tensor([[3.0, -0.5], [0.25, -2.0], [-5.0, 0.75]], dtype=torch.float64)
    report = derive.audit(ClampedInPlace, x.clone())
    assert report.verdict == "wrong" and "changed in place" in report.rows[0].wrong
