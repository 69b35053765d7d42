"""What has no size, no end or no float64 is an error, soon, that says what to do."""

import sys
import time

import pytest
import torch
from kit.each import each_row
from sympy import Abs, Eq, Float, IndexedBase, Integer, Pow, Rational, cos, sin, symbols

import derive
from derive import DeriveError, Operation, SpecError, parse
from derive.notation.resource_limits import DEPTH, STATEMENT, TEXT

n = symbols("n", integer=True)
x, y = IndexedBase("x"), IndexedBase("y")


def refused(text: str) -> str:
    with pytest.raises(SpecError) as caught:
        parse(text)
    return str(caught.value)


CIRCULAR = {
    "op f(t[h], v[j,e]) -> o; o[j,(h e)] = t[h]*v[j,(h e)]": "axis 1 of v is (h e)",
    "op f(p[b,h,i,j], v[b,j,e]) -> o; o[i,(h e)] = sum[j,b](p[b,h,i,j]*v[b,j,(h e)])": "axis 2 of",
    "op f(x[n,(c e)]; size(c)=2) -> y; y[n,e] = x[n,(1* e)]": "axis 1 of x is (c e)",
    "op f(x[n,(c e)]; size(c)=2) -> y; y[n,e] = x[n,(0 e)]*x[n,(1* e)]": "axis 1 of x is (c e)",
    "op f(q[i,(h d)], v[j,e]) -> o; o[i,(h e)] = sum[j,d](q[i,(h d)]*v[j,(h e)])": "axis 1 of v",
    "op f(v[*p,e], t[h]) -> o; o[*p,(h e)] = v[*p,(h e)]*t[h]": "axis 1 of v is (h e)",
    "op f(x[n], t[h]) -> y; a[n,h] = x[(n h)]; y[n] = sum[h](a[n,h]*t[h])": "axis 0 of x is (n h)",
    "op f(x[e], t[h]) -> y; a[(h e)] = t[h]*x[e]; y[e] = a[e]": "axis 0 of a is (h e)",
    "op f(u[b], v[c], t[h]) -> y; y[h,b,c] = u[(h c)]*v[(h b)]*t[h]": "axis 0 of u is (h c)",
    "op f(v[a]) -> o; o[a,b] = v[(a b)]*v[b]": "axis 0 of v is (a b)",
    "op f(x[n], u[m]; size(n)=size(m), size(m)=size(n)+1) -> y; y[n] = x[n]*sum[m](u[m])": "of m",
    "op f(x[n]; size(n)=size(n)+1) -> y; y[n] = x[n]": "the size of n depends on itself",
    "op f(x[c], z[k]; size(c)=size(m)-2) -> y; y[m] = concat[m](x[m], z[m])": (
        "of c depends on itself: it is size(c) + size(k) - 2; leave it out"
    ),
    "op f(x[n]; size(h)=2*size(e)) -> y; y[h,e] = x[(h e)]": "line 1, column 46: the size of h",
    "op f(x[n]; size(h)=3*size(e)) -> y; a[n] = x[n]**2; y[h,e] = x[0]*a[(h e)]": (
        "itself: size(h) is 3*size(e) by size(h)=...; size(e) is floor(size(n)/size(h)) from axis "
        "0 of a; declare"
    ),
}


@each_row("text", CIRCULAR)
def test_a_size_that_follows_from_itself_is_named(text):
    message = refused(text)
    assert "depends on itself" in message and CIRCULAR[text] in message


def test_a_circular_size_is_refused_in_sympy_form_too():
    h, e, j = symbols("h e j", integer=True)
    o, t, v = map(IndexedBase, "otv")
    with pytest.raises(SpecError, match="depends on itself: axis 1 of v is"):
        Operation(
            "f",
            Eq(o[j, derive.Composite(h, e)], t[h] * v[j, derive.Composite(h, e)]),
            inputs=[t[h], v[j, e]],
        )


def test_parts_of_size_one_make_no_circle():
    op = parse("op f(v[e], t[h]; size(h)=1) -> o; o[(h e)] = v[(h e)]*t[h]")
    v, t = torch.randn(5), torch.randn(1)
    assert torch.equal(derive.load(op)(v, t), v * t)


def test_the_size_of_an_index_that_stands_nowhere_is_an_error():
    assert "index z is unused" in refused("op f(x[m]; n=size(z)) -> y; y[m] = x[m]")
    assert "index z is unused" in refused("op f(x[m]; n=size(z)) -> y; y[m] = n*x[m]")
    assert "index z is unused" in refused("op f(x[m]; size(z)=3) -> y; y[m] = x[m]")


def test_two_sizes_are_told_with_their_axes():
    message = refused("op f(x[i], y[j]; size(i)=3, size(j)=4) -> z; z[i] = x[i]*y[i]")
    assert "index i has two sizes: 3 (by size(i)=...) and 4 (by size(j)=...)" in message
    assert "the size of axis 0 of x, axis 0 of y and axis 0 of z" in message


def nested(depth: int, before: str, after: str, inner: str = "x[i]") -> str:
    return "y[i] = " + before * depth + inner + after * depth


@each_row("depth", [100, 3000])
@each_row(
    "before, after, inner",
    [
        ("abs(", ")", "x[i]"),
        ("-(", ")", "x[i]"),
        ("x[i]**", "", "x[i]"),
        ("[", " > 0]", "x[i]"),
        ("sum[i](", ")", "x[i]"),
        ("where(x[i] > 0, 1, ", ")", "0"),
        ("T[", "]", "i"),
        ("1/(1 + ", ")", "x[i]"),
    ],
)
def test_what_is_nested_too_deeply_is_told_with_the_limit(depth, before, after, inner):
    message = refused(nested(depth, before, after, inner))
    assert f"levels; the limit is {DEPTH}): give a part its own equation" in message


def test_parentheses_and_long_sums_are_no_depth():
    parse(nested(5000, "(", ")"))
    parse("y[i] = " + " + ".join(["x[i]"] * 5000))


def test_a_deep_sympy_expression_is_refused_too():
    deep = x[n]
    for _ in range(100):
        deep = Abs(deep, evaluate=False) + 1
    with pytest.raises(SpecError, match="nested too deeply"):
        Operation("f", Eq(y[n], deep))
    shared = x[n]
    for _ in range(40):
        shared = sin(shared) + cos(shared)
    with pytest.raises(SpecError, match=r"too long .about 10"):
        Operation("f", Eq(y[n], shared))


@pytest.mark.parametrize(
    ("depth", "before", "after"),
    [
        (DEPTH - 3, "where(a[i] > 0, ", ", b[i])"),
        (DEPTH - 2, "(", ")**0.3"),
        (DEPTH // 2 - 2, "sum[i](a[i]*", ")"),
    ],
)
def test_the_deepest_expression_goes_through_every_stage(depth, before, after):
    """What stands at the limit is derived, shown and emitted within Python's own stack."""
    op = parse(nested(depth, before, after))
    base = len_of_stack()
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(base + 900)
    try:
        found = derive.derivation(op)
        str(found.gradients["x"]), found.gradients["x"].latex()
        compile(derive.source(op), "f", "exec")
    finally:
        sys.setrecursionlimit(limit)


def len_of_stack() -> int:
    frame, count = sys._getframe(), 0
    while frame is not None:
        frame, count = frame.f_back, count + 1
    return count


@pytest.mark.parametrize("word", [" and ", " or "])
def test_conditions_in_a_row_are_no_depth(word):
    names = [f"a{i}" for i in range(150)]
    op = parse("y[n] = x[n]*[" + word.join(f"{a}[n] > 0" for a in names) + "]")
    f = derive.load(op)
    given = torch.randn(5), *(torch.randn(5) for _ in names)
    holds = torch.stack(given[1:]) > 0
    expected = given[0] * (holds.all(0) if "and" in word else holds.any(0))
    assert torch.equal(f(*given), expected)


def test_no_recursion_error_leaves_the_pipeline():
    op = parse("y[i] = exp(sin(x[i]))")
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len_of_stack() + 40)
    try:
        with pytest.raises(DeriveError, match=r"op: .* nested too deeply for Python's recursion"):
            derive.source(op)
    finally:
        sys.setrecursionlimit(limit)


BEYOND = [
    *("x[n]*9**9**9", "2**2**2**2**2**2", "x[n] + 9**-9**9", "x[n]*(1/3)**100000", "x[n]*pi**9**9"),
    *("x[n]*((9**200)**200)**200", "x[n]*1e300*1e300", "x[n] + 1e308 + 1e308", "sqrt(2)**10**9"),
    *("x[n]**9**9**9", "x[n]**1e300", "x[n]*2**1030"),
]


@each_row("body", BEYOND)
def test_a_number_beyond_float64_is_told_and_not_computed(body):
    start = time.process_time()
    message = refused(f"op f(x[n]) -> y; y[n] = {body}")
    assert "out of the range of float64" in message or "the exponent is above the limit" in message
    assert time.process_time() - start < 1


@each_row(
    "line",
    [
        "op f(x[n]; p=9**9**9) -> y; y[n] = p*x[n]",
        "op f(x[n], w[n]=9**9**9) -> y; y[n] = w[n]*x[n]",
        "op f(x[n]; size(n)=9**9**9) -> y; y[n] = x[n]",
        "op f(x[n]; size(n)=9**30) -> y; y[n] = x[n]",
        "op f(x[n]; g=size(n, 9**30)) -> y; y[n] = x[n]*g",
        "op f(x[n]) -> y; y[u] = x[u + 99999999999999999999]",
        "op f(x[n]) -> y; y[u] = x[99999999999999999999*u]",
        "op f(x[n]) -> y; y[n] = where(n > 2, x[n + 99999999999999999999], 0)",
    ],
)
def test_a_default_a_size_and_a_position_are_bounded(line):
    limits = ("out of the range of float64", f"limit of {2**62}", f"limit is {2**62}")
    assert any(limit in refused(line) for limit in limits)


def test_numbers_of_float64_stay():
    for body in ("x[n]*1e308", "x[n]*1e-308", "x[n]*0**9**9", "x[n]*(-1)**9**9", "x[n]*7**300"):
        parse(f"y[n] = {body}")


@pytest.mark.parametrize(
    "factor",
    [
        Pow(Integer(9), Pow(Integer(9), Integer(9), evaluate=False), evaluate=False),
        Integer(9) ** 10000,
        Rational(1, 3) ** 100000,
        Float("1e500"),
        Float("1e-500"),
    ],
    ids=["power", "integer", "fraction", "float", "small"],
)
def test_numbers_of_sympy_are_bounded(factor):
    with pytest.raises(SpecError, match="out of the range of float64"):
        Operation("f", Eq(y[n], x[n] * factor))


def test_parameters_of_sympy_are_bounded():
    with pytest.raises(SpecError, match="out of the range of float64"):
        Operation("f", Eq(y[n], x[n] * symbols("p")), parameters={"p": 10**5000})


def test_a_text_and_a_statement_are_bounded():
    assert f"the limit is {TEXT}" in refused("y[n] = " + "x[n]+" * 200_000 + "x[n]")
    assert f"the limit is {STATEMENT}" in refused("y[n] = " + "x[n]+" * 20_000 + "x[n]")
    assert "operations (the limit is" in refused("op f(x) -> y; y = x\n" * 2001)
    assert "concat joins at most" in refused(
        "y[n] = concat[n](" + ", ".join(f"a{i}[n]" for i in range(200)) + ")"
    )


def test_more_axes_than_torch_has_are_refused():
    letters = ",".join(f"i{k}" for k in range(65))
    assert "more than 64 axes" in refused(f"y[{letters}] = x[{letters}]")


def test_much_that_is_plain_is_read_soon():
    start = time.process_time()
    names = [f"a{i}[n]" for i in range(1500)]
    parse(f"op f({', '.join(names)}) -> y; y[n] = {' + '.join(names)}")
    lines = ["x1[n] = 2*x0[n]", *(f"x{i + 1}[n] = 2*x{i}[n]" for i in range(1, 600))]
    parse("\n".join(lines))
    parse("\n" * 400_000 + "y[n] = x[n]")
    assert time.process_time() - start < 5


def test_an_error_has_at_most_4000_characters():
    names = "+".join(f"a{i}[n]" for i in range(3000))
    message = refused(f"y[n] = ({names})/0*b")
    assert len(message) <= 4000 and "characters omitted" in message
    assert "division by zero" in message
    assert len(str(DeriveError("x" * 10_000))) <= 4000


def test_powers_of_powers_have_a_limit():
    tower = "y[n] = " + "**".join(["x[n]"] * 5)
    assert "4 powers are nested in exponents" in refused(tower)
    assert "4 powers" in refused(f"op f(x[*p], s) -> y\ny[*p] = x[*p]**{'**'.join(['s'] * 4)}")
    assert "4 powers" in refused("y[*p] = " + "**".join(["x[*p]"] * 5))
    assert "4 powers" in refused("y[n] = " + "**".join(["x[0]"] * 5))
    for text in ("y[n] = " + "**".join(["x[n]"] * 4), "y[n] = " + "(" * 20 + "x[n]" + "**2)" * 20):
        parse(text)


def test_a_position_is_that_of_an_axis_of_its_name():
    text = "op f(A[*p,j,*q]; dim=axis({})) -> F\nF[*p,*q] = amax[k](A[*p,k,*q])"
    assert "no input has an axis of that name" in refused(text.format("k"))
    parse(text.format("j"))
