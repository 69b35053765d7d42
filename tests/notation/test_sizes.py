"""One letter, one size: where it is read, and what follows for the others."""

import pytest
import torch

from derive import SpecError, load, parse
from derive.algebra.expr import Size, num, walk


def extents(text):
    return {e.name: e for e in parse(text).extents}


def test_a_letter_has_the_size_of_every_axis_where_it_stands_alone():
    found = extents("y[i] = sum[k](A[i,k]*B[k,i])")
    assert found["i"].sources == (("A", 0), ("B", 1))
    assert found["k"].sources == (("A", 1), ("B", 0))


def test_letters_of_one_axis_are_one_extent():
    found = extents("y[i] = x[i]/sum[l](x[l])")
    assert list(found) == ["i"]


def test_a_fixed_size_and_a_composite_follow():
    found = extents("op f(x[(t d)]; size(t)=2) -> y; y[d] = x[(0 d)] + x[(1 d)]")
    assert found["t"].size is num(2)
    assert found["d"].size is not None or found["d"].sources


@pytest.mark.parametrize("form", ["{}*R[n]", "{} + R[n]*amax[u | u < n](R[u])"])
def test_the_smallest_of_equal_products_is_the_product(form):
    """size(n) is the smaller of two axes (k l), and is read as (k l) itself."""
    text = "op f(R[(k l)], W[(k l)], v[k]; size(l)=4) -> e, g\ne[n] = {}\ng[l,k] = e[(k l)]*v[k]"
    op = parse(text.format(form.format("W[size(n) - 1 - n]")))
    given = [torch.arange(1.0, 1 + size) for size in (12, 12, 3)]
    e, g = load(op)(*given)
    torch.testing.assert_close(g, (e.unflatten(0, (3, 4)) * given[2][:, None]).T)


@pytest.mark.parametrize(
    ("inputs", "part"),
    [
        ("x[n,c]; size(k)=size(c) - 1", "h[n,k] = x[n,k + 1]"),
        ("x[n,l], w[c]; size(l)=6, size(c)=7", "h[n,l] = x[n,l]*w[0]"),
        ("x[n,k,l], w[c]; size(k)=2, size(c)=2*size(l) + 1", "h[n,(k l)] = x[n,k,l]*w[0]"),
    ],
)
def test_under_a_condition_an_index_may_run_past_the_end_of_an_axis(inputs, part):
    text = f"op f({inputs}) -> y\n{part}\ny[n,c] = {{}}"
    op = parse(text.format("where(c < size(c) - 1, h[n,c], 3)"))
    assert op.equations[0].axes[1] != op.equations[1].axes[1]
    with pytest.raises(SpecError, match="size"):
        parse(text.format("h[n,c]"))


def test_a_quotient_of_an_axis_is_not_as_long_as_a_given_size_that_reads_it_under_a_condition():
    op = parse(
        "op f(x[n,l]; size(k)=2, size(c)=size(l)//2 + 1) -> y\n"
        "h[n,q] = sum[k](x[n,(q k)])\n"
        "y[n,c] = where(c < size(q), h[n,c], 3)"
    )
    x = torch.arange(12.0).reshape(2, 6)
    assert load(op)(x).tolist() == [[1, 5, 9, 3], [13, 17, 21, 3]]


def test_an_axis_that_positions_size_is_not_as_long_as_what_reads_it_under_a_condition():
    op = parse(
        "op f(q[t,d], k[t,d], v[t,w], z; start=0, size(m)=size(t) + 1) -> y\n"
        "s[t,u] = sum[d](q[t,d]*k[u,d])\n"
        "p[t,m] = softmax[m](where(m < size(t), s[t,m], z))\n"
        "y[t,w] = sum[u](p[t,u + start]*v[u,w])"
    )
    assert op.equations[0].axes[1] != op.equations[1].axes[1]


def test_the_size_of_an_axis_without_a_letter_is_its_number():
    op = parse("op f(x[i], z[i,k]) -> y\na[i,0] = x[i]**2\ny[i,j] = concat[j](a[i,j], z[i,j])")
    sizes = {part for q in op.equations for part in walk(q.body) if isinstance(part, Size)}
    assert Size("a1") not in sizes
    assert parse(str(op)) == op
