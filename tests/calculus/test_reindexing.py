"""Sums over what brackets leave of the range of an index, and over positions from the end."""

import pytest
import torch
from kit.each import each_row
from kit.lowered import assert_right

from derive import derivation, load, parse, read_torch
from derive.algebra.expr import Access, Index, Iverson, Num, Reduce, Rel, Size, Where, num
from derive.algebra.inequalities import Bounds
from derive.calculus.build_lets import flatten_operation
from derive.calculus.reindexing import part_of_range, reverse_reduction

t, s = Index("t", "t"), Index("s", "t")
BOUNDS = Bounds({"t": None, "u": Size("t") - num(1), "k": None, "l": None})


def x(*positions):
    return Access("x", positions)


def test_a_bracket_cuts_the_first_positions_off():
    factors = (x(t), Iverson(Rel("<=", num(1), t)))
    found = part_of_range(BOUNDS, factors, t)
    assert found is not None
    own, start, rest = found
    assert (own.extent, start.number, rest) == ("u", 1, [x(t)])


def test_a_bracket_cuts_the_last_ones_off():
    found = part_of_range(BOUNDS, (Iverson(Rel("<", t, Size("t") - num(1))), x(t)), t)
    assert found is not None and (found[0].extent, found[1].number) == ("u", 0)


def test_without_an_extent_of_that_size_or_a_bracket_of_the_index_alone_there_is_no_part():
    assert part_of_range(BOUNDS, (Iverson(Rel("<=", num(5), t)), x(t)), t) is None
    assert part_of_range(BOUNDS, (Iverson(Rel("<=", s, t)), x(t)), t) is None
    assert part_of_range(BOUNDS, (x(t),), t) is None


def axes(text: str) -> dict[str, list[str]]:
    """The extents of the axes of each definition that the engine made."""
    return {let.name: [i.extent for i in let.formals] for let in flatten_operation(parse(text))}


CUT = "op f(a[i,d], b[j,d]) -> y\ny[m] = concat[m](logsumexp[d](a[m,d]), max[d](b[m,d]))"


def test_each_reduction_runs_over_its_piece():
    made = axes(CUT)
    assert made["lse"] == ["i"] and made["top"] == ["j"]
    assert_right(CUT)


def test_what_the_branch_leaves_whole_is_not_cut():
    text = "op f(a[m,d], w[m]) -> y\ny[m] = where(w[m] > 0, logsumexp[d](a[m,d]), 0)"
    assert axes(text)["lse"] == ["m"]
    assert_right(text)


k, j, l = Index("k", "k"), Index("j", "k"), Index("l", "l")  # noqa: E741
FROM_END = Size("k") + num(-1) - k
ONE = num(1)


def test_the_condition_has_both_indices_as_they_stand():
    e = reverse_reduction(BOUNDS, Reduce("prod", (j,), x(j), Rel("<=", j, FROM_END)))
    assert e.condition is Rel("<=", k, j)
    assert BOUNDS.form(e.body.positions[0]) == BOUNDS.form(Size("k") + num(-1) - j)


@each_row(
    "e",
    [
        Reduce("prod", (j,), x(j), Rel("<=", j, k)),
        Reduce("prod", (j,), x(j)),
        Reduce("prod", (l,), x(l), Rel("<=", l, FROM_END)),
        Reduce("prod", (j,), x(j + k), Rel("<=", j, FROM_END)),
        Reduce("max", (j,), Where(Rel("<=", j, k), x(j), ONE)),
        Reduce("prod", (j,), Where(Rel("<=", j, k), x(j), Num(0))),
    ],
)
def test_others_stay_as_they_are(e):
    assert reverse_reduction(BOUNDS, e) is e or reverse_reduction(BOUNDS, e) == e


@pytest.mark.parametrize("chosen", [(x(j), ONE), (ONE, x(j))], ids=["then", "other"])
def test_what_leaves_a_product_as_it_is_is_not_taken(chosen):
    e = reverse_reduction(
        BOUNDS, Reduce("prod", (j,), Where(Rel("<=", j, k), *chosen), Rel("<", j, l))
    )
    assert e.body is x(j)
    assert e.condition is not None and len(e.condition.args) == 2


def test_the_gradient_of_a_suffix_sum_is_a_prefix_sum():
    op = parse("op f(x[n,t], w[n]) -> y\ny[n,t] = w[n]*sum[s | s<=size(t)-1-t](x[n,size(t)-1-s])")
    assert str(derivation(op).gradients["x"]) == "grad_x[n,t] = w[n]·Σ[t′ | t′ ≤ t] G[n,t′]"


def returns(reward, gamma):
    return (reward * gamma).flip(1).cumsum(1).flip(1) / gamma


def transmitted(alpha, colour):
    kept = torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha], -1).cumprod(-1)[:, :-1]
    return ((alpha * kept)[..., None] * colour).sum(-2)


def broken_off(v):
    left = (1 - v.sigmoid()).cumprod(1)
    return v.sigmoid() * torch.cat([torch.ones_like(left[:, :1]), left[:, :-1]], 1)


def boxes(x):
    total = x.cumsum(1).square()
    return total[:, 3:] - total[:, :-3]


def hazards(risk, event):
    return -((risk - risk.flip(0).logcumsumexp(0).flip(0)) * event).sum()


def means(x, w):
    return (x * w[..., None]).cumsum(1) / w.cumsum(1)[..., None]


def areas(x):
    total = torch.nn.functional.pad(x.square().cumsum(1).cumsum(2), (1, 0, 1, 0))
    return total[:, 2:, 2:] - total[:, :-2, 2:] - total[:, 2:, :-2] + total[:, :-2, :-2]


CODE = {
    returns: [(3, 7), (7,)],
    transmitted: [(3, 5), (3, 5, 4)],
    broken_off: [(3, 6)],
    boxes: [(2, 8)],
    hazards: [(6,), (6,)],
    means: [(2, 5, 3), (2, 5)],
    areas: [(2, 5, 4)],
}


@pytest.mark.parametrize("f", CODE, ids=lambda f: f.__name__)
def test_code_of_two_orders_has_no_tensor_of_pairs(f):
    torch.manual_seed(0)
    given = [torch.rand(s, dtype=torch.float64) * 0.5 + 0.25 for s in CODE[f]]
    own = load(read_torch(f, *given))
    ours, plain = ([t.clone().requires_grad_() for t in given] for _ in range(2))
    y, expected = own(*ours), f(*plain)
    torch.testing.assert_close(y, expected)
    G = torch.rand_like(y)
    first, right = (
        torch.autograd.grad(a, b, G, create_graph=True) for a, b in ((y, ours), (expected, plain))
    )
    torch.testing.assert_close(first, right)
    seconds = [
        torch.autograd.grad(sum(g.square().sum() for g in gs), to)
        for gs, to in ((first, ours), (right, plain))
    ]
    torch.testing.assert_close(*seconds)

    # So long an axis has more pairs than fit.
    n, last = 200_000, len(CODE[f][0]) - 1
    long = [
        torch.rand([n if d == last or len(s) == 1 else m for d, m in enumerate(s)]) * 0.5 + 0.25
        for s in CODE[f]
    ]
    leaves = [t.requires_grad_() for t in long]
    own(*leaves).sum().backward()
    assert all(t.grad is not None for t in leaves)
