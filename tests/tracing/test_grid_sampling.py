"""Samples at the places of a grid: values, slopes at the edges, and second derivatives."""

from functools import partial
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from kit.each import in_turns

from derive import DeriveError, load, read_torch
from derive.tracing.read import reading

SIZES = {2: ((5, 4), (3, 7)), 3: ((2, 5, 4), (3, 2, 6))}
OFTEN = [
    (2, "bilinear", "zeros", False),
    (2, "bilinear", "border", True),
    (2, "bilinear", "reflection", False),
    (2, "nearest", "zeros", True),
    (3, "nearest", "reflection", True),
]
MODES, PADDINGS = ("bilinear", "nearest"), ("zeros", "border", "reflection")
OTHERS = [s for s in product((2, 3), MODES, PADDINGS, (True, False)) if s not in OFTEN]


def operands(rank):
    """A tensor and a grid that reaches beyond it, with corners and edges among its places."""
    inner, outer = SIZES[rank]
    x = torch.randn(2, 3, *inner, dtype=torch.float64)
    grid = 1.3 * torch.randn(2, *outer, rank, dtype=torch.float64)
    grid.flatten()[:9] = torch.tensor([-1.0, 1, 0, -1, 1, 1, 3, -3, -1])
    return x.requires_grad_(), grid.requires_grad_()


@pytest.mark.parametrize(
    ("rank", "mode", "padding", "corners"),
    [*in_turns(OFTEN, 5), *(pytest.param(*s, marks=pytest.mark.long) for s in OTHERS)],
)
def test_samples_are_those_of_torch(rank, mode, padding, corners):
    def sample(x, grid):
        return F.grid_sample(x, grid, mode, padding, corners)

    given = operands(rank)
    made, plain = load(reading(sample, *given, comments=False).operation)(*given), sample(*given)
    torch.testing.assert_close(made, plain)
    weight = torch.randn_like(plain)
    have, want = (
        torch.autograd.grad((y * weight).sum(), given, allow_unused=True) for y in (made, plain)
    )
    for a, b in zip(have, want, strict=True):
        torch.testing.assert_close(torch.zeros_like(b) if a is None else a, b)


def moved(x, shift):
    at = torch.stack([shift[:, 0].tanh(), shift[:, 1]], -1)
    return F.grid_sample(x.relu() * 2, at, padding_mode="reflection", align_corners=True)


def looked_up(x, at):
    return F.grid_sample(x, at[None, None], align_corners=True)[0, :, 0].T


def transformed(x, theta):
    return F.grid_sample(x, F.affine_grid(theta, x.shape, False), align_corners=False)


@pytest.mark.parametrize(
    ("function", "shapes"),
    in_turns(
        [
            (moved, ((2, 3, 5, 4), (2, 2, 1, 7))),
            (moved, ((2, 1, 1, 4), (2, 2, 3, 1))),
            (looked_up, ((1, 3, 5, 4), (7, 2))),
            (transformed, ((2, 1, 3, 4), (2, 2, 3))),
        ],
        2,
    ),
)
def test_what_is_sampled_has_two_derivatives(function, shapes):
    given = [torch.randn(s, dtype=torch.float64).requires_grad_() for s in shapes]
    f = load(read_torch(function, *given))
    torch.testing.assert_close(f(*given), function(*given))
    assert torch.autograd.gradcheck(f, given)
    assert torch.autograd.gradgradcheck(f, given)


def test_cubic_samples_are_refused():
    cubic = partial(F.grid_sample, mode="bicubic", align_corners=False)
    with pytest.raises(DeriveError, match="'bicubic' is not supported; use mode='bilinear'"):
        read_torch(lambda x, grid: cubic(x, grid), *operands(2))
