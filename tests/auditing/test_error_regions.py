"""Where a gradient is wrong is said if it is the same at every point."""

import torch
from kit.each import each_row

from derive.auditing.error_regions import where
from derive.auditing.evidence import Evidence
from derive.auditing.gradients import Outcome

SIZES = ((4, 4), (6, 6), (8, 8))


def described(change, chunk=3, mask=None):
    """What is said of gradients that are right but for the change."""
    outcomes = []
    for n, size in enumerate(SIZES):
        torch.manual_seed(n)
        x, right = torch.randn(2, *size, dtype=torch.float64)
        rows = torch.arange(size[0]) % 3 if mask is None else mask(size[0])
        given = change(right.clone(), x, rows)
        outcomes.append(Outcome((x, rows, chunk), (), {0: right}, given={0: given}))
    return where(Evidence(0, ("x", "rows", "chunk"), ("g",), tuple(outcomes)))


def put(part, value):
    def change(g, x, rows):
        place = part(g, x, rows)
        g[place] = value(g)[place]
        return g

    return change


def zero(g):
    return torch.zeros_like(g)


@each_row(
    "change, text",
    [
        (lambda g, x, r: g.flip(1), "reverse order along axis 1"),
        (lambda g, x, r: g.roll(g.shape[1] // 2, 1), "halves of axis 1 stand in each other's"),
        (lambda g, x, r: g.roll(1, 0), "shifted by 1 along axis 0, and wraps around"),
        (put(lambda g, x, r: (slice(None), 0), zero), "only at position 0 of axis 1: it is 0"),
        (put(lambda g, x, r: slice(-1, None), zero), "only at the last position of axis 0"),
        (
            put(lambda g, x, r: slice(0, len(g) // 2), lambda g: -g),
            "first half of axis 0: the sign",
        ),
        (put(lambda g, x, r: (slice(None), slice(1, None, 2)), zero), "odd positions of axis 1"),
        (put(lambda g, x, r: slice(3, None), zero), "after the first chunk positions of axis 0"),
        (put(lambda g, x, r: x < 0, zero), "only where x < 0: it is 0 there"),
        (put(lambda g, x, r: x.abs() > 1, lambda g: 2 * g), r"where |x| > 1: the factor 2 is too"),
        (put(lambda g, x, r: r == 1, zero), "only where rows = 1"),
        (put(lambda g, x, r: torch.eye(len(g)) > 0, zero), "only on the diagonal"),
        (lambda g, x, r: g + x, ""),
    ],
)
def test_places_are_described(change, text):
    told = described(change)
    assert told == "" if not text else text in told, told


def test_a_missing_mask_is_named():
    outcomes = []
    for n in range(3):
        torch.manual_seed(n)
        x, g = torch.randn(2, 5, 4, dtype=torch.float64)
        outcomes.append(Outcome((x,), (g,), {0: torch.where(x > 0, g, 0)}, given={0: g}))
    told = where(Evidence(0, ("x",), ("g",), tuple(outcomes)))
    assert told == "it is wrong only where x < 0: it should be 0 there, so a mask is missing"


def test_nothing_is_said_of_places_that_differ_between_points():
    turn = iter(range(3))

    def change(g, x, rows):
        g[next(turn)] = 0
        return g

    assert "position" not in described(change)
