"""einsum: letters, an ellipsis, letters that stand twice."""

from __future__ import annotations

import pytest
import torch

from derive.tracing.read import reading


def r(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


EQUATIONS = [
    ("oi,...ihw->...ohw", r(6, 3), r(2, 3, 4, 5)),
    ("...ij,...jk", r(2, 3, 4), r(7, 2, 4, 5)),
    ("nii->ni", r(2, 5, 5)),
    ("nii", r(2, 5, 5)),
    ("...ii->...", r(2, 5, 5)),
    ("ii,ij->j", r(5, 5), r(5, 3)),
    ("ba,cb", r(2, 5), r(3, 2)),
]


@pytest.mark.parametrize(("equation", "operands"), [(e, x) for e, *x in EQUATIONS])
def test_an_equation_is_read(equation, operands):
    def f(*x):
        return torch.einsum(equation, *x)

    made = reading(f, *operands, comments=False)
    assert len(made.operation.equations) == 1


def test_a_letter_twice_is_a_diagonal():
    made = reading(lambda x: torch.einsum("nii->ni", x), r(2, 5, 5), name="f", comments=False)
    assert "y[n,t] = x[n,t,t]" in made.text
