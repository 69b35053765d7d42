"""Letters that the names of sizes in the code give."""

from __future__ import annotations

import pytest
import torch

from derive.tracing.read import reading


def unpacked(x, w):
    B, T, C = x.shape
    return (x.reshape(B * T, C) @ w).reshape(B, T, -1)


def by_size(x, w):
    _, _, h = x.size()
    n = x.size(0)
    return x @ w / h + n


def last(x, w):
    *_, s, z = x.shape
    return x @ w * s * z


def sliced(x, w):
    a, e = x.shape[-2:]
    return x @ w * a * e


def changed(x, w):
    x = x.transpose(0, 1)
    b, _, _ = x.shape
    return x @ w * b


def long_names(x, w):
    batch, length, width = x.shape
    return x @ w * batch * length * width


SAID = {
    unpacked: "x[b,t,c]",
    by_size: "x[n,t,h]",
    last: "x[n,s,z]",
    sliced: "x[n,a,e]",
    changed: "x[n,t,c]",
    long_names: "x[n,t,c]",
}


@pytest.mark.parametrize("function", SAID)
def test_letters_are_those_of_the_code(function):
    made = reading(function, torch.randn(2, 3, 4), torch.randn(4, 5), comments=False)
    assert SAID[function] in made.text


def test_letters_that_are_given_come_first():
    made = reading(unpacked, torch.randn(2, 3, 4), torch.randn(4, 5), letters={"x": "ijk"})
    assert "x[i,j,k]" in made.text
