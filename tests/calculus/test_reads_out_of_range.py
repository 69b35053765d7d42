"""The sizes at which a guarded read is out of range are those that trying all positions finds."""

import random
from itertools import product
from math import prod

import pytest
import torch

from derive import load, parse
from derive.calculus.reads_out_of_range import reads_out_of_range

TEXT = """
op f(a[t, u], x[n]) -> y
y[t, u] = a[t, u] + where({}, x[{}], 0)*sum[n](x[n])
"""


def raised(condition: str, position: str, every: list[tuple[int, int, int]]) -> list[bool]:
    """For each t, u and n, whether the engine says that a read is out of range."""
    found = reads_out_of_range(parse(TEXT.format(condition, position)))

    def holds(form, sizes):
        parts = form.terms.items()
        return sum(c * prod(sizes[size.extent] for size in key) for key, c in parts) >= 0

    named = [dict(zip("tun", sizes, strict=True)) for sizes in every]
    return [any(all(holds(f, sizes) for f in r.forms) for r in found) for sizes in named]


def is_read(condition: str, position: str, t: int, u: int, n: int) -> bool:
    """True if some position where the condition holds is out of range."""
    texts = [s.replace("size(t)", str(t)).replace("size(u)", str(u)) for s in (condition, position)]
    test, place = (compile(s.replace("size(n)", str(n)), "", "eval") for s in texts)
    every = ({"t": i, "u": j} for i, j in product(range(t), range(u)))
    return any(not 0 <= eval(place, at) < n for at in every if eval(test, at))


def affine(source: random.Random, most: int) -> str:
    """A sum of one or two of the indices and sizes, and a number."""
    parts = source.sample(["t", "u", "size(t)", "size(u)", "size(n)"], source.randint(1, 2))
    said = " + ".join(f"{source.choice((-1, 1)) * source.randint(1, most)}*{p}" for p in parts)
    return f"{said} + {source.randint(-3, 4)}"


def comparison(source: random.Random, most: int) -> str:
    relation = source.choice(("<", "<=", "==", "!=", ">"))
    return f"{affine(source, most)} {relation} {affine(source, most)}"


def condition(source: random.Random, most: int) -> str:
    one, two = comparison(source, most), comparison(source, most)
    return source.choice((one, f"{one} and {two}", f"{one} or {two}", f"not ({one} and {two})"))


SIZES = [(t, u, n) for t in (1, 2, 5) for u in (1, 2, 4) for n in (1, 2, 3, 6)]


@pytest.mark.parametrize("seed", range(25))
def test_reads_at_units_are_found_at_exactly_the_right_sizes(seed):
    source = random.Random(seed)
    where, at = condition(source, 1), "t + " + affine(source, 1)
    said = raised(where, at, SIZES)
    assert said == [is_read(where, at, *sizes) for sizes in SIZES], (where, at)


@pytest.mark.parametrize("seed", range(25))
def test_no_size_is_refused_at_which_every_read_is_in_range(seed):
    source = random.Random(seed)
    where, at = condition(source, 3), "2*t + " + affine(source, 3)
    for sizes, refused in zip(SIZES, raised(where, at, SIZES), strict=True):
        assert not refused or is_read(where, at, *sizes), (where, at, sizes)


def test_a_call_with_such_sizes_is_an_error():
    f = load(parse(TEXT.format("t == 0 and u < 3", "u + size(n) - 3")))
    x = torch.tensor([2.0, 3.0, 5.0, 7.0])
    assert f(torch.zeros(2, 5), x)[0].tolist() == [3 * 17, 5 * 17, 7 * 17, 0, 0]
    for sizes in ((1, 1), (4, 2)):
        with pytest.raises(IndexError, match=r"axis 0 of x has size 2, but is read at u \+ size"):
            f(torch.zeros(*sizes), x[:2])
    assert f(torch.zeros(0, 4), x[:2]).shape == (0, 4)


def test_a_size_that_is_a_number_is_told_as_one():
    text = "op f(x[n], w[k]; start=0, size(k)=3) -> y\ny[n] = x[n] + where(n < 3, w[n + start], 0)"
    f, x, w = load(parse(text)), torch.zeros(5), torch.tensor([2.0, 3.0, 5.0])
    assert f(x, w).tolist() == [2, 3, 5, 0, 0]
    for start in (-1, 1):
        with pytest.raises(IndexError, match=r"axis 0 of w has size 3, but is read at n \+ start"):
            f(x, w, start=start)


def test_a_tensor_that_is_none_is_read_in_range_too():
    f = load(
        parse("op f(a[t], b[n], x[n]=1) -> y\ny[t] = a[t]*where(t > 1, x[t - 2], 2) + sum[n](b[n])")
    )
    a, zero = torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.zeros(2)
    assert f(a, zero, torch.tensor([5.0, 6.0])).tolist() == [2, 4, 15, 24]
    assert f(a, zero).tolist() == [2, 4, 3, 4]
    with pytest.raises(IndexError, match="axis 0 of x has size 1"):
        f(a, zero[:1])
