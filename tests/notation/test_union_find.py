"""Classes of letters and axes of one size: known by their first key, in order."""

import pytest
import torch

from derive import SpecError, load, parse
from derive.algebra.expr import Param, Size, num
from derive.notation.union_find import Classes, SizeClasses


def classes(kind=Classes):
    made = kind()
    for key in ("i", "x@0", "j", "x@1", "k"):
        made.add(key)
    return made


def test_a_class_is_known_by_its_first_key_however_it_is_joined():
    c = classes()
    assert c.union("x@1", "j") == ("j", "x@1")
    assert c.union("x@1", "i") == ("i", "j")
    assert c.union("j", "i") is None
    assert {c.root(key) for key in ("i", "j", "x@1")} == {"i"}
    assert c.members("i") == ["i", "j", "x@1"]
    assert c.roots() == ["i", "x@0", "k"]


def test_a_size_goes_with_its_class():
    c = classes(SizeClasses)
    c.set("j", num(3), None, "size(j)=3")
    c.join("x@0", "j")
    assert c.given == {"x@0": num(3)}
    assert c.display_name("x@0") == "j"
    assert c.canonical(Size("j") + Size("k")) is Size("x@0") + Size("k")


def test_two_sizes_of_one_class_are_an_error_that_says_both():
    c = classes(SizeClasses)
    c.set("i", num(3), None, "size(i)=3")
    c.set("x@0", Param("n"), None, "n=size(i)")
    with pytest.raises(SpecError, match=r"index i has two sizes: 3 \(size\(i\)=3\) and n") as error:
        c.join("i", "x@0")
    assert "axis 0 of x" in str(error.value)


@pytest.mark.parametrize(
    "text",
    [
        "op f(x[e]; size(e)=2*size(e)) -> y; y[e] = x[e]",
        "op f(x[n]; size(a)=size(b)+1, size(b)=size(a)+1) -> y; y[a,b] = x[0]*[a < b]",
    ],
)
def test_a_size_is_not_given_by_itself(text):
    with pytest.raises(SpecError, match="depends on itself"):
        parse(text)


def test_an_axis_is_not_composed_of_itself():
    with pytest.raises(SpecError, match=r"size of \w depends on itself.*index of its own"):
        parse("op f(x[(h e)], w[e]) -> y; y[h] = sum[e](x[(h e)]*x[e]*w[e])")


def test_two_letters_of_one_size_are_no_circle():
    op = parse("op f(x[i], z[j]; size(j)=size(i)) -> y; y[i] = x[i]*sum[j](z[j])")
    assert {a.extent for t in op.inputs for a in t.axes} == {"i"}


PARTS = {
    "size(u)=size(t)-1, size(v)=size(u)) -> d; d[n,u,v] = x[n,u+1]*x[n,v]": lambda x: (
        x[:, 1:, None] * x[:, None, :-1]
    ),
    "size(u)=size(t)-1) -> d; d[n,u] = x[n,u+1] - x[n,u]": lambda x: x[:, 1:] - x[:, :-1],
    "size(u)=size(t)-1) -> y; d[n,u] = x[n,u+1] - x[n,u]; y[n] = sum[u](d[n,u]**2)": lambda x: (
        (x[:, 1:] - x[:, :-1]).pow(2).sum(1)
    ),
    "size(u)=size(t)-3) -> y; d[n,u] = x[n,u+1]**2; y[n,u] = 3*d[n,u]": lambda x: (
        3 * x[:, 1:-2] ** 2
    ),
    "size(u)=floor(size(t)/2)) -> y; d[n,u] = x[n,2*u+1]; y[n,u] = d[n,u]**2": lambda x: (
        x[:, 1::2] ** 2
    ),
    "size(u)=2*size(t)-1) -> y; y[n,u] = where(u < size(t), x[n,u], 0)": lambda x: (
        torch.nn.functional.pad(x, (0, x.shape[1] - 1))
    ),
    "size(u)=size(t)-2, size(v)=size(u)-1) -> z; y[n,u] = x[n,u]; z[n,v] = y[n,v]*x[n,v]": (
        lambda x: x[:, :-3] ** 2
    ),
}


@pytest.mark.parametrize("text", PARTS)
def test_a_part_of_an_axis_has_the_size_that_it_is_given(text):
    op = parse(f"op f(x[n,t]; {text}")
    assert parse(str(op)) == op
    f = load(op)
    x = torch.randn(2, 7, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(f(x), PARTS[text](x))
    assert torch.autograd.gradcheck(f, (x,))


def test_a_part_longer_than_its_axis_is_refused():
    with pytest.raises(SpecError, match="runs past the end of axis 1 by 1"):
        parse("op f(x[n,t]; size(u)=size(t)+1) -> d; d[n,u] = x[n,u]**2")
    with pytest.raises(SpecError, match="depends on itself"):
        parse("op f(x[n,u]; size(u)=size(t)-1, size(t)=size(u)+1) -> d; d[n,u,t] = x[n,u]*[t < 2]")
    f = load(parse("op f(x[n,t]; more=0, size(u)=size(t)+more) -> d; d[n,u] = x[n,u]**2"))
    assert f(torch.randn(2, 3), more=-1).shape == (2, 2)
    with pytest.raises((ValueError, IndexError, RuntimeError)):
        f(torch.randn(2, 3), more=1)


def test_the_first_positions_of_a_longer_axis_are_read_from_a_start():
    f = load(parse("op f(x[n,t,c], p[m,c]; start=0) -> y; y[n,t,c] = x[n,t,c] + p[t+start,c]"))
    x, p = torch.randn(2, 3, 4), torch.randn(5, 4)
    torch.testing.assert_close(f(x, p), x + p[:3])
    torch.testing.assert_close(f(x, p, start=2), x + p[2:])
