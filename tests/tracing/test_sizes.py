"""Sizes that a reading has: numbers that are given, parts of axes, and what cannot be."""

import math

import pytest
import torch
from kit.reads import r
from torch.nn.functional import adaptive_max_pool1d, conv1d, conv2d, fold, pad, relu

from derive import DeriveError, DeriveWarning, differentiate, load, parse, read_torch
from derive.tracing.read import reading


def held(f, *given):
    """The operation, which computes what f does of the examples."""
    op = read_torch(f, *given)
    held = f.state_dict() if isinstance(f, torch.nn.Module) else {}
    own = {name.replace(".", "_"): t for name, t in held.items()}
    read = [own[t.name] for t in op.inputs if t.name in own]
    torch.testing.assert_close(load(op)(*given, *read), f(*given))
    return op


def text(f, *given):
    held(f, *given)
    return reading(f, *given, comments=False).text


def test_a_number_in_a_view_is_a_size_beside_one_that_is_left_out():
    op = held(lambda x, w: (x @ w).view(x.shape[0], -1, 3, 4), r(2, 5, 7), r(7, 12))
    with pytest.raises(ValueError, match="axis 1 of w has size 24, but must have size 12"):
        load(op)(r(2, 5, 7), r(7, 24))


def test_a_part_that_is_read_elsewhere_has_the_size_of_its_part():
    f = load(
        parse("op f(x[n,c], t[k]: int; start=0, size(m)=3) -> y\n"
              "parts[m,d,c] = x[(m d),c]\ny[d] = parts[1,d,t[d + start]]")
    )  # fmt: skip
    x, t = r(6, 4), torch.tensor([3, 1, 2, 0, 1])
    torch.testing.assert_close(f(x, t), torch.stack([x[2, 3], x[3, 1]]))


def test_a_part_that_is_composed_itself_has_the_size_of_its_parts():
    def grouped(x, q, k):
        n, t, _ = x.shape
        a = (x @ q).view(n, t, -1, 5)
        return a * (x @ k).view(n, t, -1, 5).repeat_interleave(2, 2)

    held(grouped, r(2, 3, 7), r(7, 30), r(7, 15))


def test_remainders_of_sizes():
    def even(x):
        n = x.shape[1]
        return torch.nn.functional.pad(x, (0, n % 2)).view(len(x), -1, 2).sum(-1)

    torch.testing.assert_close(load(held(even, r(3, 6)))(r(3, 5)), even(r(3, 5)))


def test_kernels_of_which_one_is_as_long_as_the_other_leaves_it():
    def block(x, v, w):
        return relu(conv2d(relu(conv2d(x, v, padding=1)), w, padding=1) + x)

    held(block, r(2, 4, 3, 5), r(6, 4, 3, 3), r(4, 6, 3, 3))


def test_patches_are_as_many_as_their_embedding_has():
    """A branch on the number of patches fixes the size of the image."""

    def embed(x, w, first, pos):
        if x.shape[-1] // 2 != 3:
            pos = 2 * pos
        patches = conv2d(x, w, stride=2).flatten(2).transpose(1, 2)
        return torch.cat([first.expand(len(x), -1, -1), patches], 1) + pos

    op = held(embed, r(2, 3, 4, 6), r(5, 3, 2, 2), r(1, 1, 5), r(1, 7, 5))
    assert "size(k)=6" in str(op)
    assert "size(t)=size(i)*size(o) + 1" in str(op)


def test_a_part_that_is_written_begins_at_0():
    """A bare index on a longer axis needs a parameter, start = 0; other positions do not."""

    def differences(x):
        d = torch.zeros_like(x)
        d[:, :-1] = x[:, 1:] - x[:, :-1]
        return d

    assert text(differences, r(3, 5)) == (
        "op differences(x[n,c]) -> y\ny[n,c] = where(c < size(c) - 1, x[n,c + 1] - x[n,c], 0)\n"
    )
    assert "start=0" in text(lambda x, pos: x + pos[: x.shape[1]], r(2, 3, 4), r(7, 4))


def test_two_signals_have_one_length():
    """Two lengths may have as many windows, or one of them a single one."""

    def shared(x, y):
        return (x.unfold(1, 4, 2) @ y.unfold(1, 4, 2).mT).mean(1) + x.unfold(1, 4, 2).mean(2)

    held(shared, r(3, 8), r(3, 8) * 2)


def test_parts_of_axes_are_said_by_their_other_part():
    def windows(x):
        n, a, b = x.shape
        return x.view(n, a // 2, 2, b // 2, 2).transpose(2, 3)

    assert text(windows, r(3, 4, 10)) == (
        "op windows(x[n,a,b]; size(d)=2, size(d2)=size(d)) -> y\n"
        "y[n,k,m,d,d2] = x[n,(k d),(m d2)]\n"
    )
    op = held(windows, r(3, 4, 10))
    with pytest.raises(ValueError, match="is not divisible by"):
        load(op)(r(3, 5, 10))


def test_a_part_of_an_axis_is_joined_with_what_is_left_of_it():
    def turned(x, w):
        n = w.shape[-1]
        own, rest = x[..., :n], x[..., n:]
        a, b = own.chunk(2, -1)
        return torch.cat([own * w + torch.cat([-b, a], -1), rest], -1)

    held(turned, r(2, 3, 10), r(3, 6))


def interactions(x, a, b):
    batch, d = x.shape
    parts = torch.cat([x, a, b], 1).view(batch, -1, d)
    return parts @ parts.mT


def test_sizes_that_must_be_equal_are():
    """The view has a whole number of parts if the three have one size, as in the example."""
    op = held(interactions, r(4, 3), r(4, 3), r(4, 3))
    torch.testing.assert_close(load(op)(*[r(2, 5)] * 3), interactions(*[r(2, 5)] * 3))
    with pytest.raises(ValueError, match="size 5 on axis 1 of x but 4"):
        load(op)(r(2, 5), r(2, 5), r(2, 4))


class Biased(torch.nn.Module):
    """Attention in windows of 2 by 2, with a bias for each relative position."""

    def __init__(self):
        super().__init__()
        self.table, self.qk = torch.nn.Parameter(r(9, 3)), torch.nn.Linear(6, 12, bias=False)
        self.register_buffer("places", torch.arange(16).view(4, 4) % 9)

    def forward(self, x):
        n, h, w, c = x.shape
        x = x.view(n, h // 2, 2, w // 2, 2, c).transpose(2, 3).reshape(-1, 4, c)
        q, k = self.qk(x).reshape(x.shape[0], 4, 2, 3, -1).permute(2, 0, 3, 1, 4).unbind(0)
        scores = q @ k.mT
        bias = self.table[self.places.view(-1)].view(4, 4, -1).permute(2, 0, 1)
        return (scores + bias.unsqueeze(0)).softmax(-1)


def test_a_buffer_has_its_sizes_if_others_have_no_reading():
    module = Biased()
    op, x = held(module, r(2, 4, 6, 6)), r(1, 6, 4, 6)
    torch.testing.assert_close(
        load(op)(x, module.table, module.qk.weight, module.places), module(x)
    )


class OneKeyHead(torch.nn.Module):
    """Heads of 4 channels; that there is one of keys, and how they meet, follows from a size."""

    def __init__(self):
        super().__init__()
        self.q, self.k = (torch.nn.Linear(5, d, bias=False) for d in (8, 4))

    def forward(self, x):
        q, k = (of(x).unflatten(-1, (-1, 4)) for of in (self.q, self.k))
        return (q @ k.mT if k.shape[2] == 1 else q + k.repeat(1, 1, 2, 1)).sin()


def test_a_branch_on_the_sizes_of_parameters_is_that_of_the_module():
    module, x = OneKeyHead(), r(2, 3, 5)
    op = held(module, x)
    torch.testing.assert_close(
        load(op)(x[:1, :2], module.q.weight, module.k.weight), module(x[:1, :2])
    )


def without_middle(x):
    x[1:, x.shape[1] - 1, x.shape[2] // 2] = 0
    return x


PARTS = {
    "a stride over a padded window": lambda x, w: conv1d(x, w, padding=1)[..., ::2] * 2,
    "pairs of a padded axis": lambda x, w: pad(x, (1, 1)).unflatten(-1, (-1, 2)).sum(-1),
    "pairs of a strided window": lambda x, w: (
        conv1d(x, w, stride=2, padding=1).unflatten(-1, (-1, 2)).sum(-1)
    ),
    "halves of all elements": lambda x, w: x.flatten(1).unflatten(-1, (2, -1)).exp().sum(-1),
    "the largest of halves": lambda x, w: adaptive_max_pool1d(x.flatten(1).unsqueeze(1), 2),
    "halves of a half": lambda x, w: (
        x[..., : x.shape[-1] // 2].unflatten(-1, (2, -1)).exp().prod(-2)
    ),
    "odd and even positions": lambda x, w: x[..., 1:][..., ::2].sum(-1) * x[..., 1::2].sum(-1),
    "every third of an even number": lambda x, w: x[..., : 2 * (x.shape[-1] // 2)][..., ::3] * 2,
    "windows of a half": lambda x, w: x[..., : x.shape[-1] // 2].unfold(-1, 3, 2).sum(-1),
    "frames that overlap": lambda x, w: sum(
        fold(t.flatten(0, -3).mT, (1, x.shape[-1] // 2 * 2), (1, 4), stride=(1, 2))
        for t in (x.unfold(-1, 4, 2), w[:1, :1].expand(1, x.shape[-1] // 2 - 1, 4))
    ),
    "below the middle row": lambda x, w: (
        torch.ones(x.shape[2], x.shape[2]).tril(-(x.shape[2] // 2)) @ x[0, 0]
    ),
    "all but the middle": lambda x, w: without_middle(x.clone()),
    "the middle": lambda x, w: x[..., x.shape[-1] // 2] * x[:, -x.shape[1], x.shape[2] - 1, None],
}


@pytest.mark.parametrize("length", [8, 9])
@pytest.mark.parametrize("f", PARTS.values(), ids=PARTS)
def test_a_reading_is_right_at_all_sizes_that_it_takes(f, length):
    """Where parts do not divide an axis, the operation computes what f does, or refuses it."""
    try:
        op = read_torch(f, r(2, 3, length), r(5, 3, 4))
    except DeriveError:
        assert length == 9, "the parts divide the axis"
        return
    for n in range(6, 14):
        given = {"x": r(2, 3, n), "w": r(5, 3, 3)}
        try:
            made = load(op)(*(given[t.name] for t in op.inputs))
        except ValueError as error:
            assert "divisible by" in str(error) or "must have size" in str(error)
        else:
            torch.testing.assert_close(made, f(*given.values()))


def halves(x):
    n = x.shape[1]
    return (x[:, : n // 2] * x[:, (n + 1) // 2 :]).sum(1)


def every_other(x):
    return x[:, ::2].sum(1) - x[:, 1::2].sum(1)


@pytest.mark.parametrize("f", [halves, every_other])
def test_an_odd_axis_has_two_parts(f):
    op = held(f, r(3, 7))
    for shape in [(3, 4), (2, 9)]:
        torch.testing.assert_close(load(op)(r(*shape)), f(r(*shape)))


def test_branches_that_agree_where_one_becomes_the_other_differ_farther_away():
    with pytest.raises(DeriveError, match=r"another branch where x.shape\[0\] .* is false"):
        read_torch(lambda x: x.sum(0) / (n if (n := x.shape[0]) < 4 else 3), r(5, 4))


def test_the_branch_of_a_size_that_is_no_multiple_differs():
    with pytest.raises(DeriveError, match=r"another branch where \(x.shape\[0\] // 3\) >= 1 is"):
        read_torch(lambda x: x.sum(0) / (n if (n := x.shape[0] // 3) >= 1 else 1), r(6, 4))


@pytest.mark.parametrize("most", [lambda n: min(n, 3), lambda n: max(n // 3, 1), lambda n: n // 2])
def test_the_largest_and_the_least_of_sizes_are_formulas(most):
    def f(x):
        return torch.where(torch.arange(x.shape[0]) < most(x.shape[0]), x.T, 0).sum(1)

    op = held(f, r(6, 4))
    for n in (2, 3, 4, 5, 7, 9):
        torch.testing.assert_close(load(op)(r(n, 4)), f(r(n, 4)))


def last_three_first(x):
    y = torch.zeros_like(x)
    y[:, :3] = x[:, -3:]
    return y


def last_three_summed(x):
    y = x.clone()
    y[:, x.shape[1] - 3 :] = x.sum(1, keepdim=True)
    return y


def test_a_part_that_is_longer_than_its_axis_is_left_to_the_function():
    """torch ends a part with its axis; the operation reads at -1, or takes more of the axis."""
    with pytest.warns(DeriveWarning, match=r"longer than its axis: value .* at x\(2, 2\), where"):
        read_torch(last_three_summed, r(2, 6))
    with pytest.warns(DeriveWarning, match=r"longer than its axis: value .* at x\(5, 1\)"):
        read_torch(lambda x, m: x[m, :2].mean(0), r(5, 4), torch.arange(5) > 2)
    for function, message in (
        (last_three_summed, "a part is longer than its axis"),
        (last_three_first, "is read at .* out of range"),
    ):
        f = differentiate(function, time=100, memory=100)
        f(r(2, 6))
        with pytest.warns(DeriveWarning, match=message):
            torch.testing.assert_close(f(r(2, 2)), function(r(2, 2)))


def test_a_branch_for_large_tensors_is_left_to_the_function():
    def f(x):
        return x.sum() if x.numel() < 5_000_000 else x.sum() * 2

    with pytest.warns(DeriveWarning, match=r"too large .* where x.shape\[0\] < 5000000 is false"):
        read_torch(f, r(5))
    ours, large = differentiate(f, time=100, memory=100), torch.ones(1).expand(5_000_000)
    torch.testing.assert_close(ours(r(5)), f(r(5)))
    with pytest.warns(DeriveWarning, match="larger than is assumed"):
        torch.testing.assert_close(ours(large), f(large))


def test_positions_that_are_computed_of_sizes_are_within_the_axis():
    def shifted(a, table):
        t = torch.arange(a.shape[0])
        return (a + table[t[:, None] - t + 3]).softmax(-1)

    held(shifted, r(4, 4), r(7))


@pytest.mark.parametrize("most", [lambda n: max(n - 1, 1), lambda n: n - 1 if n > 1 else 1])
def test_a_spec_that_does_not_hold_at_an_axis_of_size_one_warns(most):
    with pytest.warns(DeriveWarning, match=r"size 1: value of output 1, at x\(1, 4\); it holds"):
        read_torch(lambda x: x.sum(0) / most(x.shape[0]), r(5, 4))


def test_a_variance_of_one_number_is_nan_in_both():
    held(lambda x: x.std(0), r(5, 4))


def test_an_axis_joined_with_its_first_part_has_halves():
    held(lambda x: torch.mul(*torch.cat([x, x[:, :2]], 1).chunk(2, 1)), r(3, 8))


PARTS_ROUNDED = {
    "from the half": lambda x: x[:, x.shape[1] // 2 :: 2].sum(1),
    "to the half": lambda x: x[:, : x.shape[1] // 2 : 2].sum(1),
    "rounded up": lambda x: x[:, : math.ceil(x.shape[1] / 2)].sum(1),
    "divmod": lambda x: (
        x[:, : 3 * divmod(x.shape[1], 3)[0]].sum(1) * (divmod(x.shape[1], 3)[1] + 1)
    ),
    "even and odd": lambda x: x.view(len(x), 2, -1)[..., : x.shape[1] // 4].sum((1, 2)),
}


@pytest.mark.parametrize("f", PARTS_ROUNDED.values(), ids=PARTS_ROUNDED)
def test_a_part_of_what_is_no_multiple_is_right_or_refused(f):
    op = held(f, r(3, 8))
    for n in range(4, 14):
        try:
            made = load(op)(r(2, n))
        except ValueError as error:
            assert "divisible by" in str(error)
        else:
            torch.testing.assert_close(made, f(r(2, n)))


def test_a_branch_at_whose_other_sizes_no_part_fits_warns():
    with pytest.warns(DeriveWarning, match=r"x.shape\[1\] % 2\) > 0 is false"):
        read_torch(lambda x: x.tensor_split(2, 1)[0].sum(1), r(5, 9))
