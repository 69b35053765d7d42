"""What equations are to an index that is taken in blocks, and why some indices cannot be."""

import pytest
from kit.each import each_row, told

from derive import DeriveError, parse
from derive.blocks.index_roles import roles


def test_an_equation_is_mapped_accumulated_or_whole():
    op = parse("""
    op f(x[n,d], k[m,d]) -> t
    u[m,d] = k[m,d]**2
    y[n,m] = sum[d](x[n,d]*u[m,d])
    s[m]   = sum[n](y[n,m])
    t      = sum[m](s[m]**2)
    """)
    found = roles(op, "n")
    assert found.rows == {"y": 0}
    assert found.sums == {"s"}


def test_a_mean_is_a_sum_over_all_and_a_sum_inside_is_an_equation():
    op = parse("op f(x[n,d], w[n]) -> y\ny[d] = exp(mean[n](x[n,d])) / sum[n | w[n] > 0](w[n])")
    found = roles(op, "n")
    assert found.sums == {"y_sum", "y_sum2"}
    assert [e.name for e in found.equations] == ["y_sum", "y_sum2", "y"]


def test_the_only_index_of_the_size_is_the_index_by_any_letter():
    op = parse("op f(x[n,d]) -> y\nz[n,d] = x[n,d]**2\ny[d] = sum[i](z[i,d])")
    assert roles(op, "n").rows == {"z": 0}


def test_what_is_read_elsewhere_too_is_whole():
    op = parse("op f(x[n,d]) -> t\nz[n,d] = exp(x[n,d])\nt = sum[n,m,d](z[n,d]*z[m,d])")
    found = roles(op, "n")
    assert not found.rows
    assert found.sums == {"t"}


WHOLE = told(
    """\
y[n] = x[n]
    m: op has no index m; its indices are n
y[*p] = exp(x[*p])
    p: *p is a group of axes
y[u] = x[u+1] - x[u]
    u: index u cannot be processed in blocks: no axis of an input has this index
y[n] = x[n] - logsumexp[n](x[n])
    n: equation y computes the logsumexp over it
m[d] = max[n](x[n,d]); y[n,d] = x[n,d] - m[d]
    n: equation m computes the max over it
op f(x[n], W[k]) -> y; y[n] = sum[k](W[k]*x[n]*n) + x[size(n)-1-n]
    n: positions computed
op f(x[k]; dim=axis(k)) -> y; y = sum[k](x[k]**2)
    k: parameter dim sets the position of axis
op f(x[n], W[k]) -> y; z[n] = W[0]*x[n]; y[k] = W[k]*z[0]
    n: no equation maps or sums over this index
"""
)


@each_row("text, said", WHOLE)
def test_why_an_index_cannot_be_taken_in_blocks(text, said):
    letter, _, reason = said.partition(": ")
    with pytest.raises(DeriveError) as error:
        roles(parse(text), letter)
    assert reason in str(error.value)
