"""Sizes that a reading has: numbers that are given, parts of axes, and what cannot be."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.functional import conv2d, relu

from derive import DeriveError, load, read_torch
from derive.errors import DeriveError as Refused


def r(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def sizes(op):
    return str(op).partition("; ")[2].partition(")")[0]


def held(f, *given):
    """The operation computes what f does, of the examples."""
    op = read_torch(f, *given)
    own = [t for t in given if isinstance(t, torch.Tensor)]
    names = {t.name for t in op.inputs}
    assert len(names) <= len(own)
    torch.testing.assert_close(load(op)(*own), f(*given))
    return op


def test_a_number_in_a_view_is_a_size_beside_one_that_is_left_out():
    op = held(lambda x, w: (x @ w).view(x.shape[0], -1, 3, 4), r(2, 5, 7), r(7, 12))
    assert "size(k)=12" in str(op).replace("size(d)=12", "size(k)=12")
    with pytest.raises(Refused):
        load(op)(r(2, 5, 7), r(7, 24))


def test_a_part_that_is_read_elsewhere_has_the_size_of_its_part():
    def f(x, t):
        a, b, c = x.chunk(3)
        return a.gather(1, t[: len(a), None]).squeeze(1) + (b * c).sum(1)

    op = held(f, r(6, 4), torch.tensor([0, 1, 3, 2, 1, 0]))
    torch.testing.assert_close(
        load(op)(r(9, 4), torch.tensor([0, 1, 3, 2])), f(r(9, 4), torch.tensor([0, 1, 3, 2]))
    )


def test_kernels_of_which_one_is_as_long_as_the_other_leaves_it():
    def block(x, v, w):
        return relu(conv2d(relu(conv2d(x, v, padding=1)), w, padding=1) + x)

    held(block, r(2, 4, 3, 5), r(6, 4, 3, 3), r(4, 6, 3, 3))
