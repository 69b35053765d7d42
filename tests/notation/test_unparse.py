"""An operation printed is its text, which reads back as the same operation."""

import pytest
import sympy
from kit.each import each_row
from kit.programs.writing import random_program

from derive import DeriveError, Operation, catalog, parse
from derive.notation.operation import Extent
from derive.notation.unparse import same_operation


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("family", catalog.FAMILIES)
def test_the_text_of_an_operation_of_the_catalog_reads_back_as_it(family):
    for name in catalog.FAMILIES[family]:
        op = catalog.find(name)
        assert parse(str(op)) == op, str(op)


@pytest.mark.filterwarnings("ignore")
def test_the_text_of_a_random_operation_reads_back_as_it():
    for seed in range(100, 140):
        try:
            op = parse(random_program(seed).text)
        except DeriveError:
            continue
        assert same_operation(parse(str(op)), op), str(op)


TEXTS = [
    "op f(A[*p, k, *q]; dim=axis(k,-1), keepdim=keep(k)) -> S\n"
    "S[*p, *q] = logsumexp[k | k != 2](A[*p, k, *q])",
    "op f(x[n], T[n]: int, m[n]: bool, v[c], w[c]=1; eps=0.00001, level, stable) -> y, z\n"
    "y[n] = where(m[n] and T[n] >= 0, v[T[n]]*x[n]*w[T[n]], level)\n"
    "z = -sum[n](sqrt(y[n] + eps)/3)",
    "op f(x[n, t], w[k]; step=2, pad=0, size(u)=floor((size(t) + 2*pad - size(k))/step) + 1) -> y\n"
    "y[n, u] = sum[k | step*u + k - pad >= 0 and step*u + k - pad < size(t)]"
    "(x[n, step*u + k - pad]*w[k])",
    "op f(x[n]; reduction=mean|sum|none) -> mean: m | sum: s | none: l\n"
    "l[n] = clamp(x[n], -inf, pi)\ns = sum[n](l[n])\nm = s/size(n)",
    "op f(x[n], y[m]) -> z\nz[k] = concat[k](x[k], 2*y[size(k) - 1 - k], softmax[k](x[k]))",
    "op f(x[t]; size(k)=3, size(u)=size(t) - 2) -> y\ny[u] = sum[k](x[u + k]**2)",
    "op f(x[(t d)]; size(t)=2) -> y\ny[d] = x[(0 d)]*x[(1 d)]",
]


@each_row("text", TEXTS)
def test_text_is_printed_as_it_is_written(text):
    assert str(parse(text)) == text


def test_letters_of_one_size_that_share_no_axis_are_said_to_have_it():
    op = parse("op f(x[(c i j)]; r=size(i), size(j)=size(i)) -> y\ny[c,j,i] = x[(c i j)]")
    assert "size(j)=size(i)" in str(op)
    assert {i.extent for i in op.equations[0].axes} == {"c", "i"}
    assert parse(str(op)) == op


def test_a_bound_letter_is_new_where_its_own_stands_around_it():
    op = parse("op f(x[n], y[n]) -> z\nz[n] = sum[m](x[n]*y[m] - sum[n](x[m]*y[n]))")
    assert str(op).endswith("z[n] = sum[m](x[n]*y[m] - sum[n](x[m]*y[n]))")
    inner = parse("op f(x[n], y[n]) -> z\nz[n] = sum[m](x[n]*y[m] - sum[k](x[m]*y[k]))")
    assert same_operation(parse(str(inner)), inner)
    other = parse("op f(x[n], y[n]) -> z\nz[n] = sum[m](x[n]*y[m] - sum[k](x[k]*y[k]))")
    assert same_operation(op, inner)
    assert not same_operation(op, other)


def test_what_the_text_cannot_say_is_said():
    op = parse("op f(x[n], y[m]) -> z\nz[k] = concat[k](x[k], y[k])")
    parts = (op.inputs, op.parameters, op.equations, op.outputs)
    turned = Operation.resolved("f", *parts, op.extents[::-1])
    other = Operation.resolved("f", *parts, (*op.extents, Extent("w")))
    assert str(op) == str(turned)
    assert str(other).splitlines()[-1].startswith("# ")


def test_the_representation_is_short():
    op = catalog.find("cross_entropy")
    assert repr(op) == "Operation('cross_entropy', (input, target, weight) -> average, total, loss)"


@pytest.mark.parametrize(
    "text", ("y[i]=sum[j](x[j,i]*x[i,j]**2)", "y[i]=sum[j](tanh(sum[k](x[j,k]))*x[i,j])")
)
def test_axes_of_one_size_need_no_letter_of_their_own(text):
    op = parse(text)
    assert "size(" not in str(op) and same_operation(parse(str(op)), op)


def test_sizes_of_parts_and_of_their_axis_define_one_another():
    """Of h = o*q and o = h//q, which a composite (o q) on an axis of size h gives, none is said."""
    op = parse(
        "op f(x[n,c,h,k]; size(q)=2, size(r)=size(q), size(s)=size(q)) -> z\n"
        "y[n,c,o,p] = max[q,r](x[n,c,2*o + q,2*p + r])\n"
        "z[n,(q c),(o r),(p s)] = where(q == 0, x[n,c,(o r),(p s)], y[n,c,o,p])"
    )
    assert same_operation(parse(str(op)), op)


def test_axes_of_one_size_have_no_order() -> None:
    i = sympy.Symbol("i", integer=True)
    x, y, z, T = map(sympy.IndexedBase, "xyzT")
    equations = sympy.Eq(y[i], x[T[i]]), sympy.Eq(z[i], T[i] * x[i])
    op = Operation("f", *equations, outputs=["y", "z"])
    text = str(op)
    assert "#" not in text
    assert same_operation(parse(text), op)


@each_row(
    "line",
    [
        "y[i] = x[i]/z[i]",
        "y[i] = sqrt(x[i])/(1 + z[i])**2",
        "y[i] = softmax[i](x[i])*z[i]",
        "y[i] = where(x[i] > 0 and not z[i] < 1, x[i], -z[i])",
        "y[i] = sum[k | k < i](x[k]*z[k]) - 3*x[i]/4",
        "y[i] = z[i]*max[k](x[k])",
    ],
)
def test_a_line_comes_back_as_it_was_written(line):
    op = parse(f"op f(x[i], z[i]) -> y\n{line}")
    assert str(op).splitlines()[-1] == line
    assert parse(str(op)) == op
