"""Values that a reading is held against its function with."""

import warnings

import pytest
import torch
import torch.nn.functional as F
from kit.reads import r

from derive import DeriveError, load, read_torch
from derive.tracing.read import reading


def held(f, *given):
    """The text of what f is read as, which computes the same."""
    made = reading(f, *given, comments=False)
    torch.testing.assert_close(load(made.operation)(*given), f(*given))
    return made.text


MASK = torch.tensor([[1, 1, 0, 1, 1], [1, 0, 1, 1, 0], [0, 1, 1, 1, 1]]).bool()


def test_a_mask_that_leaves_no_row_empty():
    def masked(q, k, m):
        return (q @ k.mT).masked_fill(~m, -torch.inf).softmax(-1)

    held(masked, r(3, 4), r(5, 4), MASK)
    held(lambda q, k, m: (q @ k.mT).masked_fill(m, -torch.inf).softmax(-1), r(3, 4), r(5, 4), ~MASK)


def test_an_attention_with_a_mask_of_truths():
    text = held(
        lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m),
        *(r(2, 3, 4), r(2, 5, 4), r(2, 5, 6), MASK),
    )
    assert "where(m[" in text and "-inf)" in text


@pytest.mark.parametrize(
    "f", [torch.logit, torch.special.ndtri, lambda x: F.binary_cross_entropy(x, x.detach() ** 2)]
)
def test_values_between_0_and_1(f):
    held(f, r(3, 5).sigmoid())


@pytest.mark.parametrize("f", [torch.acos, torch.asin, torch.atanh, torch.erfinv])
def test_values_between_minus_1_and_1(f):
    held(f, r(3, 5).tanh())


def test_values_above_1():
    held(torch.acosh, r(3, 5).exp() + 1)


def test_values_of_either_sign():
    f = load(reading(torch.asinh, r(3, 5)).operation)
    x = torch.tensor([[-1e6, -2.0, -1e-9, 0.0, 1e-9, 3.0, 1e6]], dtype=torch.float64)
    x.requires_grad_()
    ours, theirs = f(x), torch.asinh(x)
    torch.testing.assert_close(ours, theirs)
    slopes = [torch.autograd.grad(y.sum(), x) for y in (ours, theirs)]
    torch.testing.assert_close(*slopes)


def test_integers_that_differ_in_each_row():
    """Dihedral angles have no value where two of their four points are one."""

    def dihedral(x, rows):
        a, b, c = torch.diff(x[rows], dim=1).unbind(1)
        m, n = torch.linalg.cross(a, b), torch.linalg.cross(b, c)
        return torch.atan2((torch.linalg.cross(m, F.normalize(b)) * n).sum(-1), (m * n).sum(-1))

    held(dihedral, r(6, 3), torch.tensor([[0, 2, 1, 5], [3, 1, 4, 0], [5, 4, 2, 3]]))


def test_values_of_which_the_last_bits_decide_are_not_compared():
    """The points of a dihedral angle that are drawn as one leave rounding noise."""

    def dihedral(x, i, j, k, h):
        a, b, c = x[j] - x[i], x[k] - x[j], x[h] - x[k]
        m, n = torch.linalg.cross(a, b), torch.linalg.cross(b, c)
        return torch.atan2((torch.linalg.cross(m, F.normalize(b)) * n).sum(-1), (m * n).sum(-1))

    held(dihedral, r(6, 3), *torch.tensor([[0, 3, 5], [2, 1, 4], [1, 4, 2], [5, 0, 3]]))


def test_a_function_warns_of_no_draw_of_the_check():
    def scaled(x):
        warnings.warn("old", stacklevel=1)
        return 2 * x

    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        reading(scaled, torch.ones(3))
    assert len(found) == 2  # the example, and the trace


def test_truths_that_differ():
    def f(x, k, m):
        return x * ((x > 0) ^ m) + torch.logical_xor(k, x > 1) + torch.logical_and(x, ~m)

    x, k = r(3, 5), torch.tensor([[0, 1, 2, 0, 1]])
    held(f, x, k, MASK)
    with pytest.raises(DeriveError, match="bits of integers are not supported"):
        reading(lambda x, k: x * (k & 1), x, k)


def test_an_index_is_compared_with_no_negative_number():
    def contrastive(s):
        return F.cross_entropy(s, torch.arange(len(s)))

    assert "-100" not in held(contrastive, r(4, 6)[:, :4])


class Causal(torch.nn.Module):
    """Heads of query, key and value of one layer, and a mask as a buffer."""

    def __init__(self):
        super().__init__()
        self.packed, self.out = torch.nn.Linear(12, 36), torch.nn.Linear(12, 12)
        self.register_buffer("mask", torch.ones(9, 9).tril())

    def forward(self, x):
        b, t, c = x.shape
        parts = self.packed(x).split(12, dim=2)
        q, k, v = (part.view(b, t, 4, c // 4).transpose(1, 2) for part in parts)
        scores = (q @ k.mT / 3**0.5).masked_fill(self.mask[:t, :t] == 0, -torch.inf)
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, c))


def test_sizes_of_which_most_are_asked_vary_one_by_one():
    """The width of x is 12 and no other, as that of its parts is."""
    read = reading(Causal(), r(2, 5, 12), comments=False)
    assert read.operation.name == "Causal" and "softmax[" in read.text


def rms(x):
    return F.rms_norm(x, x.shape[-1:])


@pytest.mark.parametrize(
    ("f", "number"),
    [
        (lambda x: x / (x.norm(dim=-1, keepdim=True) + torch.finfo(x.dtype).eps), "1.1920929e-07"),
        (lambda x: x.clamp(min=torch.finfo(x.dtype).tiny).log(), "1.1754944e-38"),
        (lambda x: x * 0.001 if x.dtype == torch.float32 else x, "0.001"),
        (rms, "1.1920929e-07"),
        (torch.nn.RMSNorm(4), "1.1920929e-07"),
    ],
)
def test_a_number_of_the_dtype_is_that_of_the_examples(f, number):
    assert number in reading(f, r(3, 4), comments=False).text


def test_the_least_number_of_a_dtype_is_one_of_it():
    """As masks of attention have it: its shortest decimal would overflow."""

    def masked(x, m):
        return x.masked_fill(m, torch.finfo(x.dtype).min).softmax(-1)

    held(masked, r(3, 5), MASK)


class Clipped(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, G):
        return G.clamp(-5, 5)


class Bounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.exp()

    @staticmethod
    def backward(ctx, G):
        return G * ctx.saved_tensors[0].clamp(max=15).exp()


class Rounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, G):
        return G


class Squashed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.tanh()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, G):
        return G * (1 - ctx.saved_tensors[0] ** 2)


@pytest.mark.parametrize("applied", [Clipped, Bounded, Rounded])
def test_a_function_with_a_gradient_of_its_own_is_named(applied):
    """That both gradients agree at moderate values is not enough."""
    given = torch.randn(3, 5), torch.randn(3, 5)
    with pytest.raises(DeriveError, match=f"applies {applied.__name__}, whose own backward is not"):
        read_torch(lambda x, w: (applied.apply(x) * w).sum(), *given)


def test_a_function_inside_of_a_branch_is_not_the_reason_of_another_branch():
    def branching(x):
        return Squashed.apply(x) * (2 if x.shape[0] > 4 else 3)

    given = torch.randn(3, 5)
    with pytest.raises(DeriveError, match="another branch") as told:
        read_torch(branching, given)
    assert "own backward" not in str(told.value)


def test_a_function_with_the_right_gradient_is_read():
    op = read_torch(lambda x: Squashed.apply(2 * x), torch.randn(3, 5))
    assert "tanh" in str(op)
